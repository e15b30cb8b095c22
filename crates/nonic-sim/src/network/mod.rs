//! The network workload: thousands of flows over switches with shared buffers; measures goodput, fairness, queues and
//! tail latency.
//!
//! - The network (`net`, `topology`, `port`): leaf and spine switches whose queues share a buffer, mark (RED, ECN) and
//!   drop what does not fit; several paths, taken by flow or by packet; cables with a rate and a length, which may be cut.
//! - Flows (`flow`, `sender`, `receiver`): light models of both ends of a reliable connection. What decides how much is
//!   under way is nonic's own code ([`nonic_core::Congestion`]), called as the core's requester calls it.
//! - Devices (`device`): whole [`nonic_core::Nic`]s on the same network, for as many hosts as can be afforded.
//! - Oracles (`dcqcn`, `timely`): published laws, which must behave as published before anything else here is believed.
//! - `scenarios`: what is run, and the bounds that must hold.
//!
//! Not modelled: processors and schedulers (what `nonic sim --shares` is for), priority flow control, and packets lost anywhere
//! but in queues unless a scenario says so.

mod dcqcn;
mod device;
mod flow;
mod law;
mod measured;
mod metrics;
mod net;
mod packet;
mod plot;
mod port;
mod ranges;
mod receiver;
mod report;
mod round_trip;
mod scenarios;
mod sender;
mod statistics;
mod timely;
mod topology;

pub use metrics::Metrics;
pub use report::{File, report};
pub use scenarios::{Check, Outcome, Scenario, scenarios};
