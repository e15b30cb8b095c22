//! Received datagrams, by reference.

use std::net::{IpAddr, SocketAddr};

/// One or more datagrams from one sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagrams<'a> {
    /// The sender's address.
    pub src: SocketAddr,
    /// The address they were sent to: ours, or the group's on a multicast socket.
    pub dst_ip: IpAddr,
    /// The two ECN bits of the IP header of the (last) datagram.
    pub ecn: u8,
    /// The length of each datagram but the last, which may be shorter. Never zero.
    pub stride: usize,
    /// All of them, end to end.
    pub bytes: &'a [u8],
    /// Whether their checksums count: those of packets that `NONIC_FAULTS` changed so that nobody notices do not.
    pub sealed: bool,
}

impl<'a> Datagrams<'a> {
    /// The datagrams one by one. An empty datagram yields nothing: it cannot be a packet.
    pub fn segments(&self) -> std::slice::Chunks<'a, u8> {
        self.bytes.chunks(self.stride)
    }
}

/// The callback that takes received packets to the NIC.
pub(crate) type Deliver<'a> = dyn FnMut(&Datagrams<'_>) + 'a;
