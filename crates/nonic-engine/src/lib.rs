//! The world around the NIC: sockets, network devices, event descriptors and the sharing of one
//! address between processes.
//!
//! The protocol lives in `nonic-core` and never calls the operating system; this crate does, on its
//! behalf. It refuses to know anything about packets beyond their length: what a datagram means is
//! decided below, where it goes is decided here.
//!
//! Read first: [`socket::WireSocket`] (how bytes reach the wire), [`netdev::devices`] (which devices
//! exist) and [`registry`] (how processes share UDP port 4791 without a daemon).

mod attachment;
mod attention;
mod capture;
mod channel;
mod clock;
mod device;
mod doorbell;
mod entropy;
pub mod eventfd;
mod farewell;
mod gsi;
pub mod memory;
pub mod netdev;
pub mod os;
pub mod pinning;
mod progress;
pub mod registry;
mod routes;
mod settings;
mod shard;
pub mod socket;

pub use channel::{Channel, Notify};
pub use device::{Device, DeviceUsage, ListenError, OpenError, RecvPoster, SendPoster};
pub use doorbell::Doorbell;
pub use shard::{ConnectionSink, LinkCounters};
