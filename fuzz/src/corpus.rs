//! Runs a fuzzer's corpus through the fuzzer's own check, so that a finding stays found. For the tests of the crates, which
//! take this file in by its path; the fuzzers themselves do without.

use std::path::PathBuf;

/// Gives every file in the corpus of a target to its check.
pub fn replay(target: &str, check: fn(&[u8])) {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let entries = std::fs::read_dir(&directory).expect("the corpus is part of the repository");
    let mut count = 0;
    for entry in entries {
        let path = entry.expect("directory entries are readable").path();
        // Shown only if the check fails, and then it names the input.
        println!("{}", path.display());
        check(&std::fs::read(&path).expect("corpus files are readable"));
        count += 1;
    }
    assert!(count > 0, "an empty corpus tests nothing");
}
