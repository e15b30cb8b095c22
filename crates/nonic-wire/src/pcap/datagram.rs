//! Finds the UDP datagram in a frame: Ethernet with or without VLAN tags, IPv4 or IPv6.
//!
//! Lengths are taken from the headers, not from the frame: Ethernet pads short frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Flow;

/// A UDP datagram and what its outer headers said.
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
    /// Looks into an Ethernet frame.
    pub(super) fn in_ethernet(frame: &'a [u8]) -> Option<Self> {
        const VLAN: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
        let (_addresses, mut rest) = frame.split_first_chunk::<12>()?;
        loop {
            let (kind, behind) = rest.split_first_chunk::<2>()?;
            if VLAN.contains(kind) {
                rest = behind.get(2..)?;
                continue;
            }
            return match *kind {
                [0x08, 0x00] | [0x86, 0xdd] => Self::in_ip(behind),
                _ => None,
            };
        }
    }

    /// Looks into an IP packet; bytes behind its end are ignored.
    pub(super) fn in_ip(bytes: &'a [u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Self::in_ipv4(bytes),
            6 => Self::in_ipv6(bytes),
            _ => None,
        }
    }

    fn in_ipv4(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.first_chunk::<20>()?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let flags_and_offset = u16::from_be_bytes([header[6], header[7]]);
        let is_fragment = flags_and_offset & 0x3fff != 0;
        if header_len < header.len() || header[9] != UDP || is_fragment {
            return None;
        }
        let address = |at: usize| -> IpAddr {
            Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]).into()
        };
        let fragmentation = Fragmentation {
            identification: u16::from_be_bytes([header[4], header[5]]),
            dont_fragment: flags_and_offset & 0x4000 != 0,
        };
        Self::in_udp(
            bytes.get(..total_len)?,
            header_len,
            address(12),
            address(16),
            Some(fragmentation),
        )
    }

    fn in_ipv6(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.first_chunk::<40>()?;
        let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[6] != UDP {
            return None;
        }
        let address =
            |at: usize| -> Option<IpAddr> { Some(Ipv6Addr::from(*header[at..].first_chunk::<16>()?).into()) };
        let end = header.len() + payload_len;
        Self::in_udp(bytes.get(..end)?, header.len(), address(8)?, address(24)?, None)
    }

    /// `bytes` is the whole IP packet, `at` where its UDP header starts.
    fn in_udp(
        bytes: &'a [u8],
        at: usize,
        src: IpAddr,
        dst: IpAddr,
        fragmentation: Option<Fragmentation>,
    ) -> Option<Self> {
        let header = bytes.get(at..)?.first_chunk::<8>()?;
        let field = |index: usize| u16::from_be_bytes([header[index * 2], header[index * 2 + 1]]);
        let flow = Flow {
            src,
            dst,
            src_port: field(0),
            dst_port: field(1),
        };
        let payload_at = at + header.len();
        let end = at + usize::from(field(2));
        Some(Self {
            flow,
            fragmentation,
            headers: &bytes[..payload_at],
            // `None` if the length field says less than the header or more than there is.
            payload: bytes.get(payload_at..end)?,
        })
    }
}

const UDP: u8 = 17;
