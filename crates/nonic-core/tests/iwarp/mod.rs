//! The rules of iWARP, one test each, with explicit time and bytes carried by hand.
//!
//! Expected bytes are written out, or made by the wire crate, which has judges of its own.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of the bench"
)]

mod bench;
mod destroying;
mod ending;
mod errors;
mod extensions;
mod gather;
mod operations;
mod order;
mod ready;
mod receives;
mod replay;
mod robustness;
mod startup;
mod table;
