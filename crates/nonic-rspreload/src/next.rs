//! The functions of the C library that ours stand in front of.
//!
//! Each is called as its manual page says; that is the contract of these `unsafe` functions.

use crate::symbol::{Symbol, functions};
use libc::{
    c_int, c_long, c_uint, c_ulong, c_void, epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd,
    sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};

functions! { libc::RTLD_NEXT;
    fn socket = c"socket"(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn bind = c"bind"(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    fn listen = c"listen"(fd: c_int, backlog: c_int) -> c_int;
    fn accept4 = c"accept4"(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    fn connect = c"connect"(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    fn shutdown = c"shutdown"(fd: c_int, how: c_int) -> c_int;
    fn getpeername = c"getpeername"(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn getsockname = c"getsockname"(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn getsockopt = c"getsockopt"(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    fn setsockopt = c"setsockopt"(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;

    fn recv = c"recv"(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    fn recvfrom = c"recvfrom"(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int, address: *mut sockaddr, address_length: *mut socklen_t) -> ssize_t;
    fn recvmsg = c"recvmsg"(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn read = c"read"(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t;
    fn readv = c"readv"(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    fn send = c"send"(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    fn sendto = c"sendto"(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int, address: *const sockaddr, address_length: socklen_t) -> ssize_t;
    fn sendmsg = c"sendmsg"(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn write = c"write"(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t;
    fn writev = c"writev"(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    fn sendfile = c"sendfile"(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn read_checked = c"__read_chk"(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t) -> ssize_t;
    fn recv_checked = c"__recv_chk"(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t, flags: c_int) -> ssize_t;
    fn recvfrom_checked = c"__recvfrom_chk"(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t, flags: c_int, address: *mut sockaddr, address_length: *mut socklen_t) -> ssize_t;

    fn poll = c"poll"(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int;
    fn ppoll = c"ppoll"(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn poll_checked = c"__poll_chk"(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int, room: size_t) -> c_int;
    fn ppoll_checked = c"__ppoll_chk"(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int;
    fn select = c"select"(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    fn pselect = c"pselect"(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn epoll_ctl = c"epoll_ctl"(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn epoll_pwait = c"epoll_pwait"(epoll: c_int, events: *mut epoll_event, room: c_int, timeout_ms: c_int, mask: *const sigset_t) -> c_int;
    fn epoll_pwait2 = c"epoll_pwait2"(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;

    fn close = c"close"(fd: c_int) -> c_int;
    fn close_range = c"close_range"(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn dup = c"dup"(fd: c_int) -> c_int;
    fn dup2 = c"dup2"(old: c_int, new: c_int) -> c_int;
    fn dup3 = c"dup3"(old: c_int, new: c_int, flags: c_int) -> c_int;
}

/// `fcntl`, whose third argument may be anything that fits a register.
pub(crate) unsafe fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    static SYMBOL: Symbol = Symbol::new(c"fcntl");
    let Some(address) = SYMBOL.find_next() else {
        return nonic_abi::errno::fail(libc::ENOSYS);
    };
    // SAFETY: that is its signature.
    let function: unsafe extern "C" fn(c_int, c_int, ...) -> c_int = unsafe { std::mem::transmute(address) };
    // SAFETY: the caller keeps to its contract.
    unsafe { function(fd, command, argument) }
}

/// `ioctl`, likewise.
pub(crate) unsafe fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    static SYMBOL: Symbol = Symbol::new(c"ioctl");
    let Some(address) = SYMBOL.find_next() else {
        return nonic_abi::errno::fail(libc::ENOSYS);
    };
    // SAFETY: that is its signature.
    let function: unsafe extern "C" fn(c_int, c_ulong, ...) -> c_int =
        unsafe { std::mem::transmute(address) };
    // SAFETY: the caller keeps to its contract.
    unsafe { function(fd, request, argument) }
}
