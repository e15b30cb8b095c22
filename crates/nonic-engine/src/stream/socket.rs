//! TCP sockets as iWARP wants them: never blocking, no waiting for more to send, dead peers noticed.
//!
//! Descriptors are ours alone and keep out of the program's way ([`InternalFd`]).

use super::transcript::Transcript;
use crate::netdev::LocalAddress;
use crate::os::descriptors::InternalFd;
use crate::os::socket_option;
use rustix::net::{RecvFlags, SendFlags, Shutdown, sockopt};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A peer that says nothing is asked whether it is there after this time, and again at this interval. RC over UDP learns of
/// a dead peer only when it sends; TCP can do better.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long what was sent may stay unacknowledged before the connection is given up.
const USER_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes that the kernel holds back unsent, about: what is behind them in our queue can still be overtaken by an answer.
const NOTSENT_LOWAT: u32 = 512 * 1024;

/// One end of a TCP connection.
#[derive(Debug)]
pub(super) struct StreamSocket {
    fd: InternalFd,
    /// What is written down of it, if it is.
    pub(super) transcript: Option<Box<Transcript>>,
}

/// What came of reading.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Read {
    /// So many bytes.
    Bytes(usize),
    /// The peer sends no more.
    End,
    /// Nothing now.
    Nothing,
}

impl StreamSocket {
    /// Begins to connect, from this port of ours if it is free: the program knows its identifier by it, and so does the
    /// peer's. Identifiers take ports without asking TCP, so that it may be in use; then any will do. The socket becomes
    /// writable when it is connected, or has failed ([`StreamSocket::error`]).
    pub(super) fn connect(local: LocalAddress, port: u16, remote: SocketAddr) -> io::Result<Self> {
        let wanted = local.with_port(port);
        // A socket would connect to itself.
        if port == 0 || wanted == remote {
            return Self::connect_from(local.with_port(0), remote);
        }
        Self::connect_from(wanted, remote).or_else(|_| Self::connect_from(local.with_port(0), remote))
    }

    fn connect_from(local: SocketAddr, remote: SocketAddr) -> io::Result<Self> {
        let socket = new_socket(remote)?;
        if local.port() == 0 {
            choose_port_later(&socket)?;
        }
        socket.bind(&local.into())?;
        match socket.connect(&remote.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        Self::with_options(socket.into())
    }

    fn with_options(fd: OwnedFd) -> io::Result<Self> {
        let socket = SockRef::from(&fd);
        socket.set_tcp_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
        socket.set_tcp_notsent_lowat(NOTSENT_LOWAT)?;
        Ok(StreamSocket {
            fd: fd.into(),
            transcript: None,
        })
    }

    /// Why connecting failed, if it did.
    pub(super) fn error(&self) -> Option<io::Error> {
        match sockopt::socket_error(&self.fd) {
            Ok(Ok(())) => None,
            Ok(Err(error)) | Err(error) => Some(error.into()),
        }
    }

    /// The addresses of both ends, once it is connected.
    pub(super) fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        let remote = SockRef::from(&self.fd).peer_addr()?;
        Ok((self.local_addr()?, with_port(&remote)?))
    }

    /// The address of this end.
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        with_port(&SockRef::from(&self.fd).local_addr()?)
    }

    /// The longest segment that TCP makes of what is sent, now.
    pub(super) fn segment_size(&self) -> usize {
        let mss = SockRef::from(&self.fd).tcp_mss();
        mss.map_or(DEFAULT_SEGMENT, |mss| mss as usize)
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Read> {
        match rustix::net::recv(&self.fd, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => Ok(Read::End),
            Ok((length, _)) => {
                if let Some(transcript) = &mut self.transcript {
                    transcript.received(&buffer[..length]);
                }
                Ok(Read::Bytes(length))
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Read::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes what there is room for; how much that was.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
            Ok(length) => {
                if let Some(transcript) = &mut self.transcript {
                    transcript.sent(&bytes[..length]);
                }
                Ok(length)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells the peer that nothing follows.
    pub(super) fn finish(&mut self) {
        if let Some(transcript) = &mut self.transcript {
            transcript.finished();
        }
        // A connection that is over already has no peer to tell.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    /// Whether the program has closed it.
    pub(super) fn is_lost(&self) -> bool {
        self.fd.is_lost()
    }
}

fn with_port(address: &socket2::SockAddr) -> io::Result<SocketAddr> {
    Ok(address.as_socket().ok_or(io::ErrorKind::InvalidData)?)
}

impl AsFd for StreamSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What is assumed of a connection whose segment size the kernel does not tell.
const DEFAULT_SEGMENT: usize = 536;

/// Connections that wait in the kernel until a thread accepts them, which is soon. The program's backlog is for requests,
/// and is enforced later ([`super::backlog`]). The kernel allows `net.core.somaxconn` of them.
const KERNEL_BACKLOG: i32 = 4096;

/// A socket that takes connections at one address.
#[derive(Debug)]
pub(super) struct ListeningSocket {
    fd: InternalFd,
}

impl ListeningSocket {
    pub(super) fn bind(local: LocalAddress, port: u16) -> io::Result<Self> {
        let address = local.with_port(port);
        let socket = new_socket(address)?;
        // As servers do: connections of an earlier one may linger.
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(KERNEL_BACKLOG)?;
        let fd: OwnedFd = socket.into();
        Ok(ListeningSocket { fd: fd.into() })
    }

    /// Accepts one connection, if there is one, with the address of its peer. Those that have gone away while they waited
    /// are passed over. An error means that there may be others, but no descriptor or no memory for them.
    pub(super) fn accept(&self) -> io::Result<Option<(StreamSocket, SocketAddr)>> {
        use rustix::io::Errno;
        let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
        loop {
            match rustix::net::acceptfrom_with(&self.fd, flags) {
                Ok((fd, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    if let (Some(peer), Ok(socket)) = (peer, StreamSocket::with_options(fd)) {
                        return Ok(Some((socket, peer)));
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
                // What is wrong with a connection that waits is reported here, too; it is no longer among them then.
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PERM) => {}
                Err(error) if is_of_the_network(error) => {}
                // The program has closed the descriptor, perhaps: other calls find out.
                Err(_) => return Ok(None),
            }
        }
    }
}

/// Errors of a connection that `accept` passes on (accept(2)).
fn is_of_the_network(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(
        error,
        Errno::NETDOWN
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
    )
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Has the kernel choose the port when the socket connects, not when it is bound. It then knows the peer and takes any port that has no
/// connection with that peer. A port for every peer is hard to find among those of connections that ended in the last minute: with
/// 20,000 of them the search takes milliseconds.
fn choose_port_later(socket: &Socket) -> io::Result<()> {
    socket_option::set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

fn new_socket(address: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    // Both flags: a program that forks, or reads from a thread of its own, must not find it waiting.
    let socket = Socket::new(domain, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // Our address may be tentative still: `os::netdev`.
        socket.set_freebind_v6(true)?;
    }
    Ok(socket)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Fails without the option: the kernel then takes a port that no other socket has with any peer.
    #[test]
    fn a_port_is_chosen_when_the_peer_is_known() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback is there");
        let remote = listener.local_addr().expect("it is bound");
        let socket = new_socket(remote).expect("there are descriptors");
        choose_port_later(&socket).expect("the kernel knows the option");
        socket
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .expect("the address is ours");
        let port = |socket: &Socket| {
            let address = socket.local_addr().expect("it is bound");
            address.as_socket().expect("it is an IP address").port()
        };
        assert_eq!(port(&socket), 0);
        let _ = socket.connect(&remote.into());
        assert_ne!(port(&socket), 0);
    }
}
