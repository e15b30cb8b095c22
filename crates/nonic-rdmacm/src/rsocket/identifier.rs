//! An identifier of the connection manager's that belongs to a socket, with its queue pair.

use crate::channel::Channel;
use crate::id::{self, Id, Pending};
use crate::lifetime::rdma_destroy_id;
use crate::qp;
use libc::c_int;
use nonic_abi::errno::Errno;
use nonic_abi::rdma_cma::rdma_cm_id;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Destroyed with its owner, which must not hold a lock then that the service could want.
pub(crate) struct Identifier(*mut rdma_cm_id);

// SAFETY: an identifier may be used from any thread.
unsafe impl Send for Identifier {}

impl Identifier {
    /// A new one. Its events go to this channel, for the socket with this number.
    pub(crate) fn new(channel: &Channel<Pending>, socket: RawFd, port_space: c_int) -> Result<Self, Errno> {
        let qp_type = id::qp_type_of(port_space)?;
        // SAFETY: the channel is one of identifiers, and alive.
        let id = unsafe { id::create(channel.as_c(), context_of(socket), port_space, qp_type) }?;
        Ok(Identifier(id::give(id)))
    }

    /// A new one for datagrams, of which there are no events.
    pub(crate) fn without_events(port_space: c_int) -> Result<Self, Errno> {
        let qp_type = id::qp_type_of(port_space)?;
        // SAFETY: there is no channel, and no context.
        let id = unsafe { id::create(std::ptr::null_mut(), std::ptr::null_mut(), port_space, qp_type) }?;
        Ok(Identifier(id::give(id)))
    }

    /// # Safety
    ///
    /// It was made for a request, and nothing else owns it.
    pub(crate) unsafe fn from_request(pointer: *mut rdma_cm_id) -> Self {
        Identifier(pointer)
    }

    /// Events are for another socket from now on.
    pub(crate) fn give_to(&self, socket: RawFd) {
        // SAFETY: the field is ours, and events are handled by the thread that calls this.
        unsafe { (*self.0).context = context_of(socket) };
    }

    pub(crate) fn as_c(&self) -> *mut rdma_cm_id {
        self.0
    }

    pub(crate) fn id(&self) -> Arc<Id> {
        // SAFETY: it is alive.
        unsafe { id::id(self.0) }.expect("an identifier is never NULL")
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        qp::destroy(&self.id());
        // SAFETY: the only reference of a program's is given back here.
        unsafe { rdma_destroy_id(self.0) };
    }
}

/// What an identifier's context is for a socket.
fn context_of(socket: RawFd) -> *mut libc::c_void {
    std::ptr::without_provenance_mut(socket as usize)
}

/// The socket of a context.
pub(crate) fn socket_of(context: *mut libc::c_void) -> RawFd {
    context.addr() as RawFd
}
