//! The world around the NIC: links, network devices, event descriptors and the sharing of one address between processes.
//!
//! The protocol lives in `nonic-core` and never calls the operating system; this crate does, on its behalf. Of packets it
//! knows just enough to find the process they are for (`host::demultiplex`): what they mean is decided below.
//!
//! | module | what it is |
//! |---|---|
//! | [`Device`] | an open device: what both doors, the Rust API and the C libraries, stand on |
//! | `driver` | who drives the NIC and when: turns, the background thread, the end of the process |
//! | `shard` | the pipeline: links → NIC → completions |
//! | `link` | what carries packets: the trait, UDP behind it, captures and faults around it |
//! | [`host`] | how processes of one host share UDP port 4791 without a daemon |
//! | [`memory`] | registered memory, reached through the processor |
//! | `notify` | channels and doorbells |
//! | [`os`] | clocks, descriptors, interfaces, pinning |
//! | [`Config`] | what can be asked of a device, by the environment or by a program |

mod config;
mod device;
mod driver;
pub mod host;
mod link;
pub mod memory;
mod notify;
pub mod os;
mod shard;

pub use config::{Config, FaultPlan};
pub use device::{Device, DeviceUsage, ListenError, OpenError, RecvPoster, SendPoster};
pub use link::udp::socket;
pub use link::{Datagrams, LinkCounters};
pub use notify::{Channel, Doorbell, Notify};
pub use os::{eventfd, netdev, pinning};
pub use shard::ConnectionSink;
