//! Runs the corpora of the iWARP fuzzers through the fuzzers' own checks, so that a finding stays found.

use crate::fuzz::corpus::replay;
use crate::fuzz::iwarp;

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
