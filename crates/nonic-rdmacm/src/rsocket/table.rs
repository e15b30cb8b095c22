//! The sockets of this process, by number.

use super::socket::Socket;
use nonic_abi::errno::{Errno, refused};
use nonic_abi::fork::Birth;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

struct Entry {
    socket: Arc<dyn Socket>,
    /// A child of fork inherits the table, but none of the connections.
    made_in: Birth,
}

fn table() -> &'static RwLock<HashMap<RawFd, Entry>> {
    static TABLE: OnceLock<RwLock<HashMap<RawFd, Entry>>> = OnceLock::new();
    TABLE.get_or_init(RwLock::default)
}

/// Makes a socket known under its number.
pub(crate) fn insert(socket: Arc<dyn Socket>) -> RawFd {
    let fd = socket.fd();
    let entry = Entry {
        socket,
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
pub(crate) fn find(fd: RawFd) -> Option<Arc<dyn Socket>> {
    let table = table().read().unwrap_or_else(PoisonError::into_inner);
    let entry = table.get(&fd)?;
    (!entry.made_in.is_elsewhere()).then(|| Arc::clone(&entry.socket))
}

/// Forgets the number. Answers nothing for a socket of the parent's, of which only the descriptor is ours, and closed.
pub(crate) fn remove(fd: RawFd) -> Result<Option<Arc<dyn Socket>>, Errno> {
    let mut table = table().write().unwrap_or_else(PoisonError::into_inner);
    let entry = table.remove(&fd).ok_or_else(|| {
        refused(
            libc::EBADF,
            format!("{fd} is no rsocket"),
            "close a socket once, with what rsocket or raccept returned",
        )
    })?;
    if !entry.made_in.is_elsewhere() {
        return Ok(Some(entry.socket));
    }
    // SAFETY: the entry is forgotten, so nothing closes it again.
    unsafe { libc::close(fd) };
    std::mem::forget(entry);
    Ok(None)
}
