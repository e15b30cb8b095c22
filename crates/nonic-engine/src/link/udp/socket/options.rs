//! Socket options that neither `quinn-udp` nor the safe wrappers cover.

use crate::os::socket_option::set;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use quinn_udp::EcnCodepoint;
use rustix::net::sockopt;

/// Switches off the control messages that `quinn-udp` asks for with every packet and this crate does not read.
///
/// The time stamp (of 0.6.2 and newer) makes the kernel read the clock for every packet, and on IPv6 it crowds
/// the ECN bits out of the control buffer. The destination address is known already unless the socket is bound to the
/// wildcard.
pub(super) fn trim(socket: &impl AsFd, local_address: SocketAddr) -> io::Result<()> {
    switch_off(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)?;
    match local_address {
        address if address.ip().is_unspecified() => Ok(()),
        SocketAddr::V4(_) => switch_off(socket, libc::IPPROTO_IP, libc::IP_PKTINFO),
        SocketAddr::V6(_) => switch_off(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    }
}

/// Lets routers mark what we send instead of dropping it (ECN): we react to the notifications that marks provoke.
pub(super) fn declare_markable(socket: &impl AsFd, local_address: SocketAddr) -> io::Result<()> {
    let class = EcnCodepoint::Ect0 as libc::c_int;
    match local_address {
        SocketAddr::V4(_) => set(socket, libc::IPPROTO_IP, libc::IP_TOS, class),
        SocketAddr::V6(_) => set(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class),
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

/// The process at the other end of a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// The process; `None` if it lives outside our PID namespace.
    pub(crate) pid: Option<u32>,
    /// Its effective user.
    pub(crate) uid: u32,
}

/// The process that connected, or listened, at the other end of a Unix socket: as of that moment, by the kernel's word.
///
/// Asked of the kernel directly: it answers process 0 for one outside our PID namespace, which the safe wrapper's type
/// excludes.
pub(crate) fn peer_credentials(socket: &impl AsFd) -> io::Result<Credentials> {
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
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    let pid = u32::try_from(peer.pid).ok().filter(|pid| *pid != 0);
    Ok(Credentials { pid, uid: peer.uid })
}

/// Takes IPv6 datagrams without a UDP checksum, which Linux's rxe and RDMA hardware send.
///
/// The kernel drops them unless told otherwise (RFC 6935 has the conditions: a checksum of the payload's own that
/// covers the addresses, which the ICRC is). What we send has one.
pub(super) fn accept_unchecked(socket: &impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, 1)
}

/// Sends IPv6 datagrams without a UDP checksum.
#[cfg(test)]
pub(super) fn send_unchecked(socket: &impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_TX, 1)
}

/// Has the kernel report ICMP errors about what an unconnected socket sent.
pub(super) fn report_errors(socket: &impl AsFd, local_address: SocketAddr) -> io::Result<()> {
    match local_address {
        SocketAddr::V4(_) => set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1),
        SocketAddr::V6(_) => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
    }
}

fn switch_off(socket: &impl AsFd, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    set(socket, level, option, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{RecvBatch, WireSocket};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::net::UdpSocket;

    #[test]
    fn an_ipv6_datagram_without_a_checksum_arrives() {
        let localhost = "[::1]:0".parse().expect("an address");
        let receiver = WireSocket::bind(localhost).expect("a free port");
        let sender = UdpSocket::bind(localhost).expect("a free port");
        send_unchecked(&sender).expect("the kernel knows the option");
        sender
            .send_to(b"unchecked", receiver.local_addr())
            .expect("loopback takes it");
        let patience = Timespec {
            tv_sec: 5,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(&receiver, PollFlags::IN)], Some(&patience)).expect("poll works");
        let mut batch = RecvBatch::new(1);
        receiver.recv(&mut batch).expect("not dropped by the kernel");
        assert_eq!(
            batch.iter().next().map(|entry| entry.bytes),
            Some(&b"unchecked"[..])
        );
    }
}
