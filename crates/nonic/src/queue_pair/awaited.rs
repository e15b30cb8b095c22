//! Requests as futures: what a queue pair offers without request numbers and completion queues.

use super::QueuePair;
use super::handle::QpHandle;
use super::send::{Peer, beyond};
use crate::memory::{BufferSet, Buffers, Lease, MemoryError, RemoteSlice};
use crate::outstanding::Work;
use crate::request::{Pending, Receive, Request, RequestFailed};
use crate::transport::{Connected, Datagram, Reliable, Transport};
use nonic_core::{Destination, Flush, FlushRange, Placement, PostError, SendFlags, SendOp};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

impl<T: Transport> QueuePair<T> {
    /// Receives the next message, into buffers that are long enough for it. Messages fill receives in the order in which these were
    /// made. A datagram needs 40 bytes more than its payload: the network header comes first.
    #[doc(alias = "ibv_post_recv")]
    pub fn recv<B: BufferSet>(&self, buffers: B) -> Receive<B> {
        let handle = &self.sq.handle;
        let buffers = buffers.into();
        Receive::new(match handle.srq {
            Some(_) => Pending::refused(&handle.recv_queue, PostError::SharedReceiveQueue, buffers),
            None => handle.submit(buffers, Work::Receive),
        })
    }

    fn submit(
        &self,
        op: SendOp,
        flags: SendFlags,
        destination: Option<Destination>,
        buffers: Buffers,
    ) -> Pending {
        let work = Work::Send {
            op,
            flags,
            destination: destination.or(self.sq.named),
            inline: None,
        };
        self.sq.handle.submit(buffers, work)
    }

    /// The same with data that is not in registered memory.
    fn submit_inline(&self, op: SendOp, bytes: &[u8]) -> Pending {
        let work = Work::Send {
            op,
            flags: SendFlags::empty(),
            destination: self.sq.named,
            inline: Some(bytes.into()),
        };
        self.sq.handle.submit(Buffers::default(), work)
    }

    fn submit_checked(&self, op: SendOp, remote: &RemoteSlice, buffers: Buffers) -> Pending {
        if let Some(error) = beyond(remote, &buffers) {
            return Pending::refused(&self.sq.handle.send_queue, error, buffers);
        }
        self.submit(op, SendFlags::empty(), None, buffers)
    }
}

impl<T: Connected> QueuePair<T> {
    /// Sends a message into the peer's next receive.
    #[doc(alias("ibv_post_send", "IBV_WR_SEND"))]
    pub fn send<B: BufferSet>(&self, buffers: B) -> Request<B> {
        Request::new(self.submit(SendOp::Send, SendFlags::empty(), None, buffers.into()))
    }

    /// Sends a copy of `bytes`, which need not be registered. As many as the queue pair was made for, usually 512.
    #[doc(alias("ibv_post_send", "IBV_WR_SEND", "IBV_SEND_INLINE"))]
    pub fn send_bytes(&self, bytes: &[u8]) -> Request<()> {
        Request::new(self.submit_inline(SendOp::Send, bytes))
    }

    /// A message with 32 bits that come with it.
    #[doc(alias("ibv_post_send", "IBV_WR_SEND_WITH_IMM"))]
    pub fn send_with_immediate<B: BufferSet>(&self, buffers: B, immediate: u32) -> Request<B> {
        let op = SendOp::SendWithImmediate(immediate);
        Request::new(self.submit(op, SendFlags::SOLICITED, None, buffers.into()))
    }

    /// Writes to the peer's memory. Its program is not involved.
    #[doc(alias("ibv_post_send", "IBV_WR_RDMA_WRITE"))]
    pub fn write<B: BufferSet>(&self, buffers: B, remote: RemoteSlice) -> Request<B> {
        Request::new(self.submit_checked(SendOp::Write(remote.address()), &remote, buffers.into()))
    }

    /// Writes to the peer's memory and consumes one of its receives to say so.
    #[doc(alias("ibv_post_send", "IBV_WR_RDMA_WRITE_WITH_IMM"))]
    pub fn write_with_immediate<B: BufferSet>(
        &self,
        buffers: B,
        remote: RemoteSlice,
        immediate: u32,
    ) -> Request<B> {
        let op = SendOp::WriteWithImmediate(remote.address(), immediate);
        Request::new(self.submit_checked(op, &remote, buffers.into()))
    }
}

impl<T: Reliable> QueuePair<T> {
    /// Sends a message that revokes one of the peer's keys: of exposed memory, or of a window.
    #[doc(alias("ibv_post_send", "IBV_WR_SEND_WITH_INV"))]
    pub fn send_with_invalidate<B: BufferSet>(&self, buffers: B, rkey: u32) -> Request<B> {
        let op = SendOp::SendWithInvalidate(rkey);
        Request::new(self.submit(op, SendFlags::empty(), None, buffers.into()))
    }

