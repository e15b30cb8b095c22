//! Extended reliable connections (XRC): one connection between two processes reaches every receive queue of the other one.
//!
//! With RC, a process that talks to the *n* threads of another needs *n* queue pairs, each with receives of its own.
//! With XRC it needs one: each request names its receive queue. The connection has two halves, made at different ends:
//! an *initiator* that only sends, a [`QueuePair<Xrc>`](crate::QueuePair), and a [target](XrcTarget) that only
//! receives. The ends connect by exchanging endpoints; connecting by address and port is refused.

use crate::completion_queue::CompletionQueue;
use crate::device::{Device, Domain};
use crate::endpoint::Endpoint;
use crate::memory::Buffers;
use crate::queue_pair::{ConnectOptions, ConnectSteps, FetchLimits, QueuePair};
use crate::refused::Refused;
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::transport::Xrc;
use nonic_core::{CreateError, ModifyError, QpState, Qpn};
use std::sync::Arc;

/// Which receive queues the connections of a process lead to: those of the same domain.
///
/// ```
/// use nonic::{Device, Xrc};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Device::open("roce_lo")?;
/// let domain = device.domain();
///
/// // The side that receives: two queues, one for each of its threads, and one target.
/// let reachable = device.xrc_domain();
/// let queue = device.completion_queue(0)?;
/// let first = reachable.receive_queue(&domain, &queue, 16)?;
/// let second = reachable.receive_queue(&domain, &queue, 16)?;
/// first.recv(1, domain.lease(64)?)?;
/// second.recv(2, domain.lease(64)?)?;
/// let target = reachable.target()?;
///
/// // The side that sends: one queue pair for both.
/// let initiator = domain.pair::<Xrc>()?;
/// let (here, there) = (initiator.endpoint(), target.endpoint());
/// let (initiator, _target) = (initiator.connect(&there)?, target.connect(&here)?);
/// initiator.toward(second.number()).send_bytes(b"to the second").wait()?;
/// initiator.toward(first.number()).send_bytes(b"to the first").wait()?;
/// for id in [2, 1] {
///     assert_eq!(queue.wait(None)?.expect("no time limit was given").id, id);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct XrcDomain {
    device: Device,
    number: nonic_core::XrcDomain,
}

impl Device {
    /// A new domain of receive queues that extended connections lead to.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn xrc_domain(&self) -> XrcDomain {
        XrcDomain {
            device: self.clone(),
            number: self.engine.alloc_xrc_domain(),
        }
    }
}

impl XrcDomain {
    /// A receive queue, whose receives complete to `queue`. Peers that name it use memory of `domain`.
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn receive_queue(
        &self,
        domain: &Domain,
        queue: &CompletionQueue,
        capacity: usize,
    ) -> Result<XrcReceiveQueue, CreateError> {
        let engine = &self.device.engine;
        let max_sge = engine.config().max_sge as usize;
        let core = &queue.shared.core;
        let (srq, number) = engine.create_xrc_srq(self.number, domain.pd, core, capacity, max_sge)?;
        let shared = SharedReceiveQueue::new(domain, queue, srq, capacity);
        Ok(XrcReceiveQueue {
            named: Arc::new(Named { shared, number }),
        })
    }

    /// The half of a connection that receives, for whichever queue of the domain a request names.
    #[doc(alias("ibv_create_qp_ex", "IBV_QPT_XRC_RECV"))]
    pub fn target(&self) -> Result<PreparedTarget, CreateError> {
        let engine = &self.device.engine;
        let gid = engine.gids().first().ok_or(CreateError::Limit("the GID index"))?;
        let ip = gid.address.ip;
        let qpn = engine.create_xrc_target(self.number)?;
        let endpoint = Endpoint {
            ip,
            qpn,
            psn: engine.random_psn(),
            mtu: engine.config().port_mtu,
            qkey: 0,
        };
        Ok(PreparedTarget(XrcTarget {
            device: self.device.clone(),
            endpoint,
        }))
    }
}

/// A receive queue that peers name in their requests. Clones are handles to the same one; with the last, peers that name it are refused.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let queue = device.completion_queue(0)?;
/// # let patience = Some(std::time::Duration::from_secs(10));
/// let reachable = device.xrc_domain();
/// let receives = reachable.receive_queue(&domain, &queue, 16)?;
/// receives.recv(1, domain.lease(64)?)?;
/// println!("peers name it {}, and {} receive waits", receives.number(), receives.len());
/// # let _ = patience;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct XrcReceiveQueue {
    named: Arc<Named>,
}

