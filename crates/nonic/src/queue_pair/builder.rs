//! Making a queue pair and bringing it to RTS.

use super::connecting::{ConnectOptions, ConnectSteps, FetchLimits};
use super::handle::QpHandle;
use super::{QueuePair, ReceiveQueue, SendQueue};
use crate::completion_queue::CompletionQueue;
use crate::device::{Device, Domain};
use crate::endpoint::Endpoint;
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::transport::{Connected, Datagram, Transport};
use nonic_core::{CreateError, ModifyError, Psn, QpAttributes, QpCapacity, QpInit, QpState, Service};
use nonic_engine::netdev::Wire;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// A queue pair to be made.
///
/// ```
/// use nonic::{QpCapacity, Rc};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// let capacity = QpCapacity {
///     max_send_wr: 1024,
///     ..QpCapacity::default()
/// };
/// let pair = domain.pair_builder::<Rc>().capacity(capacity).build()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is made until `build`"]
pub struct QueuePairBuilder<T: Transport> {
    domain: Domain,
    /// Without one it gets one of its own.
    send_queue: Option<CompletionQueue>,
    recv_queue: Option<CompletionQueue>,
    srq: Option<SharedReceiveQueue>,
    capacity: QpCapacity,
    gid_index: Option<u8>,
    qkey: Option<u32>,
    transport: PhantomData<T>,
}

impl Domain {
    /// A queue pair with default sizes, completing to `queue`.
    #[doc(alias("ibv_create_qp", "rdma_create_qp"))]
    pub fn queue_pair<T: Transport>(&self, queue: &CompletionQueue) -> Result<Prepared<T>, CreateError> {
        self.queue_pair_builder(queue).build()
    }

    /// A queue pair to be adjusted before it is made.
    #[doc(alias("ibv_create_qp", "rdma_create_qp"))]
    pub fn queue_pair_builder<T: Transport>(&self, queue: &CompletionQueue) -> QueuePairBuilder<T> {
        QueuePairBuilder::new(self, Some(queue.clone()))
    }

    /// A queue pair with default sizes and a completion queue of its own, for requests that are waited for one by one: see
    /// [`QueuePair`].
    #[doc(alias("ibv_create_qp", "rdma_create_qp"))]
    pub fn pair<T: Transport>(&self) -> Result<Prepared<T>, CreateError> {
        self.pair_builder().build()
    }

    /// The same, to be adjusted before it is made, or to be connected by address and port.
    #[doc(alias("ibv_create_qp", "rdma_create_qp"))]
    pub fn pair_builder<T: Transport>(&self) -> QueuePairBuilder<T> {
        QueuePairBuilder::new(self, None)
    }
}

impl<T: Transport> QueuePairBuilder<T> {
    fn new(domain: &Domain, queue: Option<CompletionQueue>) -> Self {
        QueuePairBuilder {
            domain: domain.clone(),
            send_queue: queue.clone(),
            recv_queue: queue,
            srq: None,
            capacity: QpCapacity::default(),
            gid_index: None,
            qkey: None,
            transport: PhantomData,
        }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.domain.device
    }

    /// Completes receives elsewhere than sends.
    #[doc(alias = "recv_cq")]
    pub fn receive_completions(mut self, queue: &CompletionQueue) -> Self {
        self.recv_queue = Some(queue.clone());
        self
    }

    /// Draws receives from a shared queue; they complete to the queue's own completion queue.
    pub fn shared_receives(mut self, srq: &SharedReceiveQueue) -> Self {
        self.recv_queue = Some(srq.queue.clone());
        self.srq = Some(srq.clone());
        self
    }

    /// Sets the queue sizes.
    #[doc(alias = "ibv_qp_cap")]
    pub fn capacity(mut self, capacity: QpCapacity) -> Self {
        self.capacity = capacity;
        self
    }

    /// Uses another of the device's addresses than the first.
    #[doc(alias = "sgid_index")]
    pub fn gid_index(mut self, index: u8) -> Self {
        self.gid_index = Some(index);
        self
    }

    /// With room for a probe beside as many requests of the program's as it asked for, if the connection is probed.
    pub(crate) fn room_for_probes(mut self, options: &ConnectOptions) -> Self {
        let most = self.domain.device.engine.config().max_wr;
        if options.keepalive.is_some() && self.capacity.max_send_wr < most {
            self.capacity.max_send_wr += 1;
        }
        self
    }

    pub(crate) fn chosen_gid(&self) -> Option<u8> {
        self.gid_index
    }

