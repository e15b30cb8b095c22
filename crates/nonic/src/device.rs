//! Devices and protection domains.
//!
//! Memory, completion queues and queue pairs know their device and domain, not the other way round: the methods that
//! make an object are in that object's file.

use crate::cm_dispatcher::CmDispatcher;
use futures_core::Stream;
use nonic_core::{Counters, Event, PathMtu, PdId, Qpn, Status};
use nonic_engine::host::PortState;
use nonic_engine::netdev::{GidEntry, NetDevice};
use nonic_engine::{LinkCounters, OpenError};
use nonic_explain::Explanation;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// An open device. Clones are handles to the same one; it closes when the last object made from it is gone.
///
/// ```
/// use nonic::Device;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// for device in Device::list()? {
///     println!("{}", device.device_name());
/// }
/// let device = Device::open("roce_lo")?; // or by address: `Device::for_addr`, `Device::toward`
/// println!("packets up to {} bytes", device.port_mtu().bytes());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) engine: nonic_engine::Device,
    pub(crate) cm_dispatcher: Arc<CmDispatcher>,
}

impl Device {
    /// The devices that programs are shown: one per network interface with an address, named `roce_` and the interface's
    /// name. Whether `roce_lo` is among them depends on what else there is and on `NONIC_LOOPBACK`; it can be opened
    /// always.
    #[doc(alias("ibv_get_device_list", "rdma_get_devices"))]
    pub fn list() -> io::Result<Vec<NetDevice>> {
        nonic_engine::Device::list()
    }

    /// All network interfaces of this host, also those that are not in the list of devices.
    pub fn interfaces() -> io::Result<Vec<NetDevice>> {
        nonic_engine::Device::interfaces()
    }

    /// Opens a device by name.
    #[doc(alias = "ibv_open_device")]
    pub fn open(name: &str) -> Result<Self, OpenError> {
        let engine = nonic_engine::Device::open(name)?;
        let cm_dispatcher = Arc::new(CmDispatcher::default());
        engine.set_connection_sink(cm_dispatcher.clone());
        Ok(Device {
            engine,
            cm_dispatcher,
        })
    }

    /// Opens the device of the interface that has this address.
    #[doc(alias = "rdma_bind_addr")]
    pub fn for_addr(address: IpAddr) -> Result<Self, OpenError> {
        let interfaces = Self::interfaces().map_err(|error| OpenError::Io {
            name: format!("the device of {address}"),
            error,
        })?;
        let found = interfaces
            .iter()
            .find(|netdev| netdev.gids.iter().any(|gid| gid.address.ip == address));
        match found {
            Some(netdev) => Self::open(&netdev.device_name()),
            None => Err(OpenError::NotFound {
                name: format!("that of {address}"),
                available: interfaces
                    .iter()
                    .map(NetDevice::device_name)
                    .collect::<Vec<_>>()
                    .join(", "),
            }),
        }
    }

    /// Opens the device from which the kernel would send to `peer`.
    ///
    /// The unspecified address (`0.0.0.0`, `[::]`) is refused, because no host has it. The kernel would name loopback,
    /// and a server that listens there in the belief that it listens everywhere is reachable only from this host. A
    /// server that wants all devices opens each of [`Device::list`].
    #[doc(alias = "rdma_resolve_addr")]
    pub fn toward(peer: IpAddr) -> Result<Self, OpenError> {
        let refuse = |error| OpenError::Io {
            name: format!("a device toward {peer}"),
            error,
        };
        if peer.is_unspecified() {
            let problem = "that is no peer's address. Name a peer, or an address of this host with `Device::for_addr`; to listen on \
                           all devices, open each of `Device::list` and listen on it";
            return Err(refuse(io::Error::new(io::ErrorKind::InvalidInput, problem)));
        }
        let source = Self::address_toward(peer).map_err(refuse)?;
        Self::for_addr(source)
    }

    /// The address of this host from which the kernel would send to `peer`. Opens nothing.
    pub fn address_toward(peer: IpAddr) -> io::Result<IpAddr> {
        crate::route::source_of((peer, 0).into())
    }

