//! The NIC, the connection manager and iWARP as machines, with explicit time.
//!
//! One binary for all of them: it is linked once, and nextest runs each test in a process of its own.

/// The fuzzers' own checks, which run for every build as well.
#[path = "../../../fuzz/src"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod fuzz {
    pub(crate) mod cm;
    pub(crate) mod corpus;
    pub(crate) mod nic;
    pub(crate) mod streams;
    pub(crate) mod wire;
}

mod support;

mod cm;
mod fuzz_corpus;
mod iwarp;
mod replay;
mod robustness;
mod rules;
