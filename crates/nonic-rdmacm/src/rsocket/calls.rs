//! The functions of `<rdma/rsocket.h>`.
//!
//! Each finds the socket and passes on; what a call means is with the kind of socket.

use super::datagram::DatagramSocket;
use super::protocol::Ending;
use super::settings::Settings;
use super::socket::Socket;
use super::stream::StreamSocket;
use super::vector::{Vector, one};
use super::{poll, table};
use crate::convert::{address, storage};
use crate::refusal::ANSWER;
use libc::{
    c_int, c_long, c_void, fd_set, iovec, msghdr, nfds_t, off_t, pollfd, size_t, sockaddr, socklen_t,
    ssize_t, timeval,
};
use nonic_abi::errno::{Errno, refused};
use std::net::SocketAddr;
use std::sync::Arc;

fn find(fd: c_int) -> Result<Arc<dyn Socket>, Errno> {
    table::find(fd).ok_or_else(|| {
        refused(
            libc::EBADF,
            format!("{fd} is no rsocket"),
            "pass what rsocket or raccept returned; files and ordinary sockets have calls of their own",
        )
    })
}

/// For calls that only streams have.
fn stream(fd: c_int) -> Result<Arc<StreamSocket>, Errno> {
    find(fd)?.into_any().downcast().map_err(|_| {
        refused(
            libc::EOPNOTSUPP,
            "a datagram socket has no connections and no mapped memory",
            "use a socket of SOCK_STREAM",
        )
    })
}

/// The answer of a call that answers a number or −1.
fn number<T: TryInto<ssize_t>>(call: &str, result: Result<T, Errno>) -> ssize_t {
    let number = result.map(|number| number.try_into().unwrap_or(ssize_t::MAX));
    ANSWER.or_minus_one(call, number)
}

/// Writes an address where the program wants it, cut to the room there is.
///
/// # Safety
///
/// The pointers are the program's.
unsafe fn store(name: SocketAddr, to: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
    if to.is_null() || len.is_null() {
        return Err(refused(
            libc::EFAULT,
            "addr or addrlen is NULL",
            "pass where to put the name",
        ));
    }
    let size = match name {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    };
    let from = storage(name);
    // SAFETY: the caller's promise; no more than there is room for.
    unsafe {
        let room = size.min(*len as usize);
        std::ptr::copy_nonoverlapping((&raw const from).cast::<u8>(), to.cast::<u8>(), room);
        *len = size as socklen_t;
    }
    Ok(())
}

fn create(domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int, Errno> {
    if !matches!(domain, libc::AF_INET | libc::AF_INET6) {
        return Err(refused(
            libc::EAFNOSUPPORT,
            format!("domain {domain} is not offered"),
            "use AF_INET or AF_INET6",
        ));
    }
    let mut settings = Settings::new();
    if kind & libc::SOCK_NONBLOCK != 0 {
        settings.file_flags |= libc::O_NONBLOCK;
    }
    if kind & libc::SOCK_CLOEXEC != 0 {
        settings.descriptor_flags |= libc::FD_CLOEXEC;
    }
    match (kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC), protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
            let socket = StreamSocket::new(settings, domain == libc::AF_INET6)?;
            Ok(table::insert(socket))
        }
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
            let socket = DatagramSocket::new(settings, domain == libc::AF_INET6)?;
            Ok(table::insert(Arc::new(socket)))
        }
        _ => Err(refused(
            libc::ENOTSUP,
            format!("type {kind:#x} with protocol {protocol} is not offered"),
            "use SOCK_STREAM or SOCK_DGRAM with protocol 0",
        )),
    }
}

#[unsafe(no_mangle)]
extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    number("rsocket", create(domain, kind, protocol)) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rbind(fd: c_int, local: *const sockaddr, _len: socklen_t) -> c_int {
    // SAFETY: the program passes an address.
    ANSWER.minus_one(
        "rbind",
        find(fd).and_then(|socket| {
            // SAFETY: as above.
            let local = unsafe { address(local) }?;
            socket.bind(local)
        }),
    )
}

