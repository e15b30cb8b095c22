//! Runs the corpus of the fuzzer `registry`, messages between processes, through the fuzzer's own check.

#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "shared by several crates")]
mod corpus;
#[path = "../../../fuzz/src/registry.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod registry;

#[test]
fn registry() {
    corpus::replay("registry", registry::decode);
}