#[derive(Debug)]
struct Named {
    shared: SharedReceiveQueue,
    number: u32,
}

impl Drop for Named {
    fn drop(&mut self) {
        self.shared.domain.device.engine.remove_xrc_srq(self.number);
    }
}

impl XrcReceiveQueue {
    /// The number by which peers name it.
    #[doc(alias = "ibv_get_srq_num")]
    pub fn number(&self) -> u32 {
        self.named.number
    }

    /// Posts a receive; refused, it gives the buffers back.
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn recv(&self, id: u64, buffers: impl Into<Buffers>) -> Result<(), Refused> {
        self.named.shared.recv(id, buffers)
    }

    /// Asks for one [`Event::SrqLimit`](crate::Event::SrqLimit) when fewer than `limit` receives wait.
    #[doc(alias = "ibv_modify_srq")]
    pub fn set_limit(&self, limit: usize) {
        self.named.shared.set_limit(limit);
    }

    /// How many receives wait.
    pub fn len(&self) -> usize {
        self.named.shared.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.named.shared.is_empty()
    }
}

/// A target that is not connected yet.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let queue = device.completion_queue(0)?;
/// # let patience = Some(std::time::Duration::from_secs(10));
/// let target = device.xrc_domain().target()?;
/// # let initiator = domain.pair::<nonic::Xrc>()?;
/// let told = target.endpoint().to_string(); // for the initiator, which tells its own
/// # let from_the_initiator = initiator.endpoint().to_string();
/// let target = target.connect(&from_the_initiator.parse()?)?;
/// # let _ = (target, queue, patience, told);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "it receives nothing until it is connected"]
pub struct PreparedTarget(XrcTarget);

impl PreparedTarget {
    /// What the initiator needs to connect to it.
    pub fn endpoint(&self) -> Endpoint {
        self.0.endpoint
    }

    /// Connects to an initiator's endpoint, which must do the same with ours.
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect(self, peer: &Endpoint) -> Result<XrcTarget, ModifyError> {
        self.connect_with(peer, &ConnectOptions::default())
    }

    /// The same, with other than the usual options.
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect_with(self, peer: &Endpoint, options: &ConnectOptions) -> Result<XrcTarget, ModifyError> {
        let PreparedTarget(target) = self;
        ConnectSteps {
            engine: &target.device.engine,
            own: &target.endpoint,
            gid_index: 0,
            options,
            fetches: Some(FetchLimits::both(options.fetches)),
            first_sent: target.endpoint.psn,
            first_received: peer.psn,
        }
        .take(peer)?;
        Ok(target)
    }
}

/// The half of an extended connection that receives. It has no queues: what comes is for a [`XrcReceiveQueue`] of its domain. The
/// connection ends when it is dropped.
///
/// ```
/// use nonic::{QpState, Xrc};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let queue = device.completion_queue(0)?;
/// # let patience = Some(std::time::Duration::from_secs(10));
/// let (initiator, target) = (domain.pair::<Xrc>()?, device.xrc_domain().target()?);
/// let (here, there) = (initiator.endpoint(), target.endpoint());
/// let (initiator, target) = (initiator.connect(&there)?, target.connect(&here)?);
/// assert_eq!(target.state(), QpState::Rts);
/// # let _ = (initiator, queue, patience);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the connection ends when it is dropped"]
pub struct XrcTarget {
    device: Device,
    endpoint: Endpoint,
}

impl XrcTarget {
    /// Its number.
    #[doc(alias = "qp_num")]
    pub fn qpn(&self) -> Qpn {
        self.endpoint.qpn
    }

    /// Its state: peers and errors can change it at any time.
    #[doc(alias("ibv_query_qp", "ibv_qp_state"))]
    pub fn state(&self) -> QpState {
        // It exists as long as this value.
        self.device.engine.qp_state(self.endpoint.qpn).unwrap_or_default()
    }
}

impl Drop for XrcTarget {
    fn drop(&mut self) {
        self.device.engine.destroy_qp(self.endpoint.qpn);
    }
}

impl QueuePair<Xrc> {
    /// The same queue pair, with its requests directed to one of the peer's receive queues, by number. Until one is
    /// named, requests are refused. READs, WRITEs and atomics name one, too: its protection domain says which memory
    /// they may use.
    #[doc(alias = "ibv_wr_set_xrc_srqn")]
    pub fn toward(&self, receive_queue: u32) -> Self {
        let (mut sq, rq) = self.halves();
        sq.name_receive_queue(receive_queue);
        QueuePair { sq, rq }
    }
}