#[unsafe(no_mangle)]
extern "C" fn rlisten(fd: c_int, backlog: c_int) -> c_int {
    ANSWER.minus_one("rlisten", stream(fd).and_then(|socket| socket.listen(backlog)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn raccept(fd: c_int, peer: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let accepted = stream(fd).and_then(|socket| socket.next_connection());
    if let &Ok(fd) = &accepted {
        if !peer.is_null() && !len.is_null() {
            // SAFETY: the program passes where to put the name.
            unsafe { rgetpeername(fd, peer, len) };
        }
    }
    number("raccept", accepted) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rconnect(fd: c_int, remote: *const sockaddr, _len: socklen_t) -> c_int {
    ANSWER.minus_one(
        "rconnect",
        find(fd).and_then(|socket| {
            // SAFETY: the program passes an address.
            let remote = unsafe { address(remote) }?;
            socket.connect(remote)
        }),
    )
}

#[unsafe(no_mangle)]
extern "C" fn rshutdown(fd: c_int, how: c_int) -> c_int {
    ANSWER.minus_one(
        "rshutdown",
        find(fd).and_then(|socket| {
            socket.shut_down(match how {
                libc::SHUT_RD => Ending::Reading,
                libc::SHUT_WR => Ending::Writing,
                libc::SHUT_RDWR => Ending::Both,
                _ => {
                    return Err(refused(
                        libc::EINVAL,
                        format!("how is {how}"),
                        "use SHUT_RD, SHUT_WR or SHUT_RDWR",
                    ));
                }
            })
        }),
    )
}

#[unsafe(no_mangle)]
extern "C" fn rclose(fd: c_int) -> c_int {
    ANSWER.minus_one(
        "rclose",
        table::remove(fd).map(|socket| {
            if let Some(socket) = socket {
                socket.close();
            }
        }),
    )
}

/// Where a message comes from goes to the name, if there is one.
///
/// # Safety
///
/// The buffers are the program's.
unsafe fn receive(fd: c_int, buffers: &[iovec], flags: c_int) -> Result<(usize, Option<SocketAddr>), Errno> {
    // SAFETY: the caller's promise.
    let mut vector = unsafe { Vector::new(buffers) };
    find(fd)?.receive(&mut vector, flags)
}

/// # Safety
///
/// The buffers are the program's.
unsafe fn send(fd: c_int, buffers: &[iovec], to: Option<SocketAddr>, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let mut vector = unsafe { Vector::new(buffers) };
    find(fd)?.send(&mut vector, to, flags)
}

/// # Safety
///
/// The pointer is NULL or to an address.
unsafe fn optional(pointer: *const sockaddr) -> Result<Option<SocketAddr>, Errno> {
    match pointer.is_null() {
        true => Ok(None),
        // SAFETY: the caller's promise.
        false => unsafe { address(pointer) }.map(Some),
    }
}

/// # Safety
///
/// The vector is the program's.
unsafe fn vector<'a>(buffers: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    if count == 0 {
        return Ok(&[]);
    }
    if buffers.is_null() || count > libc::UIO_MAXIOV as usize {
        return Err(refused(
            libc::EINVAL,
            format!("iov is NULL, or iovcnt {count} above {}", libc::UIO_MAXIOV),
            "pass a vector with iovcnt elements",
        ));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(buffers, count) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rrecv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program passes its buffer.
    number(
        "rrecv",
        unsafe { receive(fd, &one(buffer, len), flags) }.map(|(length, _)| length),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rread(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the same arguments.
    unsafe { rrecv(fd, buffer, len, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rrecvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    source: *mut sockaddr,
    source_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the program passes its buffer and where to put the name.
    number("rrecvfrom", unsafe {
        receive(fd, &one(buffer, len), flags).map(|(length, from)| {
            if let (Some(from), false) = (from, source.is_null() || source_len.is_null()) {
                // It cannot fail: both pointers are there.
                let _ = store(from, source, source_len);
            }
            length
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rreadv(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program passes its vector.
    number("rreadv", unsafe {
        let received = vector(buffers, count.max(0) as usize).and_then(|buffers| receive(fd, buffers, 0));
        received.map(|(length, _)| length)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program passes its message.
    number("rrecvmsg", unsafe {
        message
            .as_mut()
            .ok_or_else(|| refused(libc::EFAULT, "msg is NULL", "pass a message"))
            .and_then(|message| {
                let (length, from) = receive(fd, vector(message.msg_iov, message.msg_iovlen)?, flags)?;
                message.msg_controllen = 0;
                message.msg_flags = 0;
                match from {
                    Some(from) if !message.msg_name.is_null() => {
                        store(from, message.msg_name.cast(), &raw mut message.msg_namelen)?;
                    }
                    _ => message.msg_namelen = 0,
                }
                Ok(length)
            })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsend(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program passes its buffer.
    number("rsend", unsafe { send(fd, &one(buffer, len), None, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rwrite(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the same arguments.
    unsafe { rsend(fd, buffer, len, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    destination: *const sockaddr,
    _destination_len: socklen_t,
) -> ssize_t {
    // SAFETY: the program passes its buffer and an address or NULL.
    number("rsendto", unsafe {
        optional(destination).and_then(|to| send(fd, &one(buffer, len), to, flags))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rwritev(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program passes its vector.
    number("rwritev", unsafe {
        vector(buffers, count.max(0) as usize).and_then(|buffers| send(fd, buffers, None, 0))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program passes its message.
    number("rsendmsg", unsafe {
        message
            .as_ref()
            .ok_or_else(|| refused(libc::EFAULT, "msg is NULL", "pass a message"))
            .and_then(|message| {
                if message.msg_controllen > 0 && !message.msg_control.is_null() {
                    return Err(refused(
                        libc::ENOTSUP,
                        "msg has control data, which RDMA does not carry",
                        "send without msg_control; descriptors are passed over Unix sockets",
                    ));
                }
                let to = optional(message.msg_name.cast())?;
                send(fd, vector(message.msg_iov, message.msg_iovlen)?, to, flags)
            })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rpoll(entries: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    let entries = match count {
        0 => &mut [],
        // SAFETY: the program passes that many.
        _ => unsafe { std::slice::from_raw_parts_mut(entries, count as usize) },
    };
    number("rpoll", poll::poll(entries, timeout_ms)) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rselect(
    count: c_int,
    to_read: *mut fd_set,
    to_write: *mut fd_set,
    exceptional: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the program passes its sets.
    number("rselect", unsafe {
        poll::select(count, [to_read, to_write, exceptional], timeout)
    }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rgetpeername(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    ANSWER.minus_one(
        "rgetpeername",
        find(fd).and_then(|socket| {
            // SAFETY: the program passes where to put it.
            unsafe { store(socket.remote_name()?, name, len) }
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rgetsockname(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    ANSWER.minus_one(
        "rgetsockname",
        find(fd).and_then(|socket| {
            // SAFETY: the program passes where to put it.
            unsafe { store(socket.local_name()?, name, len) }
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsetsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    ANSWER.minus_one(
        "rsetsockopt",
        find(fd).and_then(|socket| {
            if value.is_null() {
                return Err(refused(libc::EFAULT, "optval is NULL", "pass a value"));
            }
            // SAFETY: the program passes a value of that length.
            let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len as usize) };
            socket.set_option(level, option, value)
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rgetsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    ANSWER.minus_one(
        "rgetsockopt",
        find(fd).and_then(|socket| {
            // SAFETY: the program passes where to put it.
            unsafe { socket.option(level, option)?.store(value, len) }
        }),
    )
}

/// Variable arguments are passed as fixed ones are, as long as there are few.
#[unsafe(no_mangle)]
extern "C" fn rfcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    number(
        "rfcntl",
        find(fd).and_then(|socket| socket.control(command, argument as c_int)),
    ) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn riomap(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    prot: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    number(
        "riomap",
        stream(fd).and_then(|socket| socket.map(buffer, len, prot, offset)),
    ) as off_t
}

#[unsafe(no_mangle)]
extern "C" fn riounmap(fd: c_int, buffer: *mut c_void, len: size_t) -> c_int {
    ANSWER.minus_one(
        "riounmap",
        stream(fd).and_then(|socket| socket.unmap(buffer, len)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn riowrite(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    offset: off_t,
    flags: c_int,
) -> size_t {
    let written = stream(fd).and_then(|socket| {
        let buffers = one(buffer, len);
        // SAFETY: the program passes its buffer.
        let mut vector = unsafe { Vector::new(&buffers) };
        socket.write_at(&mut vector, offset, flags)
    });
    number("riowrite", written) as size_t
}

// What `librspreload.so` calls has the types it is compiled against.
nonic_abi::check_librdmacm!();
