//! NVMe over Fabrics on RDMA: a target whose disk Linux's `nvme-rdma` mounts, and a small initiator.
//!
//! The host sends a command of 64 bytes and says where in its memory the data is, by address and key. The target reads or
//! writes that memory itself and answers with a status of 16 bytes. Each NVMe queue is one RDMA connection.
//!
//! ```
//! use nonic::{Device, Listener};
//! use nonic_nvme::{FileDisk, Target, TargetConfig, initiator::Initiator, wire::Nqn};
//! use std::{sync::Arc, time::Duration};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("roce_lo")?;
//! let listener = Listener::bind(&device, "127.0.0.1:0".parse()?)?; // Linux's `nvme connect` asks at port 4420
//! let address = listener.local_addr();
//! let name = Nqn::new("nqn.2026-11.org.nonic-rdma:demo").ok_or("a name")?;
//! let disk = Arc::new(FileDisk::in_memory(1 << 20)?);
//! let target = Target::new(TargetConfig::new(name.clone()), disk, |_event| {})?;
//!
//! std::thread::scope(|scope| {
//!     scope.spawn(|| target.serve(&listener));
//!     let exchange = || -> Result<_, Box<dyn std::error::Error>> {
//!         let mut host = Initiator::connect(&device, address, &name, Duration::from_secs(5))?;
//!         let block = vec![7; host.block_length()];
//!         host.write(8, &block)?;
//!         Ok(host.read(8, 1)? == block)
//!     };
//!     let exchanged = exchange();
//!     target.stop();
//!     assert!(exchanged?, "what was written is read");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! `nonic nvme-target` is this as a command:
//! [docs/nvme.md](https://github.com/nonic-rdma/nonic/blob/main/docs/nvme.md).
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
