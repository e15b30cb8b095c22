//! The interface of every rsocket, whatever its kind.
//!
//! The table has sockets by number and knows no more of them than this: [`Socket`] is what programs call, and
//! [`ConnectionEvent`] what the service passes on.

use super::identifier::Identifier;
use super::options::Value;
use super::protocol::Ending;
use super::vector::Vector;
use super::wait::Pollable;
use libc::c_int;
use nonic_abi::errno::Errno;
use nonic_abi::rdma_cma::rdma_cm_id;
use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

/// An rsocket.
pub(crate) trait Socket: Pollable + Send + Sync {
    /// Its number.
    fn fd(&self) -> RawFd;

    fn bind(&self, local: SocketAddr) -> Result<(), Errno>;

    fn connect(&self, remote: SocketAddr) -> Result<(), Errno>;

    /// Receives; answers how many bytes, and the sender's address.
    fn receive(&self, vector: &mut Vector<'_>, flags: c_int) -> Result<(usize, Option<SocketAddr>), Errno>;

    /// Sends; tells how much.
    fn send(&self, vector: &mut Vector<'_>, to: Option<SocketAddr>, flags: c_int) -> Result<usize, Errno>;

    /// Ends one direction or both.
    fn shut_down(&self, ending: Ending) -> Result<(), Errno>;

    /// Ends everything. The number is not known any more.
    fn close(&self);

    /// As `getsockname`.
    fn local_name(&self) -> Result<SocketAddr, Errno>;

    /// As `getpeername`.
    fn remote_name(&self) -> Result<SocketAddr, Errno>;

    fn set_option(&self, level: c_int, option: c_int, value: &[u8]) -> Result<(), Errno>;

    fn option(&self, level: c_int, option: c_int) -> Result<Value, Errno>;

    /// As `fcntl`.
    fn control(&self, command: c_int, argument: c_int) -> Result<c_int, Errno>;

    /// For callers that need to know its kind.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;

    /// Something happened to its connection. A socket that has none drops the event, which refuses a request.
    fn handle(self: Arc<Self>, event: ConnectionEvent);
}

/// An event of the connection manager for a socket.
pub(crate) enum ConnectionEvent {
    /// A request to connect, for one that listens.
    Request {
        identifier: Identifier,
        private_data: Vec<u8>,
    },
    /// The connection is there.
    Established {
        id: *mut rdma_cm_id,
        private_data: Vec<u8>,
    },
    /// The peer refuses since it remembers our queue pair from an earlier connection.
    Stale { id: *mut rdma_cm_id },
    /// There will be no connection.
    Failed { id: *mut rdma_cm_id, errno: c_int },
    /// The peer has gone.
    Disconnected { id: *mut rdma_cm_id },
}
