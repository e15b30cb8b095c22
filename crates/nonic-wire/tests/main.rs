//! Packet formats, beside captures and Wireshark.
//!
//! One binary for all of them: it is linked once, and nextest runs each test in a process of its own.

/// The fuzzers' own checks, which run for every build as well.
#[path = "../../../fuzz/src"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod fuzz {
    pub(crate) mod corpus;
    pub(crate) mod iwarp;
}

mod common;

mod capture_reader;
mod captures;
mod cm_messages;
mod fuzz_corpus;
mod icrc_detects_damage;
mod iwarp;
mod pcap_reader;
mod pcapng_in_wireshark;
mod round_trips;
