//! The UDP socket of a datagram socket: its address, and the way to peers whose queue pair is not known.
//!
//! A socket for IPv6 talks to IPv4 as well. Only here, and towards the program, does it have such addresses mapped into
//! IPv6; peers are known by what they are.

use super::super::protocol::datagram::Lookup;
use crate::convert::{canonical, len_of, mapped, storage};
use crate::descriptor::{Audience, Descriptor};
use libc::c_int;
use nonic_abi::errno::{Errno, of_io, of_system};
use std::mem::ManuallyDrop;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// How often completions may be taken before the UDP socket has its turn.
const TURNS: u32 = 16;

/// A UDP socket that does not block.
pub(crate) struct Udp {
    /// Closed by the other field.
    socket: ManuallyDrop<UdpSocket>,
    _descriptor: Descriptor,
    is_v6: bool,
    is_connected: bool,
    turns: u32,
}

impl Udp {
    pub(crate) fn new(is_v6: bool) -> Result<Self, Errno> {
        let domain = if is_v6 { libc::AF_INET6 } else { libc::AF_INET };
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes any numbers.
        let descriptor = Descriptor::keep(unsafe { libc::socket(domain, kind, 0) }, Audience::Socket)?;
        Ok(Udp {
            // SAFETY: open for as long as the descriptor beside it, and not closed by this.
            socket: ManuallyDrop::new(unsafe { UdpSocket::from_raw_fd(descriptor.as_raw_fd()) }),
            _descriptor: descriptor,
            is_v6,
            is_connected: false,
            turns: 0,
        })
    }

    pub(crate) fn bind(&mut self, local: SocketAddr) -> Result<(), Errno> {
        let address = storage(local);
        // SAFETY: an address of the length of its family.
        let code = unsafe { libc::bind(self.as_raw_fd(), (&raw const address).cast(), len_of(local)) };
        check(code)
    }

    pub(crate) fn connect(&mut self, remote: SocketAddr) -> Result<(), Errno> {
        self.socket
            .connect(remote)
            .map_err(|error| of_io(&format!("connect of the UDP socket to {remote}"), &error))?;
        self.is_connected = true;
        Ok(())
    }

    pub(crate) fn local(&self) -> Result<SocketAddr, Errno> {
        self.socket
            .local_addr()
            .map_err(|error| of_io("getsockname of the UDP socket", &error))
    }

    pub(crate) fn remote(&self) -> Result<SocketAddr, Errno> {
        self.socket
            .peer_addr()
            .map_err(|error| of_io("getpeername of the UDP socket", &error))
    }

    /// The address, with a port: peers are told it before the system would choose one.
    pub(crate) fn local_with_port(&mut self) -> Result<SocketAddr, Errno> {
        let local = self.local()?;
        if local.port() != 0 {
            return Ok(canonical(local));
        }
        self.bind(match self.is_v6 {
            true => (Ipv6Addr::UNSPECIFIED, 0).into(),
            false => (Ipv4Addr::UNSPECIFIED, 0).into(),
        })?;
        self.local()
    }

    /// An address as the family of the socket has it.
    pub(crate) fn presentable(&self, address: SocketAddr) -> SocketAddr {
        match self.is_v6 {
            true => mapped(address),
            false => address,
        }
    }

    pub(crate) fn send(&self, to: SocketAddr, header: &[u8], bytes: &[u8]) -> Result<(), Errno> {
        let message = [header, bytes].concat();
        let sent = match self.is_connected {
            true => self.socket.send(&message),
            false => self.socket.send_to(&message, self.presentable(to)),
        };
        sent.map(drop)
            .map_err(|error| of_io(&format!("sending by UDP to {to}"), &error))
    }

    /// The next message, if there is one: where it is from, what it is for and what it carries. Those that are not of
    /// the protocol have no purpose.
    pub(crate) fn receive<'a>(
        &mut self,
        buffer: &'a mut [u8],
    ) -> Option<(SocketAddr, Option<Lookup>, &'a [u8])> {
        let (length, source) = self.socket.recv_from(buffer).ok()?;
        let source = canonical(source);
        let bytes = &buffer[..length];
        match Lookup::parse(bytes).filter(|(lookup, _)| lookup.address.is_ipv4() == source.is_ipv4()) {
            Some((lookup, header)) => Some((source, Some(lookup), &bytes[header..])),
            None => Some((source, None, &[])),
        }
    }

    /// Whether it is to be looked at whatever else there is.
    pub(crate) fn is_its_turn(&mut self) -> bool {
        self.turns = (self.turns + 1) % TURNS;
        self.turns == 0
    }
}

impl AsRawFd for Udp {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn check(code: c_int) -> Result<(), Errno> {
    match code {
        0 => Ok(()),
        _ => Err(of_system("a call of the UDP socket")),
    }
}
