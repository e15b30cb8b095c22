//! From a carried socket to a connection: `bind`, `listen`, `accept`, `connect`.
//!
//! Falling back to TCP happens in `bind` (no device has the address) and in `connect` (no peer answers or listens there
//! by RDMA), at once or, if `connect` does not block, later ([`route`](crate::route)).

use crate::config::config;
use crate::life::{adopt, finish_at_exit};
use crate::route::{bind_plain, fall_back, may_fall_back, route};
use crate::table::{Address, Flag};
use crate::{next, rsockets, watch};
use libc::{c_int, sockaddr, socklen_t};
use nonic_abi::errno;
use std::sync::atomic::Ordering;

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
        fall_back(socket);
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
            watch::used(fd, socket);
            if inner < 0 {
                let errno = errno::last();
                // SAFETY: it is ours, and the program has not seen it.
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
        watch::used(fd, socket);
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
            _ if !may_fall_back(socket) => errno::fail(error),
            _ => {
                let local = socket.addresses.lock().local;
                fall_back(socket);
                match bind_plain(fd, local) {
                    0 => plain(),
                    failed => failed,
                }
            }
        }
    })
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
