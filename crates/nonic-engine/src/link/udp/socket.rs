//! The UDP socket under the NIC: batched, never fragmenting, never connected.
//!
//! [`WireSocket`] is `quinn-udp` with the settings the ICRC depends on. The checksum covers the IPv4
//! Identification field, which the kernel fills in after us. Linux writes 0 there (or the index of the
//! segment within a batch) for sockets that are *unconnected* and always set *don't fragment*; for any
//! other socket the value cannot be known in advance. So this module refuses to connect a socket and
//! refuses to run where fragmentation cannot be switched off.
//!
//! It also refuses to look inside datagrams, to queue, and to block: what the kernel does not take now is
//! [`WouldBlock`](io::ErrorKind::WouldBlock), and every other error surfaces too.
//!
//! Read first: [`WireSocket::send`], [`WireSocket::recv`], [`RecvBatch`].

mod batch;
mod options;
mod refusals;
mod single;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::os::descriptors::InternalFd;
use quinn_udp::{EcnCodepoint, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

pub use crate::link::datagrams::Datagrams;
pub use batch::RecvBatch;
pub use nonic_wire::ROCE_PORT;
pub(crate) use options::{Credentials, grow_buffers, peer_credentials};
use refusals::Refusals;

/// What is asked for as send and receive buffer; the kernel grants what its limits allow.
const BUFFER_BYTES: usize = 4 << 20;

/// How often a call is made again that failed because of an earlier datagram. Only a flood of ICMP messages needs more.
const MAX_FALSE_FAILURES: usize = 3;

/// A UDP socket bound to one address and port.
#[derive(Debug)]
pub struct WireSocket {
    socket: InternalFd,
    state: UdpSocketState,
    local_address: SocketAddr,
    refusals: Refusals,
}

impl WireSocket {
    /// Binds to an address; port 0 lets the kernel choose.
    ///
    /// No other socket can bind the same address and port: [`io::ErrorKind::AddrInUse`] means that one already has.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::bind_new(new_socket(address)?, address)
    }

    /// Binds to an address and port that other processes of this user may bind too, each with a socket of its own.
    ///
    /// A datagram goes to one of them. [`io::ErrorKind::AddrInUse`] means that another user has the port, or a socket that
    /// does not share it.
    pub fn bind_shared(address: SocketAddr) -> io::Result<Self> {
        let socket = new_socket(address)?;
        socket.set_reuse_port(true)?;
        Self::bind_new(socket, address)
    }

    fn bind_new(socket: Socket, address: SocketAddr) -> io::Result<Self> {
        if let SocketAddr::V4(address) = address {
            if !address.ip().is_unspecified() {
                // Multicast leaves through the interface that owns our address. IPv6 sockets are told by
                // `set_multicast_interface`, since the kernel takes only an index there.
                socket.set_multicast_if_v4(address.ip())?;
            }
        }
        socket.bind(&address.into())?;
        Self::wrap(socket)
    }

    /// Joins a multicast group on one interface and receives what is sent to it, and nothing else.
    ///
    /// Any number of sockets, in any number of processes, can do this for one group: each gets its own
    /// copy of every datagram.
    pub fn bind_multicast(group: IpAddr, port: u16, interface_index: u32) -> io::Result<Self> {
        if !group.is_multicast() {
            return Err(invalid("not a multicast address"));
        }
        let address = match group {
            IpAddr::V4(_) => SocketAddr::new(group, port),
            IpAddr::V6(group) => SocketAddrV6::new(group, port, 0, interface_index).into(),
        };
        let socket = new_socket(address)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        match group {
            IpAddr::V4(group) => {
                // Without this, the kernel also delivers groups that other sockets joined elsewhere.
                socket.set_multicast_all_v4(false)?;
                let interface = socket2::InterfaceIndexOrAddress::Index(interface_index);
                socket.join_multicast_v4_n(&group, &interface)?;
            }
            IpAddr::V6(group) => {
                socket.set_multicast_all_v6(false)?;
                socket.join_multicast_v6(&group, interface_index)?;
            }
        }
        Self::wrap(socket)
    }

    /// Makes multicast leave through this interface, and loop back to receivers on this host.
    pub fn set_multicast_interface(&self, interface_index: u32) -> io::Result<()> {
        match self.local_address.ip() {
            IpAddr::V4(ip) => {
                rustix::net::sockopt::set_ip_multicast_if_with_ifindex(
                    &self.socket,
                    &Ipv4Addr::UNSPECIFIED,
                    &ip,
                    interface_index,
                )?;
                SockRef::from(&self.socket).set_multicast_loop_v4(true)
            }
            IpAddr::V6(_) => {
                let socket = SockRef::from(&self.socket);
                socket.set_multicast_if_v6(interface_index)?;
                socket.set_multicast_loop_v6(true)
            }
        }
    }

    /// From now on, [`poll_refusal`](Self::poll_refusal) reports hosts where no process holds the RoCE port.
    pub fn hear_refusals(&mut self) -> io::Result<()> {
        self.refusals.enable(&self.socket, self.local_address)
    }

    /// The next host that refused a datagram to the RoCE port. Its kernel says so, or a sender that forges its messages.
    /// There may be one after every call that sends or receives.
    #[inline]
    pub fn poll_refusal(&self) -> Option<IpAddr> {
        self.refusals.poll()
    }

    /// Sends one datagram, or with `segment_size` a batch of datagrams of that size (the last may be
    /// shorter) in one system call.
    ///
    /// On IPv4, segment *i* leaves with Identification *i* and a datagram sent alone with 0. A batch is
    /// therefore never split here: more segments than [`max_gso_segments`](Self::max_gso_segments) are
    /// [`InvalidInput`](io::ErrorKind::InvalidInput), since their checksums were made for a batch that the
    /// kernel cannot send.
    #[inline]
    pub fn send(
        &self,
        destination: SocketAddr,
        contents: &[u8],
        segment_size: Option<usize>,
    ) -> io::Result<()> {
        self.undeterred(|| self.send_once(destination, contents, segment_size))
    }

    fn send_once(
        &self,
        destination: SocketAddr,
        contents: &[u8],
        segment_size: Option<usize>,
    ) -> io::Result<()> {
        let Some(size) = segment_size else {
            return single::send(&self.socket, destination, contents);
        };
        self.check_segments(contents.len(), size)?;
        match single::send_segments(&self.socket, destination, contents, size as u16) {
            // What a kernel or device that cannot segment says; `quinn-udp` knows what to make of it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => {}
            sent => return sent,
        }
        let transmit = Transmit {
            destination,
            ecn: Some(EcnCodepoint::Ect0),
            contents,
            segment_size,
            src_ip: None,
        };
        self.state.try_send((&self.socket).into(), &transmit)
    }

    /// Fills `batch` with what has arrived, or fails with [`io::ErrorKind::WouldBlock`].
    ///
    /// Whatever the batch held before is gone. Returns how many entries [`RecvBatch::iter`] now yields,
    /// at least one.
    #[inline]
    pub fn recv(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        self.undeterred(|| batch.fill(self))
    }

    /// Makes a call that may fail because of an earlier datagram.
    #[inline]
    fn undeterred<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut outcome = call();
        for _ in 0..MAX_FALSE_FAILURES {
            match &outcome {
                Err(error) if self.refusals.read(&self.socket, error) => outcome = call(),
                _ => break,
            }
        }
        outcome
    }

    /// How many segments one [`send`](Self::send) may carry: 1 where the kernel or the device below cannot
    /// segment. May drop to 1 after a send has failed, so ask before each batch.
    #[inline]
    pub fn max_gso_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Makes the kernel refuse batches of an IPv6 socket, as it does where it cannot segment: it makes none without
    /// checksums.
    #[cfg(test)]
    pub(crate) fn forbid_batches(&self) -> io::Result<()> {
        options::send_unchecked(&self.socket)
    }

    /// The address and port this socket is bound to.
    #[inline]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_address
    }

    /// The send and receive buffer sizes granted by the kernel, as it accounts them (with its overhead).
    pub fn buffer_bytes(&self) -> io::Result<(usize, usize)> {
        let socket = SockRef::from(&self.socket);
        Ok((socket.send_buffer_size()?, socket.recv_buffer_size()?))
    }

    fn wrap(socket: Socket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        if state.may_fragment() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel cannot switch IP fragmentation off, which the ICRC depends on",
            ));
        }
        let local_address = socket
            .local_addr()?
            .as_socket()
            .ok_or_else(|| invalid("not an Internet socket"))?;
        options::trim(&socket, local_address)?;
        options::declare_markable(&socket, local_address)?;
        grow_buffers(&socket, BUFFER_BYTES);
        Ok(WireSocket {
            socket: OwnedFd::from(socket).into(),
            state,
            local_address,
            refusals: Refusals::default(),
        })
    }

    /// Catches what the kernel would refuse with EINVAL: `quinn-udp` reads that as "this machine cannot
    /// segment" and would switch batching off for good.
    fn check_segments(&self, bytes: usize, segment_size: usize) -> io::Result<()> {
        if segment_size == 0 || segment_size > usize::from(u16::MAX) {
            return Err(invalid("segment size"));
        }
        if bytes > segment_size && bytes.div_ceil(segment_size) > self.max_gso_segments() {
            return Err(invalid("more segments than one batch can carry"));
        }
        Ok(())
    }
}

impl AsFd for WireSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn new_socket(address: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        // A mapped IPv4 peer would make the address in the ICRC ambiguous.
        socket.set_only_v6(true)?;
        options::accept_unchecked(&socket)?;
        // Our address may be tentative still: `os::netdev`.
        socket.set_freebind_v6(true)?;
    }
    Ok(socket)
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
