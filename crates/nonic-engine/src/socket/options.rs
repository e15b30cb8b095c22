//! Socket options that neither `quinn-udp` nor the safe wrappers cover.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::sockopt;

/// Switches off the per-packet notes that `quinn-udp` asks for and nobody here reads.
///
/// The time stamp makes the kernel read the clock for every packet, and on IPv6 it crowds the ECN bits
/// out of the control buffer. The destination address is known already unless the socket is bound to the
/// wildcard.
pub(super) fn trim(socket: &impl AsFd, local_address: SocketAddr) -> io::Result<()> {
    switch_off(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)?;
    match local_address {
        address if address.ip().is_unspecified() => Ok(()),
        SocketAddr::V4(_) => switch_off(socket, libc::IPPROTO_IP, libc::IP_PKTINFO),
        SocketAddr::V6(_) => switch_off(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    }
}

/// Asks for larger buffers: beyond the system's limit if we may, else up to it.
///
/// Refusals are ignored, because a small buffer costs speed and nothing else.
pub(crate) fn grow_buffers(socket: &impl AsFd, bytes: usize) {
    if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(socket, bytes);
    }
    if sockopt::set_socket_send_buffer_size_force(socket, bytes).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(socket, bytes);
    }
}

/// The process at the other end of a Unix stream, as of when it started to listen; `None` if it lives
/// outside our PID namespace.
///
/// Asked of the kernel directly: it answers 0 for such a process, which the safe wrapper's type excludes.
pub(crate) fn peer_pid(stream: &impl AsFd) -> Option<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the descriptor is open for the length of the borrow, and pointer and length describe `peer`,
    // any bit pattern of which is valid.
    let outcome = unsafe {
        libc::getsockopt(
            stream.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if outcome != 0 || peer.pid == 0 {
        None
    } else {
        u32::try_from(peer.pid).ok()
    }
}

fn switch_off(socket: &impl AsFd, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    let off: libc::c_int = 0;
    // SAFETY: the descriptor is open for the length of the borrow, and the pointer and length describe
    // `off`, which outlives the call; the kernel only reads it.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const off).cast(),
            size_of_val(&off) as libc::socklen_t,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
