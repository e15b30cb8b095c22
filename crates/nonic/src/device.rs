//! Devices and protection domains.

use crate::completion::CompletionQueue;
use crate::connection::Switchboard;
use crate::memory::{Lease, MemoryError};
use crate::outstanding::Lane;
use crate::queue_pair::{Buffers, Prepared, QueuePairBuilder, Refused, post_receive};
use crate::transport::Transport;
use nonic_core::{Counters, CreateError, Event, PathMtu, PdId};
use nonic_engine::host::Standing;
use nonic_engine::netdev::{GidEntry, NetDevice};
use nonic_engine::{LinkCounters, OpenError};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// An open device. Clones are handles to the same one; it closes when the last object made from it is gone.
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) engine: nonic_engine::Device,
    pub(crate) switchboard: Arc<Switchboard>,
}

impl Device {
    /// The devices of this host: one per network interface, named `roce_` and the interface's name.
    pub fn list() -> io::Result<Vec<NetDevice>> {
        nonic_engine::Device::list()
    }

    /// Opens a device by name.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        let engine = nonic_engine::Device::open(name)?;
        let switchboard = Arc::new(Switchboard::default());
        engine.set_connection_sink(switchboard.clone());
        Ok(Device { engine, switchboard })
    }

    /// The interface it stands on.
    pub fn netdev(&self) -> &NetDevice {
        self.engine.netdev()
    }

    /// Its addresses; the position is the GID index.
    pub fn gids(&self) -> &[GidEntry] {
        self.engine.gids()
    }

    /// The GID index of one of its addresses.
    pub(crate) fn gid_index(&self, ip: IpAddr) -> Option<u8> {
        let index = self.gids().iter().position(|gid| gid.address.ip == ip)?;
        u8::try_from(index).ok()
    }

    /// The largest path MTU its interface carries.
    pub fn port_mtu(&self) -> PathMtu {
        self.engine.config().port_mtu
    }

    /// A new protection domain.
    pub fn domain(&self) -> Domain {
        Domain {
            device: self.clone(),
            pd: self.engine.alloc_pd(),
        }
    }

    /// A new completion queue for `capacity` completions.
    pub fn completion_queue(&self, capacity: usize) -> io::Result<CompletionQueue> {
        CompletionQueue::new(self, capacity)
    }

    /// For each address, by GID index, whether this process has a socket at UDP port 4791, where packets of other hosts
    /// arrive. If another user has the port, that user's processes pass on what is for this one.
    pub fn standings(&self) -> Vec<Standing> {
        self.engine.standings()
    }

    /// What happened so far: in the NIC, and at its sockets.
    pub fn counters(&self) -> (Counters, LinkCounters) {
        self.engine.counters()
    }

    /// What the device holds at this moment, to show that nothing was left behind. Not for hot paths.
    pub fn usage(&self) -> Usage {
        let usage = self.engine.usage();
        Usage {
            queue_pairs: usage.nic.queue_pairs,
            send_requests: usage.nic.send_requests,
            memory_keys: usage.memory_keys,
            completion_queues: usage.completion_queues,
            connections: usage.connections.connections,
            listeners: usage.connections.listeners,
        }
    }

    /// Waits for an asynchronous event, at most `timeout` (for ever without one).
    pub fn wait_event(&self, timeout: Option<Duration>) -> io::Result<Option<Event>> {
        self.engine.events().wait(timeout)
    }
}

/// What a device holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Requests in their send queues.
    pub send_requests: usize,
    /// Registered memory: one for each lease made, however it was split, and one more for what is exposed.
    pub memory_keys: usize,
    /// Completion queues.
    pub completion_queues: usize,
    /// Connections made by address and port, those included that ended and are remembered for a while, lest
    /// a late message be taken for one of a new connection.
    pub connections: usize,
    /// Listeners.
    pub listeners: usize,
}

/// A protection domain: memory and queue pairs of one cannot be used with those of another.
#[derive(Clone, Debug)]
pub struct Domain {
    pub(crate) device: Device,
    pub(crate) pd: PdId,
}

impl Domain {
    /// The device it belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// A zeroed buffer of `len` bytes.
    pub fn lease(&self, len: usize) -> Result<Lease, MemoryError> {
        Lease::new(self, len)
    }

    /// A buffer with a copy of `bytes`.
    pub fn lease_from(&self, bytes: &[u8]) -> Result<Lease, MemoryError> {
        let mut lease = Lease::new(self, bytes.len())?;
        lease.copy_from_slice(bytes);
        Ok(lease)
    }

    /// A queue pair with default sizes, completing to `queue`.
    pub fn queue_pair<T: Transport>(&self, queue: &CompletionQueue) -> Result<Prepared<T>, CreateError> {
        self.queue_pair_builder(queue).build()
    }

    /// A queue pair to be adjusted before it is made.
    pub fn queue_pair_builder<T: Transport>(&self, queue: &CompletionQueue) -> QueuePairBuilder<T> {
        QueuePairBuilder::new(self, queue)
    }

    /// A receive queue for several queue pairs. All of them must complete receives to `queue`, which returns
    /// the buffers.
    pub fn shared_receive_queue(&self, queue: &CompletionQueue, capacity: usize) -> SharedReceiveQueue {
        let max_sge = self.device.engine.config().max_sge as usize;
        let srq = self.device.engine.create_srq(self.pd, capacity, max_sge);
        SharedReceiveQueue {
            domain: self.clone(),
            queue: queue.clone(),
            srq,
        }
    }
}

/// A receive queue several queue pairs draw from.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    pub(crate) domain: Domain,
    pub(crate) queue: CompletionQueue,
    pub(crate) srq: Arc<nonic_core::ReceiveQueue>,
}

impl SharedReceiveQueue {
    /// Posts a receive; refused, it gives the buffers back.
    pub fn recv(&self, id: u64, buffers: impl Into<Buffers>) -> Result<(), Refused> {
        let keys = self.domain.device.engine.keys();
        post_receive(&self.queue, Lane::SHARED, id, buffers.into(), |request| {
            self.srq.post(request, keys).map_err(Into::into)
        })
    }

    /// Asks for one [`Event::SrqLimit`] when fewer than `limit` receives wait.
    pub fn set_limit(&self, limit: usize) {
        self.srq.set_limit(limit);
    }

    /// How many receives wait.
    pub fn len(&self) -> usize {
        self.srq.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.srq.is_empty()
    }
}
