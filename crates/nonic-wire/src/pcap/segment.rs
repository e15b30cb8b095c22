//! Finds the TCP segment in an IP packet. Options are skipped; the caller follows the stream.

use super::datagram::IpPacket;
use std::net::SocketAddr;

/// A TCP segment, as far as following a stream needs it.
#[derive(Copy, Clone, Debug)]
pub struct TcpSegment<'a> {
    /// The sender.
    pub src: SocketAddr,
    /// The receiver.
    pub dst: SocketAddr,
    /// The sequence number of its first byte, or of the SYN.
    pub sequence: u32,
    /// The sequence number of the next byte that its sender expects, if it says so.
    pub acknowledged: Option<u32>,
    /// Opens a direction of the connection.
    pub syn: bool,
    /// Ends it.
    pub fin: bool,
    /// Breaks the connection off.
    pub rst: bool,
    /// The bytes.
    pub payload: &'a [u8],
}

pub(crate) const TCP: u8 = 6;
pub(crate) const TCP_LEN: usize = 20;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

impl<'a> TcpSegment<'a> {
    /// Looks into an IP packet.
    pub(super) fn in_ip(bytes: &'a [u8]) -> Option<Self> {
        let packet = IpPacket::parse(bytes)?;
        if packet.protocol != TCP {
            return None;
        }
        let header = packet.payload().first_chunk::<TCP_LEN>()?;
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let header_len = usize::from(header[12] >> 4) * 4;
        if header_len < header.len() {
            return None;
        }
        let flags = header[13];
        let word =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Some(TcpSegment {
            src: SocketAddr::new(packet.src, port(0)),
            dst: SocketAddr::new(packet.dst, port(2)),
            sequence: word(4),
            acknowledged: (flags & ACK != 0).then(|| word(8)),
            syn: flags & SYN != 0,
            fin: flags & FIN != 0,
            rst: flags & RST != 0,
            payload: packet.payload().get(header_len..)?,
        })
    }

    /// Its header, with a checksum of zero.
    pub(crate) fn header(&self) -> [u8; TCP_LEN] {
        let mut header = [0; TCP_LEN];
        header[0..2].copy_from_slice(&self.src.port().to_be_bytes());
        header[2..4].copy_from_slice(&self.dst.port().to_be_bytes());
        header[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        header[8..12].copy_from_slice(&self.acknowledged.unwrap_or_default().to_be_bytes());
        header[12] = (TCP_LEN as u8 / 4) << 4;
        let flags = [
            (self.fin, FIN),
            (self.syn, SYN),
            (self.rst, RST),
            (!self.payload.is_empty(), PSH),
            (self.acknowledged.is_some(), ACK),
        ];
        header[13] = flags
            .into_iter()
            .filter(|(is_set, _)| *is_set)
            .map(|(_, flag)| flag)
            .sum();
        // A window as large as can be.
        header[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
        header
    }
}
