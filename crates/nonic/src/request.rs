//! Requests that are waited for one by one: as futures, on any runtime, or by a thread that sleeps.
//!
//! A request is posted when it is made, not when it is first polled, so requests keep the order in which they were
//! made. It cannot be taken back: after a drop it goes on, and its buffers are freed when the NIC is done with them.
//!
//! A request that finds its queue full is posted when there is room. Room shows when a thread or task takes completions
//! out of the completion queue; waiting for any request of the same queue pair does that.

use crate::cm_dispatcher::CloseReason;
use crate::completion::Completion;
use crate::completion_queue::{CompletionQueue, WaitError};
use crate::memory::{BufferSet, Buffers};
use crate::outstanding::{Work, WorkQueueId};
use crate::refused::Refused;
use crate::span::Span;
use crate::ticket::{Outcome, Ticket};
use nonic_core::{CqOverflow, PostError, Qpn, Status};
use nonic_explain::Explanation;
use std::fmt;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Why a request did not succeed.
///
/// ```
/// use nonic::{Access, RequestError, Status};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// let table = domain.lease(64)?.expose(Access::REMOTE_READ)?;
/// let failed = left.write(domain.lease_from(b"hello")?, table.remote().slice(..5)).wait();
/// match failed.expect_err("it may only be read").error {
///     RequestError::Failed(Status::RemoteAccess) => println!("the peer does not permit it"),
///     other => return Err(other.into()),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The NIC did not take it.
    #[error(transparent)]
    Refused(#[from] PostError),
    /// It failed; the queue pair is of no use any more.
    #[error(transparent)]
    Failed(#[from] Status),
    /// The connection ended before it was done.
    #[error(transparent)]
    Closed(#[from] CloseReason),
    /// The queue pair was dropped before it was done.
    #[error("the queue pair was dropped while the request was under way")]
    Dropped,
    /// Completions were lost.
    #[error(transparent)]
    Overflow(#[from] CqOverflow),
    /// The operating system refused to wait.
    #[error(transparent)]
    Wait(#[from] io::Error),
}

impl From<WaitError> for RequestError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Overflow(overflow) => RequestError::Overflow(overflow),
            WaitError::Io(error) => RequestError::Wait(error),
        }
    }
}

/// A request that did not succeed, and its buffers back.
///
/// ```
/// use nonic::RequestError;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let listener = nonic::Listener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let connecting = nonic::connect(domain.pair_builder::<nonic::Rc>(), listener.local_addr(), b"")?;
/// # let server = listener.accept()?.accept(domain.pair_builder::<nonic::Rc>(), b"")?;
/// # let client = connecting.wait()?;
/// let receive = server.recv(domain.lease(64)?);
/// client.disconnect();
/// let failed = receive.wait().expect_err("nothing was sent");
/// println!("{failed}"); // 127.0.0.1: the peer disconnected
/// assert!(matches!(failed.error, RequestError::Closed(_)));
/// # Ok(()) }
/// ```
#[derive(thiserror::Error)]
#[error("{}{error}", named(*peer))]
#[non_exhaustive]
pub struct RequestFailed {
    /// The peer it was for, if its queue pair is that of a [`Connection`](crate::Connection).
    pub peer: Option<SocketAddr>,
    /// Why.
    #[source]
    pub error: RequestError,
    /// The buffers it was posted with. None, if completions were lost.
    pub buffers: Buffers,
    /// Why, at length. Boxed: a result should be small.
    explanation: Option<Box<Explanation>>,
}

/// As sentences: it is what a program prints that ends with it.
impl fmt::Debug for RequestFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.error)?;
        match &self.explanation {
            Some(explanation) => write!(f, "\n{explanation:#}"),
            None => Ok(()),
        }
    }
}

impl RequestFailed {
    fn without_buffers(error: impl Into<RequestError>) -> Self {
        RequestFailed {
            peer: None,
            error: error.into(),
            buffers: Buffers::default(),
            explanation: None,
        }
    }

