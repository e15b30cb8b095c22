//! An open device: the thread-safe handle through which programs use a NIC.
//!
//! [`Device`] is what the safe Rust API and the C libraries are built on. It checks nothing the core
//! already checks, and adds only what needs an operating system: links, threads, descriptors.
//!
//! A device has one shard or several (`NONIC_SHARDS`). What belongs to all of them is above them: memory keys, the
//! connection manager, the listeners of completion queues, and the map of queue pairs to shards. New queue pairs go to the
//! shards in rotation. The first shard does what concerns no particular queue pair. XRC targets and the SRQs that peers
//! name are all there, so that they find each other.

mod connections;
mod cq;
mod explain;
pub(crate) mod listing;
mod memory;
mod multicast;
mod open;
mod qp;
mod runtime;
mod statistics;
#[cfg(all(test, not(loom)))]
mod tests;
mod wait;

pub use connections::ListenError;
pub use open::OpenError;
pub use qp::{RecvPoster, SendPoster};
pub use runtime::{RuntimeStep, RuntimeWatch};
pub use statistics::DeviceUsage;
pub use wait::{MAX_WATCHED, Wait, Waits, Watched, WeakDevice};

use crate::config::Config;
use crate::direct::Publication;
use crate::driver::exit::{self, Leave};
use crate::driver::waiters::Waiters;
use crate::driver::{Driver, Turn};
use crate::inspect::Inspection;
use crate::inspect::queues::CompletionQueues;
use crate::netdev::{GidEntry, NetDevice};
use crate::notify::{Doorbell, Notify};
use crate::shard::Common;
use nonic_core::Shortage;
use nonic_core::{CqId, KeyTable, NicConfig, PdId, Qpn};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The shard that does what is not a particular queue pair's business.
const HOME: usize = 0;

/// How long a thread that holds a shard's lock may delay closing.
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

/// An open device. Clones are handles to the same one; it closes with the last.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    netdev: NetDevice,
    gids: Vec<GidEntry>,
    config: NicConfig,
    keys: Arc<KeyTable>,
    /// What processes of this host see of it, if they may access its memory.
    publication: Option<Arc<Publication>>,
    common: Common,
    /// One for each shard.
    drivers: Vec<Arc<Driver>>,
    /// The program's threads that sleep until a completion comes.
    waiters: Arc<Waiters>,
    /// Rung when the device closes, for tasks that watch for packets.
    closing: Arc<Doorbell>,
    /// Registrations that fail because the fault plan (`NONIC_FAULTS`) says so.
    failing_registrations: Option<Mutex<Shortage>>,
    /// The shard that gets the next queue pair.
    next_shard: AtomicUsize,
    next_id: AtomicU32,
    settings: Config,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The completion queues that the program made, for inspection.
    completion_queues: Arc<CompletionQueues>,
    /// The device can be inspected until it closes.
    inspection: Option<Inspection>,
}

impl Device {
    /// The interface it stands on, as it was when the device was opened.
    pub fn netdev(&self) -> &NetDevice {
        &self.inner.netdev
    }

    /// Its addresses; the position is the GID index.
    pub fn gids(&self) -> &[GidEntry] {
        &self.inner.gids
    }

    /// The GID table that verbs programs see: for each index the position in [`gids`](Self::gids).
    pub fn verbs_gid_table(&self) -> Vec<usize> {
        crate::netdev::verbs_gid_table(self.inner.netdev.loopback, &self.inner.gids)
    }

    /// Its limits.
    pub fn config(&self) -> &NicConfig {
        &self.inner.config
    }

    /// A fresh protection domain.
    pub fn alloc_pd(&self) -> PdId {
        self.inner.keys.alloc_pd()
    }

    /// The device's memory keys.
    pub fn keys(&self) -> &Arc<KeyTable> {
        &self.inner.keys
    }
}

impl Inner {
    /// A turn at the first shard.
    fn home(&self) -> Turn<'_> {
        self.drivers[HOME].turn()
    }

    /// The driver of a queue pair's shard.
    fn driver_of(&self, qpn: Qpn) -> &Driver {
        &self.drivers[self.common.map.shard_of(qpn)]
    }

    /// A turn at it.
    fn turn_of(&self, qpn: Qpn) -> Turn<'_> {
        self.driver_of(qpn).turn()
    }

    /// Waits until every access to registered memory that is under way has ended.
    fn fence(&self) {
        self.drivers.iter().for_each(|driver| driver.fence());
    }

    fn listeners(&self) -> RwLockWriteGuard<'_, HashMap<CqId, Arc<dyn Notify>>> {
        self.common
            .listeners
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leave for Inner {
    fn leave(&self, deadline: Instant) {
        exit::take_leave(&self.common.connections, &self.drivers, deadline);
        self.report_counters();
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.inner.netdev.device_name())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // First, so that no inspection keeps anything of it.
        drop(self.inspection.take());
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for (driver, thread) in self.drivers.iter().zip(threads.drain(..)) {
            let ends = driver.stop();
            if ends && thread.thread().id() != std::thread::current().id() {
                // A thread that panicked has said so; there is nothing to add here.
                let _ = thread.join();
            }
        }
        drop(threads);
        self.leave(Instant::now() + LEAVE_PATIENCE);
        self.closing.ring();
    }
}
