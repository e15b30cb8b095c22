//! Connecting by IP address and port, as programs on sockets do: [`Listener`], [`connect`], [`Connection`].
//!
//! The two ends find each other with the InfiniBand connection manager's protocol, which Linux and hardware
//! speak too. Ports are those of rdma_cm's TCP port space: they have nothing to do with TCP itself.
//!
//! ```
//! use nonic::{Device, Listener, Rc, connect};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("roce_lo")?;
//! let (domain, queue) = (device.domain(), device.completion_queue(16)?);
//! let listener = Listener::bind(&device, "127.0.0.1:0".parse()?)?;
//! let connecting = connect(domain.queue_pair_builder::<Rc>(&queue), listener.local_addr(), b"hi")?;
//!
//! let incoming = listener.accept()?;
//! assert!(incoming.private_data().starts_with(b"hi"));
//! let mut server = incoming.accept(domain.queue_pair_builder::<Rc>(&queue), b"welcome")?;
//! let mut client = connecting.wait()?;
//! assert!(client.private_data().starts_with(b"welcome"));
//!
//! server.pair.rq.recv(1, domain.lease(64)?)?;
//! client.pair.sq.send(2, domain.lease_from(b"hello")?)?;
//! # for _ in 0..2 { queue.wait(None)?.expect("no time limit was given").result?; }
//! # Ok(()) }
//! ```
//!
//! Everything that waits also works as a future, on any runtime.

mod active;
mod cm_listener;
mod datagram;
mod finishing;
mod passive;

pub use active::{Connecting, connect, connect_with};
pub use datagram::{DatagramListener, DatagramService, Inquiry, Resolving, resolve};
pub use finishing::Finishing;
pub use passive::{Incoming, ListenError, Listener};

