//! Selective acknowledgements: what a responder holds beyond the first packet it lacks.
//!
//! They are nonic's own and stay within RoCEv2. A requester that understands them sets a reserved bit of the BTH
//! ([`Bth::SELECTIVE`](crate::Bth::SELECTIVE)) on every request; peers that do not know it ignore it, like all reserved
//! bits. Only such a requester is sent a selective acknowledgement. It is an ordinary one (the PSN is the last packet
//! executed, the AETH says ACK) with the same bit set and a payload: up to [`SelectiveAck::MAX_RANGES`] ranges of
//! packets that came and wait for an earlier one. The range that changed last stands first, so that a lost
//! acknowledgement is made good by the next one.
//!
//! Only the form of the ranges is checked here. Whether they make sense (whether they were sent at all) is for the
//! requester to judge.

use crate::{AethKind, Operation, Packet, Psn};

/// Consecutive packets that a responder holds.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct HeldRange {
    /// The first of them.
    pub first: Psn,
    /// How many, 1 to [`HeldRange::MAX_PACKETS`].
    pub packets: u32,
}

impl HeldRange {
    /// Bytes on the wire.
    pub const LEN: usize = 8;
    /// The most packets in a range: those after one packet in the circle of sequence numbers.
    pub const MAX_PACKETS: u32 = (1 << 23) - 1;

    /// Reads a range. `None` if it has no packets, more than can follow each other, or a sequence number of more than 24 bits.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let [a, b, c, d, packets @ ..] = *bytes;
        let packets = u32::from_be_bytes(packets);
        let valid = a == 0 && (1..=Self::MAX_PACKETS).contains(&packets);
        valid.then_some(HeldRange {
            first: Psn::new(u32::from_be_bytes([0, b, c, d])),
            packets,
        })
    }

    /// Writes the range to the first [`HeldRange::LEN`] bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn emit(&self, out: &mut [u8]) {
        out[0..4].copy_from_slice(&self.first.value().to_be_bytes());
        out[4..8].copy_from_slice(&self.packets.to_be_bytes());
    }

    /// One past the last packet.
    pub const fn end(&self) -> Psn {
        self.first.add(self.packets)
    }

    /// Whether it includes the packet.
    pub const fn contains(&self, psn: Psn) -> bool {
        let into = psn.distance_from(self.first);
        into >= 0 && (into as u32) < self.packets
    }
}

/// The ranges of a selective acknowledgement as they arrived, checked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SelectiveAck<'a> {
    ranges: &'a [u8],
}

impl<'a> SelectiveAck<'a> {
    /// The most ranges in one acknowledgement.
    pub const MAX_RANGES: usize = 16;
    /// Bytes of the longest.
    pub const MAX_LEN: usize = Self::MAX_RANGES * HeldRange::LEN;

    /// The ranges of a packet. `None` if it is not a selective acknowledgement, or not a well-formed one: then it is to be taken
    /// for a plain one.
    pub fn of(packet: &Packet<'a>) -> Option<Self> {
        let headers = &packet.headers;
        let acknowledges = headers.bth.opcode.operation() == Operation::Acknowledge
            && matches!(headers.aeth.syndrome.kind(), AethKind::Ack { .. });
        let selective = headers.bth.is_selective() && acknowledges;
        selective.then(|| Self::parse(packet.payload)).flatten()
    }