    /// What happened, what most likely led to it and what to try, with the last events of the queue pair; `None` if [`RequestFailed::error`]
    /// says all there is to say.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let domain = nonic::Device::open("roce_lo")?.domain();
    /// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
    /// # let (here, there) = (left.endpoint(), right.endpoint());
    /// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
    /// let shelf = domain.lease(64)?.expose(nonic::Access::REMOTE_READ)?;
    /// let write = left.write(domain.lease_from(b"hello")?, shelf.remote().slice(..5));
    /// let failed = write.wait().expect_err("the peer may read it, not write it");
    /// let explanation = failed.explanation().expect("there is one");
    /// assert!(explanation.happened.contains("refused the WRITE of 5 bytes"));
    /// println!("{explanation}");
    /// # Ok(()) }
    /// ```
    pub fn explanation(&self) -> Option<&Explanation> {
        self.explanation.as_deref()
    }
}

/// The peer that an error is about, as the beginning of a sentence.
fn named(peer: Option<SocketAddr>) -> String {
    match peer {
        None => String::new(),
        // A request to connect need not say from which port it comes.
        Some(peer) if peer.port() == 0 => format!("{}: ", peer.ip()),
        Some(peer) => format!("{peer}: "),
    }
}

/// A request under way that ends with a completion.
pub(crate) struct Pending {
    queue: CompletionQueue,
    ticket: Arc<Ticket>,
}

impl Pending {
    pub(crate) fn submit(
        queue: &CompletionQueue,
        work_queue: WorkQueueId,
        buffers: Buffers,
        work: Work,
        span: Span,
    ) -> Self {
        Pending {
            queue: queue.clone(),
            ticket: queue.submit(work_queue, buffers, work, span),
        }
    }

    /// One that is refused before the NIC is asked.
    pub(crate) fn refused(queue: &CompletionQueue, error: PostError, buffers: Buffers) -> Self {
        let ticket = Arc::new(Ticket::default());
        ticket.deliver(Outcome::Refused(Refused { error, buffers }));
        Pending {
            queue: queue.clone(),
            ticket,
        }
    }

    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Completion, RequestFailed>> {
        let outcome = self.queue.poll_ticket(&self.ticket, context);
        outcome.map(|outcome| settle(&self.queue, outcome))
    }

    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Option<Result<Completion, RequestFailed>> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        match self.queue.wait_ticket(&self.ticket, deadline) {
            Ok(outcome) => outcome.map(|outcome| settle(&self.queue, outcome)),
            Err(error) => Some(Err(RequestFailed::without_buffers(error))),
        }
    }
}

fn settle(queue: &CompletionQueue, outcome: Outcome) -> Result<Completion, RequestFailed> {
    match outcome {
        Outcome::Completed(completion, peer) => match completion.result {
            Ok(_) => Ok(completion),
            Err(status) => Err(RequestFailed {
                peer,
                explanation: Some(Box::new(queue.explain(&completion, status))),
                error: completion.closed.map_or(status.into(), RequestError::Closed),
                buffers: completion.buffers,
            }),
        },
        Outcome::Refused(Refused { error, buffers }) => Err(RequestFailed {
            peer: None,
            explanation: Some(Box::new(Explanation::of_post(error))),
            error: error.into(),
            buffers,
        }),
        Outcome::Closed(buffers) => Err(RequestFailed {
            peer: None,
            error: RequestError::Dropped,
            buffers,
            explanation: None,
        }),
        Outcome::Drained => unreachable!("only told to those who drain"),
        Outcome::Overflow(overflow) => Err(RequestFailed::without_buffers(overflow)),
    }
}

/// A SEND, WRITE or READ under way. Await it or wait for it: it answers the buffers it was made with, after a READ with what was read.
///
/// Dropping it does not take it back.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// let shelf = domain.lease(64)?.expose(nonic::Access::REMOTE_WRITE)?;
/// let request = left.write(domain.lease_from(b"hello")?, shelf.remote().slice(..5));
/// let lease = request.wait()?; // or `request.await?`
/// # Ok(()) }
/// ```
#[must_use = "the buffers come back from it"]
pub struct Request<B: BufferSet> {
    pending: Pending,
    buffers: PhantomData<fn() -> B>,
}

impl<B: BufferSet> Request<B> {
    pub(crate) fn new(pending: Pending) -> Self {
        Request {
            pending,
            buffers: PhantomData,
        }
    }

