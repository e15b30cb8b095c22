//! From a carried socket to a connection: `bind`, `listen`, `accept`, `connect`; and back to TCP, where RDMA does
//! not reach.
//!
//! Falling back happens in `bind` (no device has the address) and in `connect` (nobody answers or listens there by
//! RDMA). A `connect` that was told to take its time fails later, in some call that finds out ([`settle`]); then
//! TCP is tried in its place, and the program goes on waiting.
//!
//! Read first: [`target`], with which every call on a descriptor begins.

use crate::config::config;
use crate::life::{adopt, end, finish_at_exit};
use crate::table::{Address, Carried, Flag, all, carried, forget};
use crate::{epoll, next, rsockets};
use libc::{c_int, sockaddr, socklen_t};
use nonic_abi::errno;
use std::sync::atomic::Ordering;

/// Whom a call on a descriptor is for.
pub(crate) enum Target {
    /// The C library.
    Plain,
    /// The rsocket of this socket.
    Carried(&'static Carried),
    /// Nobody: it fails with this.
    Refused(c_int),
}

/// Whom a call on this descriptor is for. A connection in the making is looked after first.
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
        match $crate::connect::target($fd) {
            $crate::connect::Target::Plain => $plain,
            $crate::connect::Target::Carried($socket) => $carried,
            $crate::connect::Target::Refused(errno) => ::nonic_abi::errno::fail(errno),
        }
    };
}
pub(crate) use route;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's, here and below.
    let plain = || unsafe { next::bind(fd, address, length) };
    route!(fd, plain(), socket => {
        // SAFETY: the caller's.
        if unsafe { rsockets::bind(socket.inner(), address, length) } == 0 {
            finish_at_exit();
            // SAFETY: the caller's.
            socket.addresses.lock().local = unsafe { Address::copy(address, length) };
            return 0;
        }
        let unreachable = matches!(errno::last(), libc::ENODEV | libc::EADDRNOTAVAIL);
        if !unreachable || !config().falls_back {
            return -1;
        }
        let_go(socket);
        plain()
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    route!(fd,
        // SAFETY: the caller's.
        unsafe { next::listen(fd, backlog) },
        socket => {
            // SAFETY: the caller's.
            let answer = unsafe { rsockets::listen(socket.inner(), backlog) };
            if answer == 0 {
                finish_at_exit();
                socket.set(Flag::Listening);
            }
            answer
        }
    )
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { accept4(fd, address, length, 0) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    route!(fd,
        // SAFETY: the caller's.
        unsafe { next::accept4(fd, address, length, flags) },
        socket => {
            let (domain, kind) = (socket.domain.load(Ordering::Relaxed), socket.kind.load(Ordering::Relaxed));
            // First, so that a connection is not taken from the queue for want of a descriptor.
            // SAFETY: any arguments may be passed.
            let new = unsafe { next::socket(domain, kind | flags, 0) };
            if new < 0 {
                return new;
            }
            // SAFETY: the caller's.
            let inner = unsafe { rsockets::accept(socket.inner(), address, length) };
            epoll::used(fd, socket);
            if inner < 0 {
                let errno = errno::last();
                // SAFETY: it is ours, and nobody has seen it.
                unsafe { next::close(new) };
                return errno::fail(errno);
            }
            adopt(new, inner, domain, kind | flags);
            new
        }
    )
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's, here and below.
    let plain = || unsafe { next::connect(fd, address, length) };
    route!(fd, plain(), socket => {
        epoll::used(fd, socket);
        let error = match socket.error.swap(0, Ordering::AcqRel) {
            0 => {
                // SAFETY: the caller's.
                let answer = unsafe { rsockets::connect(socket.inner(), address, length) };
                let error = errno::last();
                finish_at_exit();
                if answer == 0 {
                    return 0;
                }
                error
            }
            // An attempt before this one has failed; the program asks how it went by trying again.
            error => return errno::fail(error),
        };
        match error {
            libc::EINPROGRESS => {
                // SAFETY: the caller's.
                socket.addresses.lock().peer = unsafe { Address::copy(address, length) };
                socket.set(Flag::Connecting);
                errno::fail(error)
            }
            libc::EALREADY | libc::EISCONN | libc::EINTR | libc::EINVAL | libc::EFAULT => errno::fail(error),
            _ if !falls_back(socket) => errno::fail(error),
            _ => {
                let local = socket.addresses.lock().local;
                let_go(socket);
                match bind_plain(fd, local) {
                    0 => plain(),
                    failed => failed,
                }
            }
        }
    })
}

/// Looks whether a connection in the making has been made. Answers whether the socket is still carried.
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

/// The rsocket of a connection in the making has something to say: it is made, or failed, and TCP is tried.
/// Answers whether the socket is still carried.
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
    let error = match peer.filter(|_| falls_back(socket)) {
        None => error,
        Some(peer) => match connect_plain(fd, local, &peer) {
            0 | libc::EINPROGRESS => {
                let_go(socket);
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

fn bind_plain(fd: c_int, local: Option<Address>) -> c_int {
    match local {
        // SAFETY: the address is one.
        Some(local) => unsafe { next::bind(fd, local.as_ptr(), local.length()) },
        None => 0,
    }
}

/// Only a stream's failure shows when connecting.
fn falls_back(socket: &Carried) -> bool {
    config().falls_back && socket.kind.load(Ordering::Relaxed) == libc::SOCK_STREAM
}

/// The socket is carried no more: its descriptors are the plain socket that they have been all along.
fn let_go(socket: &'static Carried) {
    let named = all(0).filter(|(_, other)| std::ptr::eq(*other, socket));
    let fds: Vec<c_int> = named.map(|(fd, _)| fd).collect();
    for fd in fds {
        if let Some((socket, true)) = forget(fd) {
            end(socket);
        }
        epoll::let_go(fd);
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    route!(fd,
        // SAFETY: the caller's.
        unsafe { next::shutdown(fd, how) },
        // SAFETY: the caller's.
        socket => unsafe { rsockets::shutdown(socket.inner(), how) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    route!(fd,
        // SAFETY: the caller's.
        unsafe { next::getpeername(fd, address, length) },
        // SAFETY: the caller's.
        socket => unsafe { rsockets::getpeername(socket.inner(), address, length) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    route!(fd,
        // SAFETY: the caller's.
        unsafe { next::getsockname(fd, address, length) },
        // SAFETY: the caller's.
        socket => unsafe { rsockets::getsockname(socket.inner(), address, length) })
}
