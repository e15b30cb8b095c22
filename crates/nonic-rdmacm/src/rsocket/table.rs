//! The sockets of this process, by number.

use super::datagram::DatagramSocket;
use super::stream::StreamSocket;
use nonic_abi::errno::Errno;
use nonic_abi::fork::Birth;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// An rsocket of either kind.
#[derive(Clone)]
pub(crate) enum Socket {
    Stream(Arc<StreamSocket>),
    Datagram(Arc<DatagramSocket>),
}

struct Entry {
    socket: Socket,
    /// A child of fork inherits the table, but none of the connections.
    made_in: Birth,
}

fn table() -> &'static RwLock<HashMap<RawFd, Entry>> {
    static TABLE: OnceLock<RwLock<HashMap<RawFd, Entry>>> = OnceLock::new();
    TABLE.get_or_init(RwLock::default)
}

impl Socket {
    pub(crate) fn fd(&self) -> RawFd {
        match self {
            Socket::Stream(socket) => socket.fd(),
            Socket::Datagram(socket) => socket.fd(),
        }
    }

    /// Makes it known under its number.
    pub(crate) fn insert(self) -> RawFd {
        let fd = self.fd();
        let entry = Entry {
            socket: self,
            made_in: Birth::now(),
        };
        let mut table = table().write().unwrap_or_else(PoisonError::into_inner);
        if let Some(inherited) = table.insert(fd, entry) {
            // The parent's, whose number the child has closed: its queues must not be touched here.
            std::mem::forget(inherited);
        }
        fd
    }

    /// The socket with this number, if it is one.
    pub(crate) fn find(fd: RawFd) -> Option<Socket> {
        let table = table().read().unwrap_or_else(PoisonError::into_inner);
        let entry = table.get(&fd)?;
        (!entry.made_in.is_elsewhere()).then(|| entry.socket.clone())
    }

    /// Forgets the number.
    pub(crate) fn remove(fd: RawFd) -> Result<Socket, Errno> {
        let mut table = table().write().unwrap_or_else(PoisonError::into_inner);
        let entry = table.remove(&fd).ok_or(libc::EBADF)?;
        if !entry.made_in.is_elsewhere() {
            return Ok(entry.socket);
        }
        // The parent's. Only the descriptor is ours as well.
        // SAFETY: the entry is forgotten, so nobody closes it again.
        unsafe { libc::close(fd) };
        std::mem::forget(entry);
        Err(0)
    }
}

/// The stream socket with this number.
pub(crate) fn stream(fd: RawFd) -> Option<Arc<StreamSocket>> {
    match Socket::find(fd) {
        Some(Socket::Stream(socket)) => Some(socket),
        Some(Socket::Datagram(_)) | None => None,
    }
}
