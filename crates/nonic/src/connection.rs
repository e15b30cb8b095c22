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
mod passive;

pub use active::{Connecting, connect, connect_with};
pub use datagram::{DatagramListener, DatagramService, Inquiry, Resolving, resolve};
pub use passive::{Incoming, ListenError, Listener};

use crate::cm_dispatcher::EventChannel;
use crate::device::Device;
use crate::queue_pair::QueuePair;
use crate::transport::Transport;
use nonic_core::cm::{CmError, CmEvent, ConnectionId, RejectParams};
use nonic_core::{CreateError, ModifyError, PathMtu};
use nonic_wire::cm::RejectReason;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Why two ends did not come together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The peer rejected the request.
    #[doc(alias = "RDMA_CM_EVENT_REJECTED")]
    #[error("the peer rejected the connection: {}", reason.text())]
    Rejected {
        /// Why: 28 is the program's own decision, 8 that nobody listens there.
        reason: RejectReason,
        /// The private data of the rejection, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The peer did not answer.
    #[doc(alias = "RDMA_CM_EVENT_UNREACHABLE")]
    #[error(
        "the peer does not answer; is its device up, and UDP port 4791 (iWARP: its TCP port) let through?"
    )]
    Unreachable,
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

/// A connected queue pair. Dropping it disconnects.
///
/// When the peer disconnects, the queue pair goes to the error state: what is posted completes as flushed, so that
/// whoever waits for a receive learns of it there. A peer whose process or host *died* cannot say so. A queue pair
/// that sends finds out when nobody acknowledges; one that only waits does not.
pub struct Connection<T: Transport> {
    /// The queue pair, ready for use.
    pub pair: QueuePair<T>,
    private_data: Vec<u8>,
    peer: SocketAddr,
    handle: ConnectionHandle,
}

impl<T: Transport> Connection<T> {
    /// The private data with which the peer connected or accepted, padded with zeros.
    pub fn private_data(&self) -> &[u8] {
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
        self.handle.channel.wait(timeout, ended).is_some()
    }

    /// The same, in a task.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    pub async fn disconnected(&self) {
        std::future::poll_fn(|context| self.handle.channel.poll(context, ended)).await;
    }

    /// Tells the peer that the connection ends, and keeps the queue pair: it goes to the error state, and what is
    /// posted completes as flushed.
    #[doc(alias = "rdma_disconnect")]
    pub fn shutdown(&self) -> Result<(), ConnectError> {
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

/// Whether an event is the end of a connection.
fn ended(event: CmEvent) -> Option<()> {
    match event {
        CmEvent::Disconnected { .. } | CmEvent::Rejected { .. } | CmEvent::Unreachable { .. } => Some(()),
        _ => None,
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

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.device.engine.abandon(self.id);
        self.device.cm_dispatcher.forget(self.id);
    }
}
