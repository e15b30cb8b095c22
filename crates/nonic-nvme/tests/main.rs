//! The target and the initiator.
//!
//! One binary for all of them: it is linked once, and nextest runs each test in a process of its own.

/// The fuzzers' own checks, which run for every build as well.
#[path = "../../../fuzz/src"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod fuzz {
    pub(crate) mod corpus;
    pub(crate) mod nvme;
}

mod end_to_end;
mod hostile;
mod hosts;
mod machine;
