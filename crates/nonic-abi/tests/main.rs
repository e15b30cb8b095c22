//! The structures of the C libraries beside the installed headers.
//!
//! One binary for all of them: it is linked once, and nextest runs each test in a process of its own.

#[path = "support/outcome.rs"]
mod outcome;

mod rdma_cma_layout;
mod verbs_layout;
