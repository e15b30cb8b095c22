//! The send half of a queue pair.

use super::handle::QpHandle;
use crate::completion::Completion;
use crate::endpoint::Endpoint;
use crate::memory::{Buffers, RemoteSlice};
use crate::refused::Refused;
use crate::transport::{Connected, Datagram, Reliable, Transport};
use nonic_core::{
    Data, Destination, ModifyError, PostError, QpAttributes, SendFlags, SendOp, SendRequest, Sge,
};
use smallvec::SmallVec;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

/// Where sends, writes, reads and atomics are posted.
///
/// Every request is given an `id` of your choice and yields exactly one completion with that id, in the
/// order of posting, which returns the buffers.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let queue = device.completion_queue(16)?;
/// # let pair = domain.queue_pair::<nonic::Rc>(&queue)?;
/// # let here = pair.endpoint();
/// # let mut pair = pair.connect(&here)?;
/// # pair.rq.recv(1, domain.lease(64)?)?;
/// pair.sq.send(2, domain.lease_from(b"hello")?)?;
/// let done = queue.wait(None)?.expect("no time limit was given");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SendQueue<T: Transport> {
    pub(super) handle: Arc<QpHandle>,
    /// Requests of a batch, until it is handed over.
    held: Vec<Held>,
    batching: bool,
    /// The peer's receive queue that requests are for, where they must name one.
    pub(super) named: Option<Destination>,
    transport: PhantomData<T>,
}

/// A request that waits for the rest of its batch.
#[derive(Debug)]
struct Held {
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    destination: Option<Destination>,
    sges: SmallVec<[Sge; 4]>,
}

impl Held {
    fn request(&self) -> SendRequest<'_> {
        SendRequest {
            wr_id: self.wr_id,
            op: self.op,
            data: Data::Sges(&self.sges),
            flags: self.flags,
            destination: self.destination,
        }
    }
}

/// A batch being made. A panic on the way abandons its requests: they were not posted.
struct Batching<'a, T: Transport> {
    queue: &'a mut SendQueue<T>,
    /// Whether a batch was being made already, which this one is then a part of.
    outer: bool,
}

impl<T: Transport> Drop for Batching<'_, T> {
    fn drop(&mut self) {
        self.queue.batching = self.outer;
        if !self.outer {
            for held in self.queue.held.drain(..) {
                self.queue.handle.send_queue.withdraw(held.wr_id);
            }
        }
    }
}

/// Requests of a batch that were not taken: the one the NIC refused and those after it, which it never saw.
///
/// ```
/// use nonic::{PostError, QpCapacity, Rc};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let (domain, queue) = (device.domain(), device.completion_queue(16)?);
/// let capacity = QpCapacity { max_send_wr: 2, ..QpCapacity::default() };
/// let pair = domain.queue_pair_builder::<Rc>(&queue).capacity(capacity).build()?;
/// # let here = pair.endpoint();
/// # let mut pair = pair.connect(&here)?;
/// let messages = [domain.lease(8)?, domain.lease(8)?, domain.lease(8)?];
/// let refused = pair.sq.batch(|sq| {
///     for (id, message) in (0..).zip(messages) {
///         sq.send(id, message).expect("within a batch, refusals come at its end");
///     }
/// }).expect_err("there is room for two");
/// assert_eq!((refused.error, refused.requests.len()), (PostError::SendQueueFull, 1));
/// # Ok(()) }
/// ```
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct RefusedBatch {
    /// Why.
    #[source]
    pub error: PostError,
    /// The buffers of each, in order. Those of the requests before are in completions, or will be.
    pub requests: Vec<Buffers>,
}

/// As a sentence: it is what a program prints that ends with it.
impl fmt::Debug for RefusedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.requests.len();
        write!(f, "{self} ({:?}, {count} requests of a batch)", self.error)
    }
}

/// Where a datagram goes.
///
/// ```
/// use nonic::{Peer, Ud};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// let (left, right) = (domain.pair::<Ud>()?.activate()?, domain.pair::<Ud>()?.activate()?);
/// let peer = Peer::from(&right.endpoint());
/// left.send_to(domain.lease_from(b"hello")?, peer).wait()?;
/// # Ok(()) }
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    ip: IpAddr,
    qpn: nonic_core::Qpn,
    qkey: u32,
}

