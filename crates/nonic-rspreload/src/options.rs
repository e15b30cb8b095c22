//! Options and flags: `setsockopt`, `getsockopt`, `fcntl`, `ioctl`.
//!
//! Options and flags are set on both sockets of a carried one, so that they are there after falling back to TCP. What
//! RDMA does not know is kept by the plain socket, has no effect and can be read again.

use crate::life::copied;
use crate::route::route;
use crate::table::{Carried, Flag, carried};
use crate::{next, rsockets};
use libc::{c_int, c_long, c_ulong, c_void, socklen_t, timeval};
use nonic_abi::errno;
use std::sync::atomic::Ordering;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    // SAFETY: the caller's, here and below.
    let plain = || unsafe { next::setsockopt(fd, level, name, value, length) };
    route!(fd, plain(), socket => {
        // SAFETY: the caller's.
        let rdma = || unsafe { rsockets::setsockopt(socket.inner(), level, name, value, length) };
        match (level, name) {
            (rsockets::SOL_RDMA, _) => rdma(),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => {
                let answer = plain();
                if answer == 0 {
                    // SAFETY: the kernel has just read it from there.
                    limit(socket, name, unsafe { value.cast::<timeval>().read_unaligned() });
                }
                answer
            }
            _ if !means_something(level, name) => plain(),
            _ => {
                let rdma = rdma();
                let plain = plain();
                if rdma == 0 { 0 } else { plain }
            }
        }
    })
}

/// Remembers how long a call may block, rounded up to milliseconds.
fn limit(socket: &Carried, name: c_int, limit: timeval) {
    let total_us = i128::from(limit.tv_sec) * 1_000_000 + i128::from(limit.tv_usec);
    let timeout_ms = c_int::try_from((total_us + 999) / 1000).unwrap_or(c_int::MAX);
    let place = if name == libc::SO_RCVTIMEO {
        &socket.receive_timeout_ms
    } else {
        &socket.send_timeout_ms
    };
    place.store(timeout_ms, Ordering::Relaxed);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's, here and below.
    let plain = || unsafe { next::getsockopt(fd, level, name, value, length) };
    route!(fd, plain(), socket => {
        let known = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => match socket.error.swap(0, Ordering::AcqRel) {
                0 => None,
                error => Some(error),
            },
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => Some(c_int::from(socket.is(Flag::Listening))),
            (
                libc::SOL_SOCKET,
                libc::SO_TYPE | libc::SO_DOMAIN | libc::SO_PROTOCOL | libc::SO_RCVTIMEO | libc::SO_SNDTIMEO,
            ) => return plain(),
            _ if !means_something(level, name) => return plain(),
            _ => None,
        };
        if let Some(known) = known {
            // SAFETY: the caller's.
            return unsafe { answer(known, value, length) };
        }
        // SAFETY: the caller's.
        if unsafe { rsockets::getsockopt(socket.inner(), level, name, value, length) } == 0 {
            return 0;
        }
        if level == rsockets::SOL_RDMA { -1 } else { plain() }
    })
}

/// Whether rsockets can do something about an option. They take any of TCP's, and answer one or zero for it.
fn means_something(level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET | rsockets::SOL_RDMA => true,
        libc::IPPROTO_TCP => matches!(
            name,
            libc::TCP_NODELAY
                | libc::TCP_MAXSEG
                | libc::TCP_KEEPIDLE
                | libc::TCP_KEEPINTVL
                | libc::TCP_KEEPCNT
        ),
        libc::IPPROTO_IPV6 => name == libc::IPV6_V6ONLY,
        _ => false,
    }
}

/// Answers an option that is an integer.
///
/// # Safety
/// `length` says how much room there is at `value`.
unsafe fn answer(known: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's.
    let Some(length) = (unsafe { length.as_mut() }) else {
        return errno::fail(libc::EFAULT);
    };
    let bytes = known.to_ne_bytes();
    let count = (*length as usize).min(bytes.len());
    // SAFETY: the caller's.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), count) };
    *length = count as socklen_t;
    0
}

// The third argument of these two is a C function's optional one. It is passed in a register like any other.

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: the caller's.
    let answer = unsafe { next::fcntl(fd, command, argument) };
    let Some(socket) = carried(fd).filter(|_| answer >= 0) else {
        return answer;
    };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(Some(socket), answer),
        libc::F_SETFL if !socket.is(Flag::Lost) => {
            rsockets::set_nonblocking(socket.inner(), argument as c_int & libc::O_NONBLOCK != 0)
        }
        _ => answer,
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: the caller's.
    unsafe { fcntl(fd, command, argument) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's, here and below.
    let plain = || unsafe { next::ioctl(fd, request, argument) };
    if !matches!(request, libc::FIONBIO | libc::FIONREAD) {
        return plain();
    }
    route!(fd, plain(), socket => match request {
        libc::FIONBIO => match plain() {
            // SAFETY: the kernel has just read it.
            0 => rsockets::set_nonblocking(socket.inner(), unsafe { *argument.cast::<c_int>() } != 0),
            failed => failed,
        },
        _ => {
            let waiting = waiting(socket);
            // SAFETY: the caller's: a place for an integer.
            unsafe { *argument.cast::<c_int>() = waiting };
            0
        }
    })
}

/// How many bytes can be received, as far as a look into the buffer tells.
fn waiting(socket: &Carried) -> c_int {
    let mut buffer = vec![0_u8; 64 << 10];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: the buffer has that much room.
    let count = unsafe { rsockets::recv(socket.inner(), buffer.as_mut_ptr().cast(), buffer.len(), flags) };
    c_int::try_from(count.max(0)).unwrap_or(c_int::MAX)
}
