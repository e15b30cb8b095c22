//! The library exports what the system's does, at the same versions, and nothing else but what newer ones do.

use crate::support::{Libraries, missing, succeeded};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Versions that the installed library may be too old to have.
const NEWER: [&str; 2] = ["@RDMACM_1.4", "@RDMACM_1.5"];

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
    let lost: Vec<&String> = theirs.difference(&ours).collect();
    assert!(lost.is_empty(), "not exported: {lost:#?}");
    let newer = |symbol: &&String| NEWER.iter().any(|node| symbol.ends_with(node));
    let added: Vec<&String> = ours.difference(&theirs).filter(|symbol| !newer(symbol)).collect();
    assert!(added.is_empty(), "not of rdma-core: {added:#?}");
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
