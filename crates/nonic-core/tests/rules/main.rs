//! The rules of the NIC, one test each, with explicit time and hand-carried packets.
//!
//! One module per behaviour. They share one binary because linking dozens would take longer than running
//! them.

#[path = "../support/mod.rs"]
mod support;

mod acknowledgements;
mod duplicates;
mod lost_answers;
mod order_and_limits;
mod rc_operations;
mod receiver_not_ready;
mod refusals;
mod sequence_numbers;
mod timeouts;
