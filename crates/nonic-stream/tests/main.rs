//! Streams on real devices.
//!
//! One binary for all of them: it is linked once, and nextest runs each test in a process of its own.

mod common;

mod any_split;
mod death;
mod stream;
