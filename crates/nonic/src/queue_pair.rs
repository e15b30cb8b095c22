//! Queue pairs: made, connected by exchanging endpoints, and used through two independent halves.

mod awaited;
mod binding;
mod builder;
mod connecting;
mod handle;
mod receive;
mod send;

pub use awaited::Fetch;
pub use binding::WindowRequest;
pub use builder::{Prepared, QueuePairBuilder};
pub use connecting::ConnectOptions;
pub(crate) use connecting::{ConnectSteps, FetchLimits};
pub use receive::ReceiveQueue;
pub use send::{Peer, RefusedBatch, SendQueue};

use crate::cm_dispatcher::EventChannel;
use crate::completion_queue::CompletionQueue;
use crate::device::Device;
use crate::endpoint::Endpoint;
use crate::keepalive::{Probed, keep_alive};
use crate::ticket::Ticket;
use crate::transport::Transport;
use nonic_core::{ModifyError, QpState, Qpn, Service};
use std::sync::Arc;
use std::time::Duration;

/// A queue pair ready for use.
///
/// It can be used in two ways, and in both at once:
/// - Its own methods begin a request and return a future, on which a thread can wait, too. Any number of tasks and
///   threads may use one queue pair, many requests may be under way, and a request that finds the queue full waits for
///   its turn. The program need not poll a completion queue: [`Domain::pair`](crate::Domain::pair) makes a queue pair
///   that has one of its own.
/// - Its two halves, `sq` and `rq`, are the verbs as they are: requests with numbers, and completions that are polled from a
///   [`CompletionQueue`](crate::CompletionQueue). Take it apart to use them on different threads.
///
/// ```
/// use nonic::{Access, Device, Rc};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let domain = Device::open("roce_lo")?.domain();
/// let (left, right) = (domain.pair::<Rc>()?, domain.pair::<Rc>()?);
/// let (here, there) = (left.endpoint(), right.endpoint());
/// let (left, right) = (left.connect(&there)?, right.connect(&here)?);
///
/// let shelf = domain.lease_from(b"on the shelf")?.expose(Access::REMOTE_READ)?;
/// let book = left.read(domain.lease(12)?, shelf.remote()).wait()?; // or `.await?`
/// assert_eq!(&book[..], b"on the shelf");
///
/// let receive = right.recv(domain.lease(64)?);
/// left.send(domain.lease_from(b"thank you")?).wait()?;
/// assert_eq!(receive.wait()?.bytes(), b"thank you");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct QueuePair<T: Transport> {
    /// Where sends, writes, reads and atomics are posted.
    pub sq: SendQueue<T>,
    /// Where receives are posted.
    pub rq: ReceiveQueue<T>,
}

impl<T: Transport> QueuePair<T> {
    /// Its number.
    #[doc(alias = "qp_num")]
    pub fn qpn(&self) -> Qpn {
        self.sq.handle.qpn
    }

    /// What peers need to reach it.
    pub fn endpoint(&self) -> Endpoint {
        self.sq.handle.endpoint
    }

    pub(crate) fn device(&self) -> &Device {
        &self.sq.handle.domain.device
    }

    /// The same queue pair in two halves of their own.
    pub(crate) fn halves(&self) -> (SendQueue<T>, ReceiveQueue<T>) {
        let handle = &self.sq.handle;
        (
            SendQueue::new(Arc::clone(handle)),
            ReceiveQueue::new(Arc::clone(handle)),
        )
    }

    /// It belongs to a connection: requests that end with it say so.
    pub(crate) fn ends_with(&self, connection: &Arc<EventChannel>) {
        let handle = &self.sq.handle;
        handle.send_queue.ends_with(handle.send_work_queue, connection);
        handle.recv_queue.ends_with(handle.receive_work_queue, connection);
    }

    /// Brings it to the error state: what is posted completes as flushed.
    pub(crate) fn fail(&self) -> Result<(), ModifyError> {
        self.sq.handle.fail()
    }

    /// Has the peer asked now and then whether it is there, if the service has answers.
    pub(crate) fn keep_alive(&self, connection: &Arc<EventChannel>, interval: Option<Duration>) {
        let Some(interval) = interval.filter(|_| T::SERVICE == Service::Rc) else {
            return;
        };
        let handle: Arc<dyn Probed> = Arc::clone(&self.sq.handle) as _;
        keep_alive(Arc::downgrade(&handle), connection, interval);
    }

    /// Tells when nothing of its send queue is under way any more; and where to wait for that.
    pub(crate) fn drain(&self) -> (CompletionQueue, Arc<Ticket>) {
        let handle = &self.sq.handle;
        let ticket = handle.send_queue.drain(handle.send_work_queue);
        (handle.send_queue.clone(), ticket)
    }

    /// Its state: peers and errors can change it at any time.
    #[doc(alias("ibv_query_qp", "ibv_qp_state"))]
    pub fn state(&self) -> QpState {
        self.sq.handle.state()
    }
}
