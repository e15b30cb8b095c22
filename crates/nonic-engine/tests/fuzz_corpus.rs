//! Runs the corpus of the fuzzer `registry`, messages between processes, through the fuzzer's own check.

use crate::fuzz::corpus;
use crate::fuzz::registry;

#[test]
fn registry() {
    corpus::replay("registry", registry::decode);
}