impl From<&Endpoint> for Peer {
    fn from(endpoint: &Endpoint) -> Self {
        Peer {
            ip: endpoint.ip,
            qpn: endpoint.qpn,
            qkey: endpoint.qkey,
        }
    }
}

impl Peer {
    pub(crate) fn new(ip: IpAddr, qpn: nonic_core::Qpn, qkey: u32) -> Self {
        Peer { ip, qpn, qkey }
    }

    /// The sender of a datagram, if its queue pair takes datagrams with this Q_Key. The network header in front of the
    /// payload says where it came from; `None` if the completion is of no datagram.
    #[doc(alias("ibv_create_ah_from_wc", "ibv_init_ah_from_wc"))]
    pub fn sender(datagram: &Completion, qkey: u32) -> Option<Self> {
        let qpn = datagram.source?;
        let header = datagram.buffers.first()?.first_chunk::<40>()?;
        let ip = match header[0] >> 4 {
            6 => IpAddr::from(<[u8; 16]>::try_from(&header[8..24]).ok()?),
            // An IPv4 header takes the second half only.
            _ if header[20] >> 4 == 4 => IpAddr::from(<[u8; 4]>::try_from(&header[32..36]).ok()?),
            _ => return None,
        };
        Some(Peer { ip, qpn, qkey })
    }

    /// Every member of a multicast group that has this Q_Key.
    pub fn group(ip: IpAddr, qkey: u32) -> Self {
        Peer {
            ip,
            qpn: nonic_core::Qpn::MULTICAST,
            qkey,
        }
    }
}

impl<T: Transport> SendQueue<T> {
    /// Limits the rate at which requests leave; `None` is as fast as they can, which is how a queue pair begins.
    ///
    /// Reliable connections find out by themselves what the network takes. Unreliable ones and datagrams do not: a
    /// program that sends many of them over a network of known speed sets the limit here. Rounded down to kilobits, up
    /// to 4.29 Tbit/s.
    ///
    /// ```
    /// # fn f(mut pair: nonic::QueuePair<nonic::Uc>) -> Result<(), nonic::ModifyError> {
    /// pair.sq.limit_rate(Some(100_000_000))?; // bits per second
    /// # Ok(()) }
    /// ```
    #[doc(alias("ibv_modify_qp_rate_limit", "IBV_QP_RATE_LIMIT"))]
    pub fn limit_rate(&mut self, bits_per_second: Option<u64>) -> Result<(), ModifyError> {
        let kilobits = |bits: u64| u32::try_from(bits / 1000).unwrap_or(u32::MAX).max(1);
        let set = QpAttributes {
            rate_limit: Some(bits_per_second.map_or(0, kilobits)),
            ..QpAttributes::default()
        };
        self.handle.domain.device.engine.modify_qp(self.handle.qpn, &set)
    }

    pub(super) fn new(handle: Arc<QpHandle>) -> Self {
        SendQueue {
            handle,
            held: Vec::new(),
            batching: false,
            named: None,
            transport: PhantomData,
        }
    }

    /// Hands the requests that `post` makes to the NIC together, so that their packets can leave together:
    /// many small messages cost one system call instead of one each.
    ///
    /// ```
    /// # fn f(mut pair: nonic::QueuePair<nonic::Rc>, leases: Vec<nonic::Lease>) -> Result<(), nonic::RefusedBatch> {
    /// pair.sq.batch(|sq| {
    ///     for (id, lease) in leases.into_iter().enumerate() {
    ///         sq.send(id as u64, lease).expect("within a batch, refusals come at its end");
    ///     }
    /// })
    /// # }
    /// ```
    ///
    /// Within `post`, only what needs no NIC to see is refused on the spot. The request that the NIC refuses, and all
    /// that follow it, come back from the batch as a whole.
    #[doc(alias("ibv_wr_start", "ibv_wr_complete"))]
    pub fn batch<R>(&mut self, post: impl FnOnce(&mut Self) -> R) -> Result<R, RefusedBatch> {
        let batching = Batching {
            outer: std::mem::replace(&mut self.batching, true),
            queue: self,
        };
        let answer = post(batching.queue);
        if !batching.outer {
            batching.queue.post_held()?;
        }
        Ok(answer)
    }