    /// Why a request of a queue pair ended with this status. Without a status: why the queue pair failed, or what it
    /// last refused or dropped of its peer. `None` if nothing went wrong. For programs that poll; an awaited request
    /// brings its explanation along ([`RequestFailed::explanation`](crate::RequestFailed::explanation)).
    #[doc(alias("ibv_wc_status_str", "vendor_err"))]
    pub fn explain(&self, qpn: Qpn, status: Option<Status>) -> Option<Explanation> {
        self.engine.explain(qpn, status)
    }

    /// The interface it stands on.
    #[doc(alias("ibv_get_device_name", "ibv_device"))]
    pub fn netdev(&self) -> &NetDevice {
        self.engine.netdev()
    }

    /// Its addresses; the position is the GID index.
    #[doc(alias("ibv_query_gid", "ibv_query_gid_table"))]
    pub fn gids(&self) -> &[GidEntry] {
        self.engine.gids()
    }

    /// The GID table that verbs programs (`ibv_query_gid`) see: for each index the position in [`gids`](Self::gids).
    pub fn verbs_gid_table(&self) -> Vec<usize> {
        self.engine.verbs_gid_table()
    }

    /// The GID index of one of its addresses.
    pub(crate) fn gid_index(&self, ip: IpAddr) -> Option<u8> {
        let index = self.gids().iter().position(|gid| gid.address.ip == ip)?;
        u8::try_from(index).ok()
    }

    /// The largest path MTU its interface carries.
    #[doc(alias = "ibv_query_port")]
    pub fn port_mtu(&self) -> PathMtu {
        self.engine.config().port_mtu
    }

    /// A new protection domain, another one with each call: make one, and clone it.
    ///
    /// Memory and queue pairs of different domains do not go together. A lease of another domain than the queue pair's is not refused
    /// when it is posted, since that would be one more comparison for each request: it completes with [`Status::LocalProtection`], and its
    /// explanation says that the domains differ.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn domain(&self) -> Domain {
        Domain {
            device: self.clone(),
            pd: self.engine.alloc_pd(),
        }
    }

    /// For each address, by GID index, whether this process has a socket at UDP port 4791, where packets of other hosts
    /// arrive. If another user has the port, that user's processes pass on what is for this one.
    pub fn port_states(&self) -> Vec<PortState> {
        self.engine.port_states()
    }

    /// Its counters so far: of the NIC, and of its sockets.
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
            kept_descriptors: usage.kept_descriptors,
            connections: usage.connections.connections,
            listeners: usage.connections.listeners,
        }
    }

    /// Waits for an asynchronous event, at most `timeout` (for ever without one).
    #[doc(alias = "ibv_get_async_event")]
    pub fn wait_event(&self, timeout: Option<Duration>) -> io::Result<Option<Event>> {
        self.engine.events().wait(timeout)
    }

    /// Asynchronous events, as a stream. Each event goes to one of the waiting tasks and threads.
    ///
    /// ```no_run
    /// use futures_util::StreamExt;
    ///
    /// # async fn watch() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut events = nonic::Device::open("roce_lo")?.events();
    /// while let Some(event) = events.next().await {
    ///     println!("{event:?}");
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_get_async_event")]
    pub fn events(&self) -> Events {
        Events { device: self.clone() }
    }
}

/// The asynchronous events of a [`Device`], without end.
///
/// ```
/// use futures_util::{FutureExt, StreamExt};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut events = nonic::Device::open("roce_lo")?.events();
/// // Those that have happened so far; `events.next().await` waits for the next one.
/// while let Some(Some(event)) = events.next().now_or_never() {
///     println!("{event:?}");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Events {
    device: Device,
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.device.engine.events().poll(context).map(Some)
    }
}

/// What a device holds.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = nonic::Device::open("roce_lo")?;
/// let domain = device.domain();
/// let lease = domain.lease(4096)?;
/// assert_eq!(device.usage().memory_keys, 1);
/// drop(lease);
/// assert_eq!(device.usage().memory_keys, 0);
/// # Ok(()) }
/// ```
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
    /// Descriptors that were made when they were first needed, and are kept: for shared memory with processes of this host, as
    /// long as those live, and for threads that wait for completions, as long as their queue is there.
    pub kept_descriptors: usize,
}

/// A protection domain: memory and queue pairs of one cannot be used with those of another.
///
/// ```
/// use nonic::{Device, Rc};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let domain = Device::open("roce_lo")?.domain();
/// let buffer = domain.lease(4096)?;
/// let pair = domain.pair::<Rc>()?;
/// # Ok(()) }
/// ```
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
}
