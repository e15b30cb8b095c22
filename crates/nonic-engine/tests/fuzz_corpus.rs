//! Runs the corpus of the fuzzer `registry`, messages between processes, through the fuzzer's own check.

#[path = "../../../fuzz/src/registry.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod registry;

use std::path::PathBuf;

#[test]
fn registry() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/registry");
    let entries = std::fs::read_dir(&directory).expect("the corpus is part of the repository");
    let mut count = 0;
    for entry in entries {
        let path = entry.expect("directory entries are readable").path();
        println!("{}", path.display());
        registry::decode(&std::fs::read(&path).expect("corpus files are readable"));
        count += 1;
    }
    assert!(count > 0, "an empty corpus tests nothing");
}
