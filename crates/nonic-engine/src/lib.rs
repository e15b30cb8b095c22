//! The engine around the NIC: links, network devices, event descriptors and the sharing of one address between processes.
//!
//! The protocol lives in `nonic-core` and never calls the operating system; this crate does, on its behalf. Of packets it
//! knows just enough to find the process they are for (`host::demultiplex`): only the core knows what they mean.
//!
//! Read first: `shard` (the pipeline), then `driver::turn` (its lock), then `link` and [`host`]. From the top down:
//!
//! | module | what it is |
//! |---|---|
//! | [`Device`] | an open device: what the Rust API and the C libraries are built on |
//! | [`inspect`] | inspection: a process tells processes of the same user, or root, of its devices; and asking processes |
//! | `driver` | which thread runs a shard's I/O loop, and when: the lock, the background thread, the end of the process |
//! | `shard` | the pipeline: links → NIC → completions; what the shards of a device have in common |
//! | `link` | what carries packets: the trait, UDP, lanes through shared memory, and captures and faults as decorators |
//! | `stream` | the TCP connections of an iWARP device, beside links |
//! | `direct` | WRITEs and READs executed in the memory of processes of this host, without packets |
//! | [`host`] | how processes of one host share UDP port 4791 without a daemon |
//! | [`memory`] | registered memory, reached through the processor |
//! | `notify` | channels and doorbells: how the program learns of completions and events |
//! | [`os`] | clock, entropy, descriptors, network interfaces, signals, pinning |
//! | [`log`] | logging: `tracing` events, or standard error by `NONIC_LOG` |
//! | [`Config`] | what can be asked of a device, by the environment or by a program |

// The fuzzers, whose corpus the tests run, call this crate by its name.
#[cfg(all(test, not(loom)))]
extern crate self as nonic_engine;

mod capture;
mod config;
mod device;
mod direct;
mod driver;
#[cfg(any(all(test, not(loom)), feature = "fuzzing"))]
pub mod fuzzing;
pub mod host;
pub mod inspect;
mod link;
pub mod log;
pub mod memory;
mod notify;
pub mod os;
mod shard;
mod stream;
#[cfg(all(test, not(loom)))]
mod testing;

pub use config::{Config, Direction, FaultPlan, InvalidFaults, Loopback, PlannedRule, Wires};
pub use device::{
    Device, DeviceUsage, ListenError, MAX_WATCHED, OpenError, RecvPoster, RuntimeStep, RuntimeWatch,
    SendPoster, Wait, Waits, Watched, WeakDevice,
};
pub use direct::{DirectRoad, LaneRoad, roads};
pub use link::udp::socket;
pub use link::{Datagrams, LinkCounters};
pub use notify::{Channel, Doorbell, Notify};
pub use os::{eventfd, netdev, pinning};
pub use shard::ConnectionSink;
