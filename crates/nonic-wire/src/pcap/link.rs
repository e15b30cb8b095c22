//! Link layer headers of captured frames, and where the IP packet is behind them.

use super::Direction;

/// The link type of a capture, or of one of its interfaces.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum LinkType {
    Ethernet,
    RawIp,
    /// BSD loopback: four bytes that name the protocol.
    Loopback,
    /// The header that Linux makes for captures on any interface.
    Cooked,
    /// The same, second version.
    Cooked2,
}

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const VLAN: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];

impl LinkType {
    /// From the number in the file.
    pub(super) fn from_number(number: u32) -> Option<Self> {
        match number {
            0 | 108 => Some(LinkType::Loopback),
            1 => Some(LinkType::Ethernet),
            // The last two are those of raw IPv4 and raw IPv6, 12 and 14 what some systems call raw IP.
            12 | 14 | 101 | 228 | 229 => Some(LinkType::RawIp),
            113 => Some(LinkType::Cooked),
            276 => Some(LinkType::Cooked2),
            _ => None,
        }
    }

    /// The IP packet in a frame, if there is one.
    pub(super) fn ip_packet(self, frame: &[u8]) -> Option<&[u8]> {
        let (kind, behind) = match self {
            LinkType::RawIp => return Some(frame),
            LinkType::Loopback => return frame.get(4..),
            LinkType::Ethernet => return behind_vlan_tags(frame.get(12..)?),
            LinkType::Cooked => (frame.get(14..16)?, frame.get(16..)?),
            LinkType::Cooked2 => (frame.get(0..2)?, frame.get(20..)?),
        };
        (kind == IPV4 || kind == IPV6).then_some(behind)
    }

    /// Which way a frame went, if its header says so.
    pub(super) fn direction(self, frame: &[u8]) -> Option<Direction> {
        let kind = match self {
            LinkType::Cooked => *frame.get(1)?,
            LinkType::Cooked2 => *frame.get(10)?,
            LinkType::Ethernet | LinkType::RawIp | LinkType::Loopback => return None,
        };
        match kind {
            0 => Some(Direction::Inbound),
            4 => Some(Direction::Outbound),
            _ => None,
        }
    }
}

/// The IP packet behind Ethernet's addresses.
fn behind_vlan_tags(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let (kind, behind) = rest.split_first_chunk::<2>()?;
        if VLAN.contains(kind) {
            rest = behind.get(2..)?;
            continue;
        }
        return matches!(*kind, IPV4 | IPV6).then_some(behind);
    }
}