    /// Waits until it is done. The thread drives the NIC meanwhile.
    pub fn wait(self) -> Result<B, RequestFailed> {
        let done = self.pending.wait(None).expect("no time limit was given")?;
        Ok(B::from_buffers(done.buffers))
    }

    /// The same, for at most `timeout`; a request that is not done then is returned.
    pub fn wait_within(self, timeout: Duration) -> Result<Result<B, RequestFailed>, Self> {
        match self.pending.wait(Some(timeout)) {
            Some(done) => Ok(done.map(|done| B::from_buffers(done.buffers))),
            None => Err(self),
        }
    }
}

impl<B: BufferSet> Future for Request<B> {
    type Output = Result<B, RequestFailed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let done = self.pending.poll(context);
        done.map_ok(|done| B::from_buffers(done.buffers))
    }
}

/// A receive under way. Await it or wait for it.
///
/// Dropping it does not take it back: a message that it gets then is lost.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// let receive = right.recv(domain.lease(64)?);
/// left.send_bytes(b"hello").wait()?;
/// let received = receive.wait()?; // or `receive.await?`
/// assert_eq!(received.bytes(), b"hello");
/// # Ok(()) }
/// ```
#[must_use = "a message that it gets is lost without it"]
pub struct Receive<B: BufferSet> {
    pending: Pending,
    buffers: PhantomData<fn() -> B>,
}

impl<B: BufferSet> Receive<B> {
    pub(crate) fn new(pending: Pending) -> Self {
        Receive {
            pending,
            buffers: PhantomData,
        }
    }

    /// Waits for a message. The thread drives the NIC meanwhile.
    pub fn wait(self) -> Result<Received<B>, RequestFailed> {
        let done = self.pending.wait(None).expect("no time limit was given")?;
        Ok(Received::new(done))
    }

    /// The same, for at most `timeout`; if there was no message by then, the receive is returned.
    pub fn wait_within(self, timeout: Duration) -> Result<Result<Received<B>, RequestFailed>, Self> {
        match self.pending.wait(Some(timeout)) {
            Some(done) => Ok(done.map(Received::new)),
            None => Err(self),
        }
    }
}

impl<B: BufferSet> Future for Receive<B> {
    type Output = Result<Received<B>, RequestFailed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.pending.poll(context).map_ok(Received::new)
    }
}

/// A message that was received.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// let receive = right.recv(domain.lease(64)?);
/// left.send_with_immediate(domain.lease_from(b"hello")?, 7).wait()?;
/// let received = receive.wait()?;
/// assert_eq!((received.bytes(), received.immediate), (&b"hello"[..], Some(7)));
/// let buffer = received.buffers; // to be used again
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Received<B> {
    /// Where it is.
    pub buffers: B,
    /// Its length in bytes; for a datagram, the network header of 40 bytes in front of it included.
    #[doc(alias = "byte_len")]
    pub len: usize,
    /// The peer's immediate data.
    #[doc(alias("imm_data", "IBV_WC_WITH_IMM"))]
    pub immediate: Option<u32>,
    /// The key of ours that the message revoked: of exposed memory, or of a window.
    #[doc(alias("invalidated_rkey", "IBV_WC_WITH_INV"))]
    pub invalidated: Option<u32>,
    /// For datagrams: the queue pair that sent it.
    #[doc(alias("src_qp", "IBV_WC_GRH"))]
    pub source: Option<Qpn>,
}

impl<B: BufferSet> Received<B> {
    fn new(done: Completion) -> Self {
        Received {
            len: *done.result.as_ref().unwrap_or(&0),
            immediate: done.immediate,
            invalidated: done.invalidated,
            source: done.source,
            buffers: B::from_buffers(done.buffers),
        }
    }
}

impl Received<crate::Lease> {
    /// The message.
    pub fn bytes(&self) -> &[u8] {
        &self.buffers[..self.len]
    }
}

impl<B: BufferSet> fmt::Debug for Request<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pending.debug("Request", f)
    }
}

impl<B: BufferSet> fmt::Debug for Receive<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pending.debug("Receive", f)
    }
}

impl Pending {
    pub(crate) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct(name);
        shown
            .field("done", &self.ticket.is_done())
            .finish_non_exhaustive()
    }
}
