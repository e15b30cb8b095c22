//! Runs the fuzzers' corpora through the fuzzers' own checks, so that a finding stays found.

#[path = "../../../fuzz/src/cm.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod cm;
#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "shared by several crates")]
mod corpus;
#[path = "../../../fuzz/src/nic.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod nic;
#[path = "../../../fuzz/src/streams.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod streams;
#[path = "../../../fuzz/src/wire.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod wire;

use corpus::replay;

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

#[test]
fn iwarp_streams() {
    replay("iwarp_streams", streams::script);
}
