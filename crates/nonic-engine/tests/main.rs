//! The engine: links, processes and devices.
//!
//! One binary for all of them: it is linked once, and nextest runs each test in a process of its own.

/// The fuzzers' own checks, which run for every build as well.
#[path = "../../../fuzz/src"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod fuzz {
    pub(crate) mod corpus;
    pub(crate) mod registry;
}

mod fair_window;
mod fuzz_corpus;
mod gathered;
mod inspect;
mod loopback;
mod mapped_memory;
mod registry;
mod registry_processes;
mod side;
mod socket;