    /// Reads the peer's memory. Its program is not involved.
    #[doc(alias("ibv_post_send", "IBV_WR_RDMA_READ"))]
    pub fn read<B: BufferSet>(&self, buffers: B, remote: RemoteSlice) -> Request<B> {
        Request::new(self.submit_checked(SendOp::Read(remote.address()), &remote, buffers.into()))
    }

    /// Adds to the peer's 8-byte word; answers what was there.
    #[doc(alias("ibv_post_send", "IBV_WR_ATOMIC_FETCH_AND_ADD"))]
    pub fn fetch_add(&self, remote: RemoteSlice, add: u64) -> Result<Fetch, MemoryError> {
        let op = SendOp::FetchAdd {
            remote: remote.address(),
            add,
        };
        self.fetch(op, &remote)
    }

    /// Replaces the peer's 8-byte word by `swap` if it equals `compare`; answers what was there.
    #[doc(alias("ibv_post_send", "IBV_WR_ATOMIC_CMP_AND_SWP"))]
    pub fn compare_swap(&self, remote: RemoteSlice, compare: u64, swap: u64) -> Result<Fetch, MemoryError> {
        let op = SendOp::CompareSwap {
            remote: remote.address(),
            compare,
            swap,
        };
        self.fetch(op, &remote)
    }

    /// Replaces the peer's 8-byte word so that no reader sees half of it.
    #[doc(alias("ibv_post_send", "IBV_WR_ATOMIC_WRITE"))]
    pub fn atomic_write(&self, remote: RemoteSlice, value: u64) -> Request<()> {
        Request::new(match remote.len {
            ..8 => Pending::refused(&self.sq.handle.send_queue, PostError::Length, Buffers::default()),
            _ => self.submit_inline(SendOp::AtomicWrite(remote.address()), &value.to_ne_bytes()),
        })
    }

    /// Makes sure that everything on the peer's host can see what was written to a span of its memory before. The
    /// memory must have been exposed with [`Access::FLUSH_GLOBAL`](crate::Access::FLUSH_GLOBAL).
    #[doc(alias = "ibv_post_send")]
    pub fn flush(&self, remote: RemoteSlice) -> Request<()> {
        let op = SendOp::Flush(Flush {
            remote: remote.address(),
            length: u32::try_from(remote.len).unwrap_or(u32::MAX),
            placement: Placement::GLOBAL,
            range: FlushRange::Named,
        });
        Request::new(self.submit(op, SendFlags::empty(), None, Buffers::default()))
    }

    fn fetch(&self, op: SendOp, remote: &RemoteSlice) -> Result<Fetch, MemoryError> {
        let word = self.sq.handle.word()?;
        Ok(Fetch {
            pending: self.submit_checked(op, remote, word.into()),
            handle: Arc::clone(&self.sq.handle),
        })
    }
}

impl<T: Datagram> QueuePair<T> {
    /// Sends a datagram, of at most the path MTU.
    #[doc(alias("ibv_post_send", "IBV_WR_SEND"))]
    pub fn send_to<B: BufferSet>(&self, buffers: B, peer: impl Into<Peer>) -> Request<B> {
        let destination = self.sq.destination(peer.into());
        Request::new(self.submit(
            SendOp::Send,
            SendFlags::empty(),
            Some(destination),
            buffers.into(),
        ))
    }
}

/// An atomic under way. Await it or wait for it: it answers what was in the peer's word before.
///
/// Dropping it does not take it back.
///
/// ```
/// use nonic::Access;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// let counter = domain.lease(8)?.expose(Access::REMOTE_ATOMIC)?;
/// let first = left.fetch_add(counter.remote(), 5)?;
/// let second = left.fetch_add(counter.remote(), 1)?; // both are under way
/// assert_eq!((first.wait()?, second.wait()?), (0, 5));
/// # Ok(()) }
/// ```
#[must_use = "it answers what was there"]
pub struct Fetch {
    pending: Pending,
    handle: Arc<QpHandle>,
}

impl Fetch {
    /// Waits until it is done. The thread drives the NIC meanwhile.
    pub fn wait(self) -> Result<u64, RequestFailed> {
        let done = self.pending.wait(None).expect("no time limit was given")?;
        Ok(self.value(done.buffers))
    }

    /// The same, for at most `timeout`; an atomic that is not done then is returned.
    pub fn wait_within(self, timeout: Duration) -> Result<Result<u64, RequestFailed>, Self> {
        match self.pending.wait(Some(timeout)) {
            Some(done) => Ok(done.map(|done| self.value(done.buffers))),
            None => Err(self),
        }
    }

    fn value(&self, buffers: impl IntoIterator<Item = Lease>) -> u64 {
        let word = buffers.into_iter().next().expect("it was posted with one");
        let value = u64::from_ne_bytes(word[..].try_into().expect("8 bytes"));
        self.handle.give_back_word(word);
        value
    }
}

impl Future for Fetch {
    type Output = Result<u64, RequestFailed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let done = self.pending.poll(context);
        done.map_ok(|done| self.value(done.buffers))
    }
}

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pending.debug("Fetch", f)
    }
}