    /// Posts what was held, as far as there is room for it.
    fn post_held(&mut self) -> Result<(), RefusedBatch> {
        let QpHandle {
            domain,
            qpn,
            send_queue,
            send_work_queue,
            ..
        } = &*self.handle;
        let room = self.held.len() - send_queue.excess(*send_work_queue, self.held.len());
        let requests: SmallVec<[SendRequest<'_>; 32]> = self.held[..room].iter().map(Held::request).collect();
        let posted = domain.device.engine.post_sends(*qpn, &requests);
        drop(requests);
        let refused = match posted {
            Err((index, error)) => Some((index, error)),
            Ok(()) if room < self.held.len() => Some((room, PostError::SendQueueFull)),
            Ok(()) => None,
        };
        let outcome = refused.map_or(Ok(()), |(index, error)| {
            let refused = self.held.drain(index..);
            let requests = refused.map(|held| send_queue.withdraw(held.wr_id)).collect();
            Err(RefusedBatch { error, requests })
        });
        self.held.clear();
        outcome
    }

    /// From now on, requests are for this receive queue of the peer.
    pub(crate) fn name_receive_queue(&mut self, number: u32) {
        self.named = Some(Destination::srq(number));
    }

    fn post(
        &mut self,
        id: u64,
        op: SendOp,
        flags: SendFlags,
        destination: Option<Destination>,
        buffers: Buffers,
    ) -> Result<(), Refused> {
        let destination = destination.or(self.named);
        let QpHandle {
            domain,
            qpn,
            send_queue,
            send_work_queue,
            ..
        } = &*self.handle;
        let sges = buffers.sges();
        if self.batching {
            self.held.push(Held {
                wr_id: send_queue.admit_to_batch(id, *send_work_queue, buffers),
                op,
                flags,
                destination,
                sges,
            });
            return Ok(());
        }
        let wr_id = send_queue
            .admit(id, *send_work_queue, buffers)
            .map_err(|buffers| Refused {
                error: PostError::SendQueueFull,
                buffers,
            })?;
        let request = SendRequest {
            wr_id,
            op,
            data: Data::Sges(&sges),
            flags,
            destination,
        };
        match domain.device.engine.post_send(*qpn, &request) {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused {
                error,
                buffers: send_queue.withdraw(wr_id),
            }),
        }
    }

    fn post_checked(
        &mut self,
        id: u64,
        op: SendOp,
        remote: &RemoteSlice,
        buffers: Buffers,
    ) -> Result<(), Refused> {
        if let Some(error) = beyond(remote, &buffers) {
            return Err(Refused { error, buffers });
        }
        self.post(id, op, SendFlags::empty(), None, buffers)
    }
}

/// Why buffers do not fit the remote memory that they are for, if they do not.
pub(super) fn beyond(remote: &RemoteSlice, buffers: &Buffers) -> Option<PostError> {
    let (asked, there) = (buffers.bytes(), remote.len);
    (asked > there).then_some(PostError::BeyondRemote { asked, there })
}

impl<T: Connected> SendQueue<T> {
    /// Sends a message into the peer's next receive.
    #[doc(alias("ibv_post_send", "IBV_WR_SEND"))]
    pub fn send(&mut self, id: u64, buffers: impl Into<Buffers>) -> Result<(), Refused> {
        self.post(id, SendOp::Send, SendFlags::empty(), None, buffers.into())
    }

    /// The same, with 32 bits for the peer's completion, waking it if it waits for solicited ones.
    #[doc(alias("ibv_post_send", "IBV_WR_SEND_WITH_IMM"))]
    pub fn send_with_immediate(
        &mut self,
        id: u64,
        buffers: impl Into<Buffers>,
        immediate: u32,
    ) -> Result<(), Refused> {
        self.post(
            id,
            SendOp::SendWithImmediate(immediate),
            SendFlags::SOLICITED,
            None,
            buffers.into(),
        )
    }

    /// Writes to the peer's memory. Its program is not involved.
    #[doc(alias("ibv_post_send", "IBV_WR_RDMA_WRITE"))]
    pub fn write(
        &mut self,
        id: u64,
        buffers: impl Into<Buffers>,
        remote: RemoteSlice,
    ) -> Result<(), Refused> {
        self.post_checked(id, SendOp::Write(remote.address()), &remote, buffers.into())
    }

