//! `librspreload.so` with C programs.
//!
//! One binary for all of them: it is linked once, and nextest runs each test in a process of its own.

mod support;

mod interposition;
mod programs;
