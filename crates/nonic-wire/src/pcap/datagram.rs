//! Finds the UDP datagram in an IP packet, of version 4 or 6.
//!
//! Lengths are taken from the headers, not from the frame: Ethernet pads short frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Flow;

/// A UDP datagram and what its outer headers say.
#[derive(Copy, Clone, Debug)]
pub struct Datagram<'a> {
    /// Addresses and ports.
    pub flow: Flow,
    /// Fragmentation fields of the IPv4 header; IPv6 has none.
    pub fragmentation: Option<Fragmentation>,
    /// The IP and UDP headers as they were on the wire, for [`crate::icrc::compute_behind`].
    pub headers: &'a [u8],
    /// What the datagram carries: for RoCEv2 the packet from BTH to ICRC.
    pub payload: &'a [u8],
}

/// The IPv4 fields that fragmentation uses, of a datagram that is not a fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fragmentation {
    /// Identification.
    pub identification: u16,
    /// "Don't fragment" was set.
    pub dont_fragment: bool,
}

impl<'a> Datagram<'a> {
    /// Looks into an IP packet; bytes behind its end are ignored.
    pub(super) fn in_ip(bytes: &'a [u8]) -> Option<Self> {
        let packet = IpPacket::parse(bytes)?;
        if packet.protocol != UDP {
            return None;
        }
        let header = packet.payload().first_chunk::<8>()?;
        let field = |index: usize| u16::from_be_bytes([header[index * 2], header[index * 2 + 1]]);
        let flow = Flow {
            src: packet.src,
            dst: packet.dst,
            src_port: field(0),
            dst_port: field(1),
        };
        let payload_at = packet.header_len + header.len();
        let end = packet.header_len + usize::from(field(2));
        Some(Self {
            flow,
            fragmentation: packet.fragmentation,
            headers: &packet.bytes[..payload_at],
            // `None` if the length field says less than the header or more than there is.
            payload: packet.bytes.get(payload_at..end)?,
        })
    }
}

/// An IP packet that is whole and no fragment.
#[derive(Copy, Clone, Debug)]
pub(super) struct IpPacket<'a> {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) protocol: u8,
    fragmentation: Option<Fragmentation>,
    bytes: &'a [u8],
    header_len: usize,
}

impl<'a> IpPacket<'a> {
    /// Reads the header; bytes behind the end that it names are ignored.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Self::parse_v4(bytes),
            6 => Self::parse_v6(bytes),
            _ => None,
        }
    }

    /// What the packet carries.
    pub(super) fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header_len..]
    }

    fn parse_v4(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.first_chunk::<20>()?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let flags_and_offset = u16::from_be_bytes([header[6], header[7]]);
        let is_fragment = flags_and_offset & 0x3fff != 0;
        if header_len < header.len() || total_len < header_len || is_fragment {
            return None;
        }
        let address = |at: usize| -> IpAddr {
            Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]).into()
        };
        let fragmentation = Fragmentation {
            identification: u16::from_be_bytes([header[4], header[5]]),
            dont_fragment: flags_and_offset & 0x4000 != 0,
        };
        Some(Self {
            src: address(12),
            dst: address(16),
            protocol: header[9],
            fragmentation: Some(fragmentation),
            bytes: bytes.get(..total_len)?,
            header_len,
        })
    }

    fn parse_v6(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.first_chunk::<40>()?;
        let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let address =
            |at: usize| -> Option<IpAddr> { Some(Ipv6Addr::from(*header[at..].first_chunk::<16>()?).into()) };
        Some(Self {
            src: address(8)?,
            dst: address(24)?,
            protocol: header[6],
            fragmentation: None,
            bytes: bytes.get(..header.len() + payload_len)?,
            header_len: header.len(),
        })
    }
}

const UDP: u8 = 17;