pub use crate::cm_dispatcher::CloseReason;
use crate::cm_dispatcher::EventChannel;
use crate::device::Device;
use crate::private_data::PrivateData;
use crate::queue_pair::{ConnectOptions, QueuePair, ReceiveQueue, SendQueue};
use crate::transport::Transport;
use nonic_core::cm::{CmError, ConnectionId, RejectParams};
use nonic_core::{CreateError, ModifyError, PathMtu};
use nonic_explain::Explanation;
use nonic_wire::cm::RejectReason;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Why two ends did not come together.
///
/// ```
/// use nonic::{ConnectError, Rc, connect};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let listener = nonic::Listener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// let connecting = connect(domain.pair_builder::<Rc>(), listener.local_addr(), b"let me in")?;
/// # listener.accept_within(patience).ok_or("nobody came")?.reject(b"full")?;
/// match connecting.wait() {
///     Err(ConnectError::Rejected { private_data, .. }) => assert_eq!(private_data.trimmed(), b"full"),
///     Err(ConnectError::PortUnreachable(_)) => println!("no RDMA program runs there"),
///     Err(ConnectError::Unreachable(_)) => println!("no such host, or nothing is let through"),
///     other => println!("{other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The peer rejected the request.
    #[doc(alias = "RDMA_CM_EVENT_REJECTED")]
    #[error("{peer} rejected the connection: {}", reason.text())]
    Rejected {
        /// The peer.
        peer: SocketAddr,
        /// Why: 28 is the program's own decision, 8 means that there is no listener.
        reason: RejectReason,
        /// The private data that it sent with the rejection.
        private_data: PrivateData,
    },
    /// The peer did not answer.
    #[doc(alias = "RDMA_CM_EVENT_UNREACHABLE")]
    #[error(
        "{0} does not answer; does an RDMA program run there, and is UDP port 4791 (iWARP: its TCP port) let through?"
    )]
    Unreachable(SocketAddr),
    /// The peer's host answered, more than once, that no process holds UDP port 4791 there (ICMP port unreachable).
    #[doc(alias = "RDMA_CM_EVENT_UNREACHABLE")]
    #[error(
        "{} answered: nothing listens on UDP port 4791 there, so no RDMA program runs; start the server, or look whether the address is right",
        .0.ip()
    )]
    PortUnreachable(SocketAddr),
    /// The peer accepted, and ended the connection before this side was ready: it hung up, failed, or its process ended.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    #[error("{0} accepted the connection and ended it again at once; see what its program says")]
    Ended(SocketAddr),
    /// The device has no address from which the peer can be reached.
    #[doc(alias("RDMA_CM_EVENT_ADDR_ERROR", "RDMA_CM_EVENT_ROUTE_ERROR"))]
    #[error("{0} cannot be reached from an address of this device; open the device of the right interface")]
    NoRoute(SocketAddr),
    /// The peer's packets would not fit our interface.
    #[error("the peer wants a path MTU of {} bytes, which this interface does not carry", .0.bytes())]
    Mtu(PathMtu),
    /// The queue pair could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The queue pair could not be brought to RTS.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The connection manager refused.
    #[error(transparent)]
    Refused(#[from] CmError),
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ConnectError {
    /// What happened, what most likely led to it and what to try; `None` if the error says all there is to say.
    pub fn explanation(&self) -> Option<Explanation> {
        match self {
            ConnectError::Rejected { reason, .. } => Some(Explanation::of_rejection(reason.0)),
            ConnectError::Unreachable(_) => Some(Explanation::of_unreachable()),
            ConnectError::Ended(_) => Some(Explanation::of_early_end()),
            _ => None,
        }
    }
}

/// As a sentence: it is what a program prints that ends with it.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A connected queue pair. Dropping it disconnects; so the queue pair cannot be moved out of it:
///
/// ```compile_fail,E0509
/// # fn f(builder: nonic::QueuePairBuilder<nonic::Rc>, peer: std::net::SocketAddr) -> Result<(), nonic::ConnectError> {
/// let pair = nonic::connect(builder, peer, b"")?.wait()?.pair; // would disconnect at once
/// # Ok(()) }
/// ```
///
/// Take it apart by [`Connection::split`] to use its halves on different threads.
///
/// When the peer disconnects, the queue pair goes to the error state. Posted requests complete as flushed, so a task or
/// thread that waits for a receive learns of it there. A peer whose process or host *died* cannot disconnect. A queue
/// pair that sends finds out when acknowledgements stay away; one that only receives does not, unless
/// [`ConnectOptions::keepalive`] makes it probe the peer.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let listener = nonic::Listener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let connecting = nonic::connect(domain.pair_builder::<nonic::Rc>(), listener.local_addr(), b"")?;
/// # let server = listener.accept()?.accept(domain.pair_builder::<nonic::Rc>(), b"")?;
/// # let client = connecting.wait()?;
/// let receive = server.recv(domain.lease(64)?);
/// client.send_bytes(b"hello").wait()?;
/// println!("{}: {:?}", server.peer_addr(), receive.wait()?.bytes());
/// client.finish().wait()?; // everything is done, and the server is told
/// # Ok(()) }
/// ```
pub struct Connection<T: Transport> {
    /// The queue pair, ready for use.
    pub pair: QueuePair<T>,
    private_data: PrivateData,
    peer: SocketAddr,
    handle: Arc<ConnectionHandle>,
}

impl<T: Transport> Connection<T> {
    fn new(
        pair: QueuePair<T>,
        options: &ConnectOptions,
        private_data: PrivateData,
        peer: SocketAddr,
        handle: ConnectionHandle,
    ) -> Self {
        handle.channel.belongs_to(peer);
        pair.ends_with(&handle.channel);
        pair.keep_alive(&handle.channel, options.keepalive);
        Connection {
            pair,
            private_data,
            peer,
            handle: Arc::new(handle),
        }
    }

    /// Its two halves, for different threads. It ends when both are dropped.
    pub fn split(self) -> (SendHalf<T>, ReceiveHalf<T>) {
        let (sq, rq) = self.pair.halves();
        let send = SendHalf {
            queue: sq,
            _handle: Arc::clone(&self.handle),
        };
        let receive = ReceiveHalf {
            queue: rq,
            _handle: Arc::clone(&self.handle),
        };
        (send, receive)
    }

    /// The end of the connection, whichever side ends it, and why. It can be kept and awaited anywhere; the connection may be gone
    /// by then.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    pub fn closed(&self) -> Closed {
        Closed {
            channel: Arc::clone(&self.handle.channel),
        }
    }

    /// The private data that the peer sent when it connected or accepted.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// The peer's address, and its port, which is 0 if its request does not carry one.
    #[doc(alias = "rdma_get_peer_addr")]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Waits until the peer has disconnected, at most `timeout` (for ever without one). Whether it has.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    pub fn wait_disconnected(&self, timeout: Option<Duration>) -> bool {
        self.handle.channel.wait_ended(timeout).is_some()
    }

    /// The same, in a task.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    pub async fn disconnected(&self) {
        self.closed().await;
    }

    /// Tells the peer that the connection ends, and keeps the queue pair: it goes to the error state, and what is
    /// posted completes as flushed.
    #[doc(alias = "rdma_disconnect")]
    pub fn shutdown(&self) -> Result<(), ConnectError> {
        self.handle.channel.end(CloseReason::Local);
        match self.handle.device.engine.disconnect(self.handle.id, &[]) {
            // The peer was faster, and nothing is left of it.
            Ok(()) | Err(CmError::NoSuchConnection) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.pair.fail()?)
    }

    /// Ends the connection: the peer is told, the queue pair is destroyed.
    #[doc(alias("rdma_disconnect", "rdma_destroy_id"))]
    pub fn disconnect(self) {}
}