    /// Makes it.
    #[doc(alias = "ibv_create_qp")]
    pub fn build(self) -> Result<Prepared<T>, CreateError> {
        let engine = &self.domain.device.engine;
        let gid_index = self.gid_index.unwrap_or(0);
        let gid = engine
            .gids()
            .get(usize::from(gid_index))
            .ok_or(CreateError::Limit("the GID index"))?;
        let ip = gid.address.ip;
        let srq = self.srq.map(|srq| srq.srq);
        let send_queue = self
            .send_queue
            .unwrap_or_else(|| CompletionQueue::new(&self.domain.device, 0));
        let recv_queue = self.recv_queue.unwrap_or_else(|| send_queue.clone());
        let qpn = engine.create_qp(QpInit {
            service: T::SERVICE,
            pd: self.domain.pd,
            send_cq: send_queue.shared.core.clone(),
            recv_cq: recv_queue.shared.core.clone(),
            srq: srq.clone(),
            capacity: self.capacity,
            // Every buffer comes back in a completion.
            signal_all: true,
        })?;
        let psn = engine.random_psn();
        let qkey = match (T::SERVICE, self.qkey) {
            (Service::Ud, Some(qkey)) => qkey,
            (Service::Ud, None) => engine.random_psn().value(),
            _ => 0,
        };
        let endpoint = Endpoint {
            ip,
            qpn,
            psn,
            mtu: engine.config().port_mtu,
            qkey,
        };
        // Those of a shared queue are counted there.
        let receives = if srq.is_some() {
            0
        } else {
            self.capacity.max_recv_wr
        };
        let handle = Arc::new(QpHandle {
            words: Mutex::default(),
            domain: self.domain,
            qpn,
            send_work_queue: send_queue.open_work_queue(Some(qpn), self.capacity.max_send_wr),
            send_queue,
            receive_work_queue: recv_queue.open_work_queue(Some(qpn), receives),
            recv_queue,
            endpoint,
            gid_index,
            srq,
        });
        Ok(Prepared {
            handle,
            transport: PhantomData,
        })
    }
}

impl<T: Datagram> QueuePairBuilder<T> {
    /// Takes datagrams with this Q_Key instead of a random one, which only peers know that got the endpoint.
    ///
    /// Programs on Linux's rdma_cm all use [`RDMA_UDP_QKEY`](crate::RDMA_UDP_QKEY).
    pub fn qkey(mut self, qkey: u32) -> Self {
        self.qkey = Some(qkey);
        self
    }
}

/// A queue pair that is not connected yet. Receives can be posted already.
///
/// ```
/// use nonic::Rc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// let pair = domain.pair::<Rc>()?;
/// println!("{}", pair.endpoint()); // for the peer
/// # let from_the_peer = pair.endpoint().to_string();
/// let pair = pair.connect(&from_the_peer.parse()?)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Prepared<T: Transport> {
    handle: Arc<QpHandle>,
    transport: PhantomData<T>,
}

impl<T: Transport> Prepared<T> {
    /// What the peer needs to connect to it.
    pub fn endpoint(&self) -> Endpoint {
        self.handle.endpoint
    }

    fn modify(&self, set: &QpAttributes) -> Result<(), ModifyError> {
        self.handle.domain.device.engine.modify_qp(self.handle.qpn, set)
    }

    fn into_pair(self) -> QueuePair<T> {
        let sq = SendQueue::new(Arc::clone(&self.handle));
        QueuePair {
            sq,
            rq: ReceiveQueue::new(self.handle),
        }
    }
}

impl<T: Connected> Prepared<T> {
    /// Connects to a peer's endpoint. The peer must do the same with ours.
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect(self, peer: &Endpoint) -> Result<QueuePair<T>, ModifyError> {
        self.connect_with(peer, &ConnectOptions::default())
    }

    /// The same, with other than the usual options.
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect_with(
        self,
        peer: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<QueuePair<T>, ModifyError> {
        let own = self.handle.endpoint.psn;
        let fetches = FetchLimits::both(options.fetches);
        self.connect_from(peer, options, fetches, own, peer.psn)
    }

    /// The same between sides that choose each other's first number, as the connection manager's messages have it.
    pub(crate) fn connect_by_cm(
        self,
        peer: &Endpoint,
        options: &ConnectOptions,
        fetches: FetchLimits,
    ) -> Result<QueuePair<T>, ModifyError> {
        if self.handle.domain.device.netdev().wire == Wire::Iwarp {
            // The connection itself has connected it, or will.
            return Ok(self.into_pair());
        }
        let own = self.handle.endpoint.psn;
        self.connect_from(peer, options, fetches, peer.psn, own)
    }

    /// Says what the peer may do, before there is one: over iWARP it may send as soon as it has accepted.
    pub(crate) fn permit(&self, options: &ConnectOptions) -> Result<(), ModifyError> {
        match self.handle.domain.device.netdev().wire {
            Wire::Roce => Ok(()),
            Wire::Iwarp => self.modify(&QpAttributes {
                access: Some(options.access),
                ..QpAttributes::default()
            }),
        }
    }

    fn connect_from(
        self,
        peer: &Endpoint,
        options: &ConnectOptions,
        fetches: FetchLimits,
        first_sent: Psn,
        first_received: Psn,
    ) -> Result<QueuePair<T>, ModifyError> {
        let reliable = matches!(T::SERVICE, Service::Rc | Service::Xrc);
        ConnectSteps {
            engine: &self.handle.domain.device.engine,
            own: &self.handle.endpoint,
            gid_index: self.handle.gid_index,
            options,
            fetches: reliable.then_some(fetches),
            first_sent,
            first_received,
        }
        .take(peer)?;
        Ok(self.into_pair())
    }
}

impl<T: Datagram> Prepared<T> {
    /// Starts sending and receiving.
    #[doc(alias = "ibv_modify_qp")]
    pub fn activate(self) -> Result<QueuePair<T>, ModifyError> {
        self.modify(&QpAttributes {
            state: Some(QpState::Init),
            qkey: Some(self.handle.endpoint.qkey),
            pkey_index: Some(0),
            port: Some(1),
            ..QpAttributes::default()
        })?;
        self.modify(&QpAttributes {
            state: Some(QpState::Rtr),
            ..QpAttributes::default()
        })?;
        self.modify(&QpAttributes {
            state: Some(QpState::Rts),
            sq_psn: Some(self.handle.endpoint.psn),
            ..QpAttributes::default()
        })?;
        Ok(self.into_pair())
    }
}
