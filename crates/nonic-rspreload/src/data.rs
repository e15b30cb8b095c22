//! Data transfer: every call that sends or receives bytes.

use crate::route::route;
use crate::table::{Carried, Flag};
use crate::timed::{Patience, readable_in_time, send_in_time};
use crate::{next, rsockets, watch};
use libc::{c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use nonic_abi::errno;

/// Flags that say something to TCP and nothing to RDMA.
const MEANINGLESS: c_int = libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_CMSG_CLOEXEC;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn recv(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t {
    route!(fd,
    // SAFETY: the caller's.
    unsafe { next::recv(fd, buffer, length, flags) },
    // SAFETY: the caller's.
    socket => receive(fd, socket, flags, |inner, flags| unsafe {
        rsockets::recv(inner, buffer, length, flags)
    }))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> ssize_t {
    route!(fd,
    // SAFETY: the caller's.
    unsafe { next::recvfrom(fd, buffer, length, flags, address, address_length) },
    // SAFETY: the caller's.
    socket => receive(fd, socket, flags, |inner, flags| unsafe {
        rsockets::recvfrom(inner, buffer, length, flags, address, address_length)
    }))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    route!(fd,
    // SAFETY: the caller's.
    unsafe { next::recvmsg(fd, message, flags) },
    socket => receive(fd, socket, flags, |inner, flags| {
        // SAFETY: the caller's.
        let answer = unsafe { rsockets::recvmsg(inner, message, flags) };
        if answer >= 0 {
            // SAFETY: the caller's. There are no control messages.
            unsafe {
                (*message).msg_controllen = 0;
                (*message).msg_flags = 0;
            }
        }
        answer
    }))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
    route!(fd,
    // SAFETY: the caller's.
    unsafe { next::read(fd, buffer, length) },
    // SAFETY: the caller's.
    socket => receive(fd, socket, 0, |inner, flags| unsafe {
        rsockets::recv(inner, buffer, length, flags)
    }))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    route!(fd,
        // SAFETY: the caller's.
        unsafe { next::readv(fd, pieces, count) },
        // SAFETY: the caller's.
        socket => receive(fd, socket, 0, |inner, _| unsafe { rsockets::readv(inner, pieces, count) }))
}

/// Receives, within the time that the program set (`SO_RCVTIMEO`).
fn receive(
    fd: c_int,
    socket: &Carried,
    flags: c_int,
    receive: impl FnOnce(c_int, c_int) -> ssize_t,
) -> ssize_t {
    if !readable_in_time(fd, socket, flags) {
        return -1;
    }
    let answer = receive(socket.inner(), flags & !MEANINGLESS);
    watch::used(fd, socket);
    answer
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn send(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t {
    route!(fd,
        // SAFETY: the caller's.
        unsafe { next::send(fd, buffer, length, flags) },
        // SAFETY: the caller's.
        socket => unsafe { send_one(fd, socket, buffer, length, flags) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    route!(fd,
        // SAFETY: the caller's.
        unsafe { next::write(fd, buffer, length) },
        // SAFETY: the caller's.
        socket => unsafe { send_one(fd, socket, buffer, length, 0) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
) -> ssize_t {
    route!(fd,
    // SAFETY: the caller's.
    unsafe { next::sendto(fd, buffer, length, flags, address, address_length) },
    socket => if address.is_null() {
        // SAFETY: the caller's.
        unsafe { send_one(fd, socket, buffer, length, flags) }
    } else {
        // SAFETY: the caller's.
        sent(fd, socket, flags, unsafe {
            rsockets::sendto(socket.inner(), buffer, length, flags & !MEANINGLESS, address, address_length)
        })
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    route!(fd,
    // SAFETY: the caller's.
    unsafe { next::sendmsg(fd, message, flags) },
    socket => {
        // SAFETY: the caller's.
        let pieces = unsafe { slice((*message).msg_iov, (*message).msg_iovlen) };
        match Patience::of_send(fd, socket, flags) {
            Some(patience) => sent(fd, socket, flags, send_in_time(socket, pieces, flags, patience)),
            // SAFETY: the caller's.
            None => sent(fd, socket, flags, unsafe {
                rsockets::sendmsg(socket.inner(), message, flags & !MEANINGLESS)
            }),
        }
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    route!(fd,
    // SAFETY: the caller's.
    unsafe { next::writev(fd, pieces, count) },
    socket => match Patience::of_send(fd, socket, 0) {
        Some(patience) => {
            // SAFETY: the caller's.
            let pieces = unsafe { slice(pieces, usize::try_from(count).unwrap_or(0)) };
            sent(fd, socket, 0, send_in_time(socket, pieces, 0, patience))
        }
        // SAFETY: the caller's.
        None => sent(fd, socket, 0, unsafe { rsockets::writev(socket.inner(), pieces, count) }),
    })
}

/// Sends one piece of memory.
///
/// # Safety
/// As `send`.
pub(crate) unsafe fn send_one(
    fd: c_int,
    socket: &Carried,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    let answer = match Patience::of_send(fd, socket, flags) {
        Some(patience) => {
            let piece = iovec {
                iov_base: buffer.cast_mut(),
                iov_len: length,
            };
            send_in_time(socket, &[piece], flags, patience)
        }
        // SAFETY: the caller's.
        None => unsafe { rsockets::send(socket.inner(), buffer, length, flags & !MEANINGLESS) },
    };
    sent(fd, socket, flags, answer)
}

/// What was sent, and the `SIGPIPE` that a program gets for writing to a connection that its peer no longer reads.
///
/// rsockets say `ECONNRESET` whenever the connection is gone; TCP says so once, then that the pipe is broken.
fn sent(fd: c_int, socket: &Carried, flags: c_int, answer: ssize_t) -> ssize_t {
    watch::used(fd, socket);
    if answer >= 0 {
        return answer;
    }
    let broken = match errno::last() {
        libc::EPIPE => true,
        libc::ECONNRESET => socket.set(Flag::Reset),
        _ => false,
    };
    if !broken {
        return answer;
    }
    if flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: a signal number.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    errno::fail(libc::EPIPE)
}

/// # Safety
/// There are so many, or none.
unsafe fn slice<'a>(pieces: *const iovec, count: usize) -> &'a [iovec] {
    if pieces.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(pieces, count) }
}

// What programs compiled with `_FORTIFY_SOURCE` call instead, with the size of the buffer where the compiler knows it.
// The C library's functions end the program if it is too small; ours pass such a call on to them.

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __read_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t) -> ssize_t {
    if length > room {
        // SAFETY: the caller's.
        return unsafe { next::read_checked(fd, buffer, length, room) };
    }
    // SAFETY: the caller's.
    unsafe { read(fd, buffer, length) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if length > room {
        // SAFETY: the caller's.
        return unsafe { next::recv_checked(fd, buffer, length, room, flags) };
    }
    // SAFETY: the caller's.
    unsafe { recv(fd, buffer, length, flags) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> ssize_t {
    if length > room {
        // SAFETY: the caller's.
        return unsafe { next::recvfrom_checked(fd, buffer, length, room, flags, address, address_length) };
    }
    // SAFETY: the caller's.
    unsafe { recvfrom(fd, buffer, length, flags, address, address_length) }
}
