//! The library exports what the system's does, at the same versions, and nothing else.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use support::{Libraries, missing, succeeded};

#[test]
fn the_symbols_are_those_of_rdma_core() {
    let output = Command::new("cc")
        .arg("-print-file-name=librdmacm.so.1")
        .output()
        .expect("cc runs");
    let system = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if missing(&system) {
        return;
    }
    let libraries = Libraries::build();
    let (ours, theirs) = (symbols(&libraries.rdmacm()), symbols(Path::new(&system)));
    assert!(theirs.len() > 60, "the system's library has symbols: {theirs:?}");
    assert_eq!(ours, theirs);
}

/// The defined dynamic symbols, `name@VERSION`.
fn symbols(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(library)
        .output()
        .expect("nm runs");
    succeeded(&output, "nm")
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|symbol| !symbol.starts_with("RDMACM_"))
        .map(|symbol| symbol.replace("@@", "@"))
        .collect()
}
