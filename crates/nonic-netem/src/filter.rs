//! Selects the packets that a fault applies to: by kind and peer, by their number, and by when they come.

use nonic_wire::{AethKind, Operation, Packet, Qpn};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A selection of packets. A field that is not set selects all.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Those to this queue pair.
    pub qpn: Option<Qpn>,
    /// Those from this address, or to it where they are disturbed on leaving.
    pub peer: Option<IpAddr>,
    /// Those of this kind.
    pub kind: Option<PacketKind>,
    /// Not before this time after the beginning.
    pub from_ns: u64,
    /// Not from this time on, if there is one.
    pub until_ns: Option<u64>,
    /// The clock for both begins anew each time this is over.
    pub period_ns: Option<u64>,
    /// Not the first so many of them.
    pub skip: u64,
    /// Only each so-manieth of the rest; 0 is all of them.
    pub every: u64,
}

impl Filter {
    /// Whether it selects a packet at this moment, apart from its number.
    pub(crate) fn matches(&self, now_ns: u64, peer: IpAddr, packet: &[u8]) -> bool {
        self.is_time(now_ns)
            && self.peer.is_none_or(|wanted| wanted == peer)
            && (self.qpn.is_none() && self.kind.is_none() || self.matches_headers(packet))
    }

    fn is_time(&self, now_ns: u64) -> bool {
        let at_ns = match self.period_ns {
            Some(period_ns) => now_ns % period_ns.max(1),
            None => now_ns,
        };
        at_ns >= self.from_ns && self.until_ns.is_none_or(|until_ns| at_ns < until_ns)
    }

    fn matches_headers(&self, packet: &[u8]) -> bool {
        let Ok(packet) = Packet::parse(packet) else {
            return false;
        };
        self.qpn.is_none_or(|qpn| qpn == packet.headers.bth.dest_qp)
            && self.kind.is_none_or(|kind| kind.is_of(&packet))
    }

    /// Whether it selects the `number`-th of the packets that match, counted from 0.
    pub(crate) fn counts(&self, number: u64) -> bool {
        match number.checked_sub(self.skip) {
            Some(number) => (number + 1) % self.every.max(1) == 0,
            None => false,
        }
    }
}

/// What a packet is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PacketKind {
    /// A SEND, or a part of one.
    Send,
    /// A WRITE, or a part of one.
    Write,
    /// The request of a READ.
    Read,
    /// A part of what was read.
    ReadResponse,
    /// A request to compare and swap, to fetch and add, or to write eight bytes.
    Atomic,
    /// The answer to one of the first two.
    AtomicResponse,
    /// A plain acknowledgement.
    Ack,
    /// A NAK, RNR among them.
    Nak,
    /// A congestion notification.
    Cnp,
    /// A message of the connection manager.
    Management,
}

impl PacketKind {
    /// All of them, by the names they have in text.
    pub const NAMES: [(&'static str, PacketKind); 10] = [
        ("send", PacketKind::Send),
        ("write", PacketKind::Write),
        ("read", PacketKind::Read),
        ("read-response", PacketKind::ReadResponse),
        ("atomic", PacketKind::Atomic),
        ("atomic-response", PacketKind::AtomicResponse),
        ("ack", PacketKind::Ack),
        ("nak", PacketKind::Nak),
        ("cnp", PacketKind::Cnp),
        ("cm", PacketKind::Management),
    ];

    fn is_of(self, packet: &Packet<'_>) -> bool {
        use Operation::*;
        let operation = packet.headers.bth.opcode.operation();
        if packet.headers.bth.dest_qp == Qpn::GSI {
            return self == PacketKind::Management;
        }
        let kind = match operation {
            SendFirst
            | SendMiddle
            | SendLast
            | SendLastWithImmediate
            | SendOnly
            | SendOnlyWithImmediate
            | SendLastWithInvalidate
            | SendOnlyWithInvalidate => PacketKind::Send,
            WriteFirst
            | WriteMiddle
            | WriteLast
            | WriteLastWithImmediate
            | WriteOnly
            | WriteOnlyWithImmediate => PacketKind::Write,
            ReadRequest | Flush => PacketKind::Read,
            ReadResponseFirst | ReadResponseMiddle | ReadResponseLast | ReadResponseOnly => {
                PacketKind::ReadResponse
            }
            CompareSwap | FetchAdd | AtomicWrite => PacketKind::Atomic,
            AtomicAcknowledge => PacketKind::AtomicResponse,
            Acknowledge => match packet.headers.aeth.syndrome.kind() {
                AethKind::Ack { .. } => PacketKind::Ack,
                _ => PacketKind::Nak,
            },
            Cnp => PacketKind::Cnp,
        };
        self == kind
    }
}

/// There is no such kind of packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UnknownPacketKind;

impl FromStr for PacketKind {
    type Err = UnknownPacketKind;

    fn from_str(text: &str) -> Result<Self, UnknownPacketKind> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, kind)| *kind).ok_or(UnknownPacketKind)
    }
}

impl fmt::Display for PacketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Self::NAMES.iter().find(|(_, kind)| kind == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}
