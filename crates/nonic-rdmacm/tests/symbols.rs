//! The library exports what rdma-core's releases do, at the same versions, and nothing else.

use crate::support::symbols::{Symbols, exported, listed};
use crate::support::{Libraries, missing};
use std::path::Path;
use std::process::Command;

#[test]
fn the_symbols_are_those_of_rdma_cores_releases() {
    let ours = exported(&Libraries::build().rdmacm());
    let mut known = Symbols::new();
    for (release, theirs) in listed("exported_librdmacm.txt") {
        assert!(theirs.len() > 60, "{release} has symbols: {theirs:?}");
        let lost: Vec<&String> = theirs.difference(&ours).collect();
        assert!(lost.is_empty(), "of {release}, not exported: {lost:#?}");
        known.extend(theirs);
    }
    let added: Vec<&String> = ours.difference(&known).collect();
    assert!(added.is_empty(), "of no release: {added:#?}");
}

/// The system's library may be of a release that is not listed.
#[test]
fn every_symbol_of_the_installed_library_is_exported_at_its_version() {
    let output = Command::new("cc")
        .arg("-print-file-name=librdmacm.so.1")
        .output()
        .expect("cc runs");
    let system = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if missing(&system) {
        return;
    }
    let ours = exported(&Libraries::build().rdmacm());
    let theirs = exported(Path::new(&system));
    assert!(theirs.len() > 60, "the system's library has symbols: {theirs:?}");
    let lost: Vec<&String> = theirs.difference(&ours).collect();
    assert!(lost.is_empty(), "not exported: {lost:#?}");
}
