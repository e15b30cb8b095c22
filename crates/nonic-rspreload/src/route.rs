//! Routing of calls: whether a call on a descriptor is for the C library or for an rsocket; and the way back to TCP,
//! where RDMA does not reach.
//!
//! A `connect` that does not block fails later, in some call that finds out ([`settle`]); then TCP is tried in its
//! place, and the program goes on waiting.
//!
//! Read first: [`target`], with which every call on a descriptor begins.

use crate::config::config;
use crate::life::end;
use crate::table::{Address, Carried, Flag, all, carried, forget};
use crate::{next, rsockets, watch};
use libc::c_int;
use nonic_abi::errno;
use std::sync::atomic::Ordering;

/// Where a call on a descriptor goes.
pub(crate) enum Target {
    /// The C library.
    Plain,
    /// The rsocket of this socket.
    Carried(&'static Carried),
    /// Nowhere: it fails with this errno.
    Refused(c_int),
}

/// Where a call on this descriptor goes. If the socket is being connected, how that went is found out first.
#[inline]
pub(crate) fn target(fd: c_int) -> Target {
    let Some(socket) = carried(fd) else {
        return Target::Plain;
    };
    if socket.is(Flag::Lost) {
        return Target::Refused(libc::EOPNOTSUPP);
    }
    if socket.is(Flag::Connecting) && !progress(fd, socket) {
        return Target::Plain;
    }
    Target::Carried(socket)
}

/// `route!(fd, plain, socket => carried)`: the one or the other, as [`target`] says.
macro_rules! route {
    ($fd:expr, $plain:expr, $socket:ident => $carried:expr) => {
        match $crate::route::target($fd) {
            $crate::route::Target::Plain => $plain,
            $crate::route::Target::Carried($socket) => $carried,
            $crate::route::Target::Refused(errno) => ::nonic_abi::errno::fail(errno),
        }
    };
}
pub(crate) use route;

/// Looks whether a connect under way has finished. Answers whether the socket is still carried.
fn progress(fd: c_int, socket: &'static Carried) -> bool {
    let mut look = libc::pollfd {
        fd: socket.inner(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one entry.
    let ready = unsafe { rsockets::poll(&raw mut look, 1, 0) } > 0;
    !ready || settle(fd, socket)
}

/// A connect under way has finished: if it failed, TCP is tried in its place. Answers whether the socket is still carried.
pub(crate) fn settle(fd: c_int, socket: &'static Carried) -> bool {
    if !socket.clear(Flag::Connecting) {
        return true;
    }
    let error = match rsockets::option(socket.inner(), libc::SOL_SOCKET, libc::SO_ERROR) {
        Ok(0) => return true,
        Ok(error) | Err(error) => error,
    };
    let (local, peer) = {
        let addresses = socket.addresses.lock();
        (addresses.local, addresses.peer)
    };
    let error = match peer.filter(|_| may_fall_back(socket)) {
        None => error,
        Some(peer) => match connect_plain(fd, local, &peer) {
            0 | libc::EINPROGRESS => {
                fall_back(socket);
                return false;
            }
            error => error,
        },
    };
    socket.error.store(error, Ordering::Release);
    true
}

fn connect_plain(fd: c_int, local: Option<Address>, peer: &Address) -> c_int {
    // SAFETY: the address is one.
    if bind_plain(fd, local) == 0 && unsafe { next::connect(fd, peer.as_ptr(), peer.length()) } == 0 {
        return 0;
    }
    errno::last()
}

/// Binds the plain socket to where its rsocket was bound, if that was anywhere.
pub(crate) fn bind_plain(fd: c_int, local: Option<Address>) -> c_int {
    match local {
        // SAFETY: the address is one.
        Some(local) => unsafe { next::bind(fd, local.as_ptr(), local.length()) },
        None => 0,
    }
}

/// Whether a socket that cannot be connected by RDMA is connected by TCP: a stream, for only there does connecting fail.
pub(crate) fn may_fall_back(socket: &Carried) -> bool {
    config().falls_back && socket.kind.load(Ordering::Relaxed) == libc::SOCK_STREAM
}

/// The socket is carried no more: from now on calls on its descriptors go to the plain socket that they have always named.
pub(crate) fn fall_back(socket: &'static Carried) {
    let named = all(0).filter(|(_, other)| std::ptr::eq(*other, socket));
    let fds: Vec<c_int> = named.map(|(fd, _)| fd).collect();
    for fd in fds {
        if let Some((socket, true)) = forget(fd) {
            end(socket);
        }
        watch::hand_over(fd);
    }
}
