//! Finds the TCP segment in an IP packet. Options are skipped; what the stream means is up to the caller.

use super::datagram::IpPacket;
use std::net::SocketAddr;

/// A TCP segment, as far as following a stream needs it.
#[derive(Copy, Clone, Debug)]
pub struct TcpSegment<'a> {
    /// Who sent it.
    pub src: SocketAddr,
    /// Whom it is for.
    pub dst: SocketAddr,
    /// The sequence number of its first byte, or of the SYN.
    pub sequence: u32,
    /// Opens a direction of the connection.
    pub syn: bool,
    /// Ends it.
    pub fin: bool,
    /// Breaks the connection off.
    pub rst: bool,
    /// The bytes.
    pub payload: &'a [u8],
}

const TCP: u8 = 6;

impl<'a> TcpSegment<'a> {
    /// Looks into an IP packet.
    pub(super) fn in_ip(bytes: &'a [u8]) -> Option<Self> {
        let packet = IpPacket::parse(bytes)?;
        if packet.protocol != TCP {
            return None;
        }
        let header = packet.payload().first_chunk::<20>()?;
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let header_len = usize::from(header[12] >> 4) * 4;
        if header_len < header.len() {
            return None;
        }
        let flags = header[13];
        Some(TcpSegment {
            src: SocketAddr::new(packet.src, port(0)),
            dst: SocketAddr::new(packet.dst, port(2)),
            sequence: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            syn: flags & 0x02 != 0,
            fin: flags & 0x01 != 0,
            rst: flags & 0x04 != 0,
            payload: packet.payload().get(header_len..)?,
        })
    }
}
