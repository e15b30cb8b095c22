//! The functions and options of `<rdma/rsocket.h>` that `librspreload.so` uses in `librdmacm.so.1`.
//!
//! It looks them up by name when it carries the first socket. The exporting library compares them all with its own
//! (`check_librdmacm!`).

#![allow(non_camel_case_types, reason = "C names, as in the rest of the ABI")]
#![allow(
    missing_docs,
    reason = "rsocket(7) says that each is as its namesake for sockets"
)]

use libc::{c_int, c_void, iovec, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t};

/// The level of the options that only rsockets have.
pub const SOL_RDMA: c_int = 0x10000;
/// Entries of the send queue.
pub const RDMA_SQSIZE: c_int = 0;
/// Entries of the receive queue.
pub const RDMA_RQSIZE: c_int = 1;
/// The most bytes that are sent inline.
pub const RDMA_INLINE: c_int = 2;
/// How many buffers the peer may map.
pub const RDMA_IOMAPSIZE: c_int = 3;
/// The route to the peer.
pub const RDMA_ROUTE: c_int = 4;

/// The one function that is not compared with its definition: its arguments vary, and Rust can call such a function but not
/// define one. Few variable arguments are passed as fixed ones are, so the definition has a third argument instead.
pub type rfcntl = unsafe extern "C" fn(c_int, c_int, ...) -> c_int;

functions! { librdmacm, check_librdmacm;
    extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    extern "C" fn rbind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    extern "C" fn rlisten(fd: c_int, backlog: c_int) -> c_int;
    extern "C" fn raccept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    extern "C" fn rconnect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    extern "C" fn rshutdown(fd: c_int, how: c_int) -> c_int;
    extern "C" fn rclose(fd: c_int) -> c_int;
    extern "C" fn rrecv(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    extern "C" fn rrecvfrom(
        fd: c_int,
        buffer: *mut c_void,
        length: size_t,
        flags: c_int,
        address: *mut sockaddr,
        address_length: *mut socklen_t,
    ) -> ssize_t;
    extern "C" fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    extern "C" fn rreadv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    extern "C" fn rsend(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    extern "C" fn rsendto(
        fd: c_int,
        buffer: *const c_void,
        length: size_t,
        flags: c_int,
        address: *const sockaddr,
        address_length: socklen_t,
    ) -> ssize_t;
    extern "C" fn rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    extern "C" fn rwritev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    extern "C" fn rpoll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int;
    extern "C" fn rgetpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    extern "C" fn rgetsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    extern "C" fn rsetsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *const c_void,
        length: socklen_t,
    ) -> c_int;
    extern "C" fn rgetsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        length: *mut socklen_t,
    ) -> c_int;
}