    /// Reads the payload of a selective acknowledgement.
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let mut ranges = payload.chunks_exact(HeldRange::LEN);
        let well_formed = ranges.remainder().is_empty()
            && (1..=Self::MAX_RANGES).contains(&ranges.len())
            && ranges.all(|range| range.first_chunk().and_then(HeldRange::parse).is_some());
        well_formed.then_some(SelectiveAck { ranges: payload })
    }

    /// The ranges, the one that changed last first.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = HeldRange> + use<'a> {
        let checked = |range: &[u8]| {
            let range = range.first_chunk().and_then(HeldRange::parse);
            range.expect("each range was checked when it was parsed")
        };
        self.ranges.chunks_exact(HeldRange::LEN).map(checked)
    }

    /// Writes ranges to `out`, as many as fit an acknowledgement; the length.
    ///
    /// # Panics
    /// If `out` is too short for them; [`SelectiveAck::MAX_LEN`] is always enough.
    pub fn emit(ranges: impl IntoIterator<Item = HeldRange>, out: &mut [u8]) -> usize {
        let mut len = 0;
        for range in ranges.into_iter().take(Self::MAX_RANGES) {
            range.emit(&mut out[len..]);
            len += HeldRange::LEN;
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Aeth, Bth, Headers, NakCode, Opcode, Qpn, Syndrome};

    const RANGE: HeldRange = HeldRange {
        first: Psn::new(0xff_fffe),
        packets: 4,
    };

    fn acknowledgement(payload: &[u8]) -> Packet<'_> {
        let opcode = Opcode::new(crate::Service::Rc, Operation::Acknowledge).expect("RC acknowledges");
        let mut headers = Headers::new(Bth::new(opcode, Qpn::new(5), Psn::new(7)));
        headers.bth.resv7 = Bth::SELECTIVE;
        headers.aeth = Aeth {
            syndrome: Syndrome::ack(),
            msn: 1,
        };
        Packet {
            headers,
            payload,
            icrc: [0; 4],
        }
    }

    #[test]
    fn a_range_goes_round_the_circle() {
        assert_eq!(RANGE.end(), Psn::new(2));
        assert!(RANGE.contains(Psn::new(0xff_ffff)) && RANGE.contains(Psn::new(1)));
        assert!(!RANGE.contains(Psn::new(0xff_fffd)) && !RANGE.contains(Psn::new(2)));
    }

    #[test]
    fn an_acknowledgement_travels_as_a_packet() {
        let other = HeldRange {
            first: Psn::new(9),
            packets: 1,
        };
        let mut payload = [0; SelectiveAck::MAX_LEN];
        let len = SelectiveAck::emit([other, RANGE], &mut payload);
        let mut datagram = Vec::new();
        acknowledgement(&payload[..len]).emit_into(&mut datagram);
        assert_eq!(datagram[8], 0x40, "the capability is the upper reserved bit");
        let packet = Packet::parse(&datagram).expect("an acknowledgement with payload is a packet");
        let ranges = SelectiveAck::of(&packet).expect("it is selective").ranges();
        assert_eq!(ranges.collect::<Vec<_>>(), [other, RANGE]);
    }

    #[test]
    fn no_more_ranges_are_written_than_are_read() {
        let mut payload = [0; SelectiveAck::MAX_LEN];
        let len = SelectiveAck::emit(std::iter::repeat_n(RANGE, 40), &mut payload);
        assert_eq!(len, SelectiveAck::MAX_LEN);
        assert_eq!(
            SelectiveAck::parse(&payload[..len]).map(|ack| ack.ranges().len()),
            Some(16)
        );
        assert_eq!(SelectiveAck::parse(&[payload, payload].concat()), None);
    }

    #[test]
    fn whatever_is_malformed_is_a_plain_acknowledgement() {
        let mut payload = [0; 16];
        SelectiveAck::emit([RANGE, RANGE], &mut payload);
        assert!(SelectiveAck::of(&acknowledgement(&payload)).is_some());
        for malformed in [&payload[..0], &payload[..4], &payload[..12], &payload[4..12]] {
            assert_eq!(
                SelectiveAck::of(&acknowledgement(malformed)),
                None,
                "{malformed:?}"
            );
        }
        let mut plain = acknowledgement(&payload);
        plain.headers.bth.resv7 = 0x3f;
        assert_eq!(SelectiveAck::of(&plain), None, "without the bit it says nothing");
        let mut refusal = acknowledgement(&payload);
        refusal.headers.aeth.syndrome = Syndrome::nak(NakCode::PsnSequenceError);
        assert_eq!(SelectiveAck::of(&refusal), None, "a NAK holds nothing");
    }

    #[test]
    fn a_range_has_at_least_one_packet_and_at_most_half_the_circle() {
        for (packets, valid) in [(0, false), (1, true), ((1 << 23) - 1, true), (1 << 23, false)] {
            let mut bytes = [0; HeldRange::LEN];
            HeldRange { packets, ..RANGE }.emit(&mut bytes);
            assert_eq!(HeldRange::parse(&bytes).is_some(), valid, "{packets}");
        }
        assert_eq!(
            HeldRange::parse(&[1, 0, 0, 0, 0, 0, 0, 1]),
            None,
            "25 bits of sequence number"
        );
    }
}
