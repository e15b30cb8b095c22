//! The world around the NIC: sockets, network devices, event descriptors and the sharing of one
//! address between processes.
//!
//! The protocol lives in `nonic-core` and never calls the operating system; this crate does, on its
//! behalf. It refuses to know anything about packets beyond their length: what a datagram means is
//! decided below, where it goes is decided here.
//!
//! Read first: [`socket::WireSocket`] (how bytes reach the wire), [`netdev::devices`] (which devices
//! exist) and [`registry`] (how processes share UDP port 4791 without a daemon).

pub mod eventfd;
pub mod netdev;
pub mod pinning;
pub mod registry;
pub mod socket;
