//! Messages on real devices.
//!
//! One binary for all of them: it is linked once, and nextest runs each test in a process of its own.

mod common;

mod call;
mod cancelled;
mod channel;
mod cutoff;
mod death;
