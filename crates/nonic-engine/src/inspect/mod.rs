//! Inspection of a running process: what its devices hold and do, for processes of the same user, or root, that ask.
//!
//! Every process with an open device has an abstract Unix socket (`name`) and a thread that sleeps on it (`server`). A
//! client that connects says in one line what it wants ([`Request`]) and gets lines of names and values ([`Record`]). The
//! `nonic` command asks ([`processes`], [`ask_all`]) for `nonic ps`, `show`, `metrics` and `top`; docs/inspect.md says what
//! each field means.
//!
//! - **Inspection costs the data path nothing that shows.** What is shown was counted anyway, in plain integers. The thread
//!   copies it while no other thread holds the shard lock, so many queue pairs at a time (`answer`, `gate`), and formats it
//!   afterwards.
//! - **Nothing is changed by it**: there is no request that sets anything.
//! - **Only the same user, and root, are answered**, as the kernel names them on the socket; one client at a time, each
//!   step with a time limit.
//! - A child of `fork` has no thread. The listening socket stays open in it until it ends or calls `exec`, so the name may
//!   outlive its process; a client notices that (`client`).
//!
//! Without descriptors or threads to be had, or with `NONIC_INSPECT=off`, devices work and cannot be inspected.

mod answer;
mod asking;
mod client;
mod gate;
mod name;
mod outcome;
pub(crate) mod queues;
mod record;
mod request;
mod server;
mod service;

pub use client::{Process, ask_all, processes};
pub(crate) use gate::Inspected;
pub use outcome::{Answer, InspectError};
pub use record::{Record, Value, printable};
pub use request::Request;

use crate::os::entropy::KernelEntropy;
use gate::Gate;
use name::ProcessName;
use nonic_core::Entropy;
use server::Server;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The devices of this process that can be inspected, and the server that answers.
struct Registry {
    /// A child of `fork` finds its parent's.
    process: u32,
    devices: Vec<Arc<Gate>>,
    server: Option<Server>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    process: 0,
    devices: Vec::new(),
    server: None,
});

/// A device that can be inspected, until this is dropped.
pub(crate) struct Inspection {
    process: u32,
    gate: Arc<Gate>,
}

impl Inspection {
    /// From now on the device can be inspected. The first one of a process starts the thread that answers.
    pub(crate) fn begin(inspected: Inspected) -> Self {
        let process = std::process::id();
        let gate = Arc::new(Gate::new(inspected));
        let mut registry = registry();
        if registry.process != process {
            registry.process = process;
            registry.devices.clear();
            if let Some(server) = registry.server.take() {
                server.forget();
            }
        }
        registry.devices.push(Arc::clone(&gate));
        if registry.server.is_none() {
            let mut entropy = KernelEntropy::new();
            let nonce = u64::from(entropy.next_u32()) << 32 | u64::from(entropy.next_u32());
            let name = ProcessName { pid: process, nonce };
            // Programs also run without inspection.
            registry.server = Server::start(&name, open_devices).ok();
        }
        Inspection { process, gate }
    }
}

impl Drop for Inspection {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // In a child of `fork`, a thread that is not there may have been at it.
            return;
        }
        let mut registry = registry();
        registry.devices.retain(|device| !Arc::ptr_eq(device, &self.gate));
        let server = match registry.devices.is_empty() {
            true => registry.server.take(),
            false => None,
        };
        // The thread may be about to ask which devices there are.
        drop(registry);
        self.gate.close();
        if let Some(server) = server {
            server.stop();
        }
    }
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_devices() -> Vec<Arc<Gate>> {
    registry().devices.clone()
}
