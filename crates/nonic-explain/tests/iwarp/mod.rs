//! Ends of iWARP streams.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the explanations use a part of the bench"
)]

#[path = "../../../nonic-core/tests/iwarp/bench.rs"]
mod bench;
mod ends;
