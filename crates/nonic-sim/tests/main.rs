//! The simulator and its checkers.
//!
//! One binary for all of them: it is linked once, and nextest runs each test in a process of its own.

mod common;

mod capture;
mod connections;
mod drawn_runs;
mod fabric;
mod messages;
mod mutations;
mod network;
mod seeds;
mod shares;
mod streams;
