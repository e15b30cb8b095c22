//! Runs the corpora of the iWARP fuzzers through the fuzzers' own checks, so that a finding stays found.

#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "shared by several crates")]
mod corpus;
#[path = "../../../fuzz/src/iwarp.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod iwarp;

use corpus::replay;

#[test]
fn start_up_frames() {
    replay("iwarp_mpa", iwarp::mpa);
}

#[test]
fn streams() {
    replay("iwarp_deframer", iwarp::deframer);
}

#[test]
fn segments() {
    replay("iwarp_rdmap", iwarp::rdmap);
}

#[test]
fn terminates() {
    replay("iwarp_terminate", iwarp::terminate);
}
