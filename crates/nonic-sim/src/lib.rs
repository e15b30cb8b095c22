//! A deterministic fabric of NICs in virtual time, with faults and checkers.
//!
//! Two layers:
//! - [`Fabric`] moves packets between any number of [`nonic_core::Nic`]s over [`Link`]s with [`Faults`], and
//!   drives each as the real engine does. It is a library for tests of anything that runs on the core. With a
//!   [`SharedHost`], NICs also reach each other's memory without packets; with a [`LaneHost`], they talk in records.
//! - [`run_seed`] draws a whole workload from a number, runs it and checks every completion and every byte
//!   against a model; or, with [`Workload::Connections`], has hosts connect and disconnect; or, with
//!   [`Workload::Shares`], measures what many processes at one address get; or, with [`Workload::Streams`], has
//!   iWARP queue pairs move data over byte streams; or, with [`Workload::Messages`], two machines of `nonic-message` talk over a
//!   connection that breaks. [`run_many`] does so for a range of seeds, on several threads; [`record_seed`] makes a ladder diagram of one.
//!
//! ```
//! use nonic_sim::{Options, record_seed, run_seed};
//!
//! // A fabric, its faults and a workload, drawn from a number; every completion and byte is checked.
//! let report = run_seed(5, &Options::default()).expect("a seed that fails names the command that repeats it");
//! assert_eq!(run_seed(5, &Options::default()).unwrap(), report); // to the nanosecond, on any machine
//!
//! let (_, ladder) = record_seed(5); // the same run, as `nonic sim --seed 5 --draw` shows it
//! assert!(!ladder.events.is_empty());
//! ```
//!
//! It does not know the rules of the protocol on purpose: a checker compares with a model of memory and of queues, so
//! that a wrong rule in `nonic-core` cannot be wrong here in the same way. How to read a seed that fails is in
//! [docs/debugging.md](https://github.com/nonic-rdma/nonic/blob/main/docs/debugging.md).
//!
//! A run is a function of its seed: it reads no clock, draws no other randomness and shares nothing with
//! other runs. What a seed means may change between versions; what it means within one never does.

#![forbid(unsafe_code)]

mod capture;
mod connections;
mod direct;
mod fabric;
mod flight;
mod forger;
mod lanes;
mod link;
mod messages;
pub mod network;
mod program;
mod reliable;
mod report;
mod run;
mod shares;
mod streams;
mod world;

pub use capture::Capture;
pub use direct::{DirectProfile, SharedHost};
pub use fabric::{Batching, Fabric, FabricConfig, Step};
pub use lanes::{LaneHost, LaneProfile};
pub use link::{Link, LinkProfile};
pub use nonic_ladder::Ladder;
pub use nonic_netem::{FaultCounts, FaultInjector, Faults, Prng, Train};
pub use report::Report;
pub use run::{
    Failure, Options, Summary, Workload, record_seed, run_many, run_many_of, run_seed, story_of_failure,
};
