//! NVMe over Fabrics on RDMA: a target whose disk Linux's `nvme-rdma` mounts, and a small initiator.
//!
//! The host sends a command of 64 bytes and says where in its memory the data is, by address and key. The target reads or
//! writes that memory itself and answers with a status of 16 bytes. Each NVMe queue is one RDMA connection.
//!
//! # What to read first
//!
//! - [`wire`]: the formats. No I/O, and total over any input.
//! - [`controller`]: what the target does with a command, as a machine that is fed and asked.
//! - [`Target`]: queue pairs, buffers and threads around that machine; [`Storage`] is the disk.
//! - [`initiator`]: the other side, for tests and examples.
//!
//! # What it does not do
//!
//! One namespace. No metadata or end-to-end protection, no reservations, no authentication, no queue pairs in shared memory of
//! the controller. Commands that are not known are answered with the status that says so.

#![forbid(unsafe_code)]

pub mod controller;
mod disk;
pub mod initiator;
mod target;
pub mod wire;

pub use disk::{FileDisk, Storage};
pub use target::{Event, Target, TargetConfig};

/// The port that NVMe over RDMA is assigned, and that `nvme connect` uses unless it is told another.
pub const PORT: u16 = 4420;

/// The well-known name of every discovery service.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