    /// Writes to the peer's memory and consumes one of its receives to say so.
    #[doc(alias("ibv_post_send", "IBV_WR_RDMA_WRITE_WITH_IMM"))]
    pub fn write_with_immediate(
        &mut self,
        id: u64,
        buffers: impl Into<Buffers>,
        remote: RemoteSlice,
        immediate: u32,
    ) -> Result<(), Refused> {
        let op = SendOp::WriteWithImmediate(remote.address(), immediate);
        self.post_checked(id, op, &remote, buffers.into())
    }
}

impl<T: Reliable> SendQueue<T> {
    /// Reads the peer's memory. Its program is not involved.
    ///
    /// ```compile_fail,E0599
    /// # fn f(mut pair: nonic::QueuePair<nonic::Ud>, lease: nonic::Lease, remote: nonic::RemoteSlice) {
    /// pair.sq.read(1, lease, remote); // datagrams cannot read
    /// # }
    /// ```
    #[doc(alias("ibv_post_send", "IBV_WR_RDMA_READ"))]
    pub fn read(&mut self, id: u64, buffers: impl Into<Buffers>, remote: RemoteSlice) -> Result<(), Refused> {
        self.post_checked(id, SendOp::Read(remote.address()), &remote, buffers.into())
    }

    /// Sends a message and revokes one of the peer's keys.
    #[doc(alias("ibv_post_send", "IBV_WR_SEND_WITH_INV"))]
    pub fn send_with_invalidate(
        &mut self,
        id: u64,
        buffers: impl Into<Buffers>,
        rkey: u32,
    ) -> Result<(), Refused> {
        self.post(
            id,
            SendOp::SendWithInvalidate(rkey),
            SendFlags::empty(),
            None,
            buffers.into(),
        )
    }

    /// Adds to the peer's 8-byte word; the old value lands in `buffer`, of 8 bytes, in native byte order.
    #[doc(alias("ibv_post_send", "IBV_WR_ATOMIC_FETCH_AND_ADD"))]
    pub fn fetch_add(
        &mut self,
        id: u64,
        buffer: impl Into<Buffers>,
        remote: RemoteSlice,
        add: u64,
    ) -> Result<(), Refused> {
        let op = SendOp::FetchAdd {
            remote: remote.address(),
            add,
        };
        self.post_checked(id, op, &remote, buffer.into())
    }

    /// Replaces the peer's 8-byte word by `swap` if it equals `compare`; the old value lands in `buffer`.
    #[doc(alias("ibv_post_send", "IBV_WR_ATOMIC_CMP_AND_SWP"))]
    pub fn compare_swap(
        &mut self,
        id: u64,
        buffer: impl Into<Buffers>,
        remote: RemoteSlice,
        compare: u64,
        swap: u64,
    ) -> Result<(), Refused> {
        let op = SendOp::CompareSwap {
            remote: remote.address(),
            compare,
            swap,
        };
        self.post_checked(id, op, &remote, buffer.into())
    }
}

impl<T: Datagram> SendQueue<T> {
    /// Sends a datagram, of at most the path MTU.
    #[doc(alias("ibv_post_send", "IBV_WR_SEND"))]
    pub fn send_to(
        &mut self,
        id: u64,
        buffers: impl Into<Buffers>,
        peer: impl Into<Peer>,
    ) -> Result<(), Refused> {
        let destination = self.destination(peer.into());
        self.post(
            id,
            SendOp::Send,
            SendFlags::empty(),
            Some(destination),
            buffers.into(),
        )
    }

    /// The same, with 32 bits for the peer's completion.
    #[doc(alias("ibv_post_send", "IBV_WR_SEND_WITH_IMM"))]
    pub fn send_to_with_immediate(
        &mut self,
        id: u64,
        buffers: impl Into<Buffers>,
        peer: impl Into<Peer>,
        immediate: u32,
    ) -> Result<(), Refused> {
        let destination = self.destination(peer.into());
        let op = SendOp::SendWithImmediate(immediate);
        self.post(id, op, SendFlags::SOLICITED, Some(destination), buffers.into())
    }

    pub(super) fn destination(&self, Peer { ip, qpn, qkey }: Peer) -> Destination {
        Destination {
            gid_index: self.handle.gid_index,
            ip,
            qpn,
            qkey,
        }
    }
}
