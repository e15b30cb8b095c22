//! Runs the fuzzers' corpora through the fuzzers' own checks, so that a finding stays found.

#[path = "../../../fuzz/src/cm.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod cm;
#[path = "../../../fuzz/src/nic.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod nic;
#[path = "../../../fuzz/src/wire.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod wire;

use std::path::PathBuf;

fn replay(target: &str, check: fn(&[u8])) {
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

#[test]
fn parse() {
    replay("parse", wire::parse);
}

#[test]
fn icrc() {
    replay("icrc", wire::icrc);
}

#[test]
fn pcap() {
    replay("pcap", wire::pcap);
}

#[test]
fn connection_manager() {
    replay("cm", cm::messages);
}

#[test]
fn core_packets() {
    replay("core_packets", nic::packets);
}
