//! Runs the fuzzers' corpora through the fuzzers' own checks, so that a finding stays found.

use crate::fuzz::cm;
use crate::fuzz::corpus::replay;
use crate::fuzz::nic;
use crate::fuzz::streams;
use crate::fuzz::wire;

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