impl<T: Transport> Drop for Connection<T> {
    fn drop(&mut self) {
        // Unless it was split. Its parts do the rest; that this is here keeps `pair` from being moved out, which would disconnect
        // it silently.
        if Arc::strong_count(&self.handle) == 1 {
            self.handle.channel.end(CloseReason::Local);
        }
    }
}

impl<T: Transport> Deref for Connection<T> {
    type Target = QueuePair<T>;

    fn deref(&self) -> &QueuePair<T> {
        &self.pair
    }
}

/// The send half of a connection, which lasts as long as either half.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let listener = nonic::Listener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let connecting = nonic::connect(domain.pair_builder::<nonic::Rc>(), listener.local_addr(), b"")?;
/// # let server = listener.accept()?.accept(domain.pair_builder::<nonic::Rc>(), b"")?;
/// # let client = connecting.wait()?;
/// let (mut send, mut receive) = client.split();
/// receive.recv(1, domain.lease(64)?)?;
/// let message = domain.lease_from(b"hello")?;
/// let posted = std::thread::spawn(move || send.send(2, message));
/// posted.join().expect("no panic")?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SendHalf<T: Transport> {
    queue: SendQueue<T>,
    _handle: Arc<ConnectionHandle>,
}

/// The receive half of a connection, which lasts as long as either half.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let listener = nonic::Listener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let queue = device.completion_queue(16)?;
/// # let connecting = nonic::connect(domain.queue_pair_builder::<nonic::Rc>(&queue), listener.local_addr(), b"")?;
/// # let incoming = listener.accept_within(patience).ok_or("nobody came")?;
/// # let server = incoming.accept(domain.pair_builder::<nonic::Rc>(), b"")?;
/// # let client = connecting.wait()?;
/// let (send, mut receive) = client.split();
/// receive.recv(1, domain.lease(64)?)?;
/// drop(send); // the connection is there as long as the other half
/// server.send_bytes(b"hello").wait()?;
/// let done = queue.wait(Some(patience))?.expect("it has arrived");
/// assert_eq!(&done.buffers[0][..5], b"hello");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ReceiveHalf<T: Transport> {
    queue: ReceiveQueue<T>,
    _handle: Arc<ConnectionHandle>,
}

impl<T: Transport> Deref for SendHalf<T> {
    type Target = SendQueue<T>;

    fn deref(&self) -> &SendQueue<T> {
        &self.queue
    }
}

impl<T: Transport> DerefMut for SendHalf<T> {
    fn deref_mut(&mut self) -> &mut SendQueue<T> {
        &mut self.queue
    }
}

impl<T: Transport> Deref for ReceiveHalf<T> {
    type Target = ReceiveQueue<T>;

    fn deref(&self) -> &ReceiveQueue<T> {
        &self.queue
    }
}

impl<T: Transport> DerefMut for ReceiveHalf<T> {
    fn deref_mut(&mut self) -> &mut ReceiveQueue<T> {
        &mut self.queue
    }
}

/// The end of a connection: await it or wait for it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let listener = nonic::Listener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let connecting = nonic::connect(domain.pair_builder::<nonic::Rc>(), listener.local_addr(), b"")?;
/// # let server = listener.accept()?.accept(domain.pair_builder::<nonic::Rc>(), b"")?;
/// # let client = connecting.wait()?;
/// let closed = server.closed();
/// std::thread::spawn(move || println!("it is over: {:?}", closed.wait(None)));
/// client.disconnect();
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is there to be awaited"]
pub struct Closed {
    channel: Arc<EventChannel>,
}

impl Closed {
    /// Why it ended, if it has.
    pub fn reason(&self) -> Option<CloseReason> {
        self.channel.ended()
    }

    /// Waits until it has, at most `timeout` (for ever without one).
    pub fn wait(&self, timeout: Option<Duration>) -> Option<CloseReason> {
        self.channel.wait_ended(timeout)
    }
}

impl Future for Closed {
    type Output = CloseReason;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CloseReason> {
        self.channel.poll_ended(context)
    }
}

impl<T: Transport> fmt::Debug for Connection<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// A connection as the connection manager knows it. Dropped, it is given up: the peer is told, whatever the state.
struct ConnectionHandle {
    device: Device,
    id: ConnectionId,
    channel: Arc<EventChannel>,
}

impl ConnectionHandle {
    fn reject(&self, reason: RejectReason, private_data: &[u8]) -> Result<(), ConnectError> {
        let params = RejectParams {
            reason,
            private_data,
            ..RejectParams::default()
        };
        Ok(self.device.engine.reject(self.id, &params)?)
    }
}

impl fmt::Debug for ConnectionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConnectionHandle").field(&self.id).finish()
    }
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        self.channel.end(CloseReason::Local);
        // It may have ended already.
        let _ = self.device.engine.abandon(self.id);
        self.device.cm_dispatcher.forget(self.id);
    }
}
