//! The reorder buffer: packets of a connection that came before their turn, kept as they are, within a bound.
//!
//! Read first: [`Reorder`], the store of one half of a queue pair, and [`ReorderMemory`], the budget that all stores of
//! a NIC share.
//!
//! A kept packet is a copy of its bytes and nothing else. It is not looked into, executed or placed here: its owner
//! takes it out when it is next in sequence and treats it as if it had arrived at that moment. So whatever holds for
//! packets that arrive in order (each executed once, one after the other, all checked before anything changes) holds
//! for these.
//!
//! Whatever a peer sends, a packet costs O(log n) to keep and to take out, and is charged for more than it takes.

use super::reach::are_copies;
use crate::roce::extended_psn::ExtendedPsn;
use crate::time::Time;
use nonic_wire::{HeldRange, Packet, SelectiveAck};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How much reordering a NIC puts up with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReorderConfig {
    /// Bytes that each half of a queue pair may keep. What goes beyond is dropped, and has to be sent again. To repair a loss
    /// without emptying the pipe takes bandwidth times round trip.
    pub queue_pair_bytes: usize,
    /// Bytes that all of them together may keep.
    pub total_bytes: usize,
    /// How long to wait for a missing packet at first, and at least, before it is reported to the peer as lost. Zero:
    /// not at all.
    pub min_allowance: Duration,
    /// The same at most, where packets have been seen to come late.
    pub max_allowance: Duration,
    /// Whether acknowledgements say what is kept, to peers that understand that.
    pub selective: bool,
}

impl Default for ReorderConfig {
    fn default() -> Self {
        ReorderConfig {
            queue_pair_bytes: 64 << 20,
            total_bytes: 256 << 20,
            min_allowance: Duration::from_micros(64),
            max_allowance: Duration::from_millis(25),
            selective: true,
        }
    }
}

impl ReorderConfig {
    /// Go-back-N as by the book: nothing is kept, and a gap is reported at once.
    pub const NONE: ReorderConfig = ReorderConfig {
        queue_pair_bytes: 0,
        total_bytes: 0,
        min_allowance: Duration::ZERO,
        max_allowance: Duration::ZERO,
        selective: false,
    };
}

/// What the stores of a NIC share.
#[derive(Debug)]
pub(crate) struct ReorderMemory {
    pub(crate) config: ReorderConfig,
    used: usize,
}

impl ReorderMemory {
    pub(crate) fn new(config: ReorderConfig) -> Self {
        ReorderMemory { config, used: 0 }
    }

    /// Bytes that are kept at this moment, with what it takes to find them.
    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

/// Packets that came early, by their number in the sequence. Empty ones take no memory.
#[derive(Debug, Default)]
pub(crate) struct Reorder {
    packets: BTreeMap<ExtendedPsn, KeptPacket>,
    /// Which numbers the packets take: where each range begins, and one past its end. No two touch.
    ranges: BTreeMap<ExtendedPsn, ExtendedPsn>,
    /// A number in each of the ranges that changed last, the latest first. Some may be gone.
    changed: VecDeque<ExtendedPsn>,
    /// What they were charged.
    bytes: usize,
}

/// A packet that came early.
#[derive(Debug)]
pub(crate) struct KeptPacket {
    bytes: Box<[u8]>,
    /// How many sequence numbers it takes: a READ request takes those of its responses.
    psns: u32,
    arrived: Time,
}

/// What became of a packet that came early.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// It is kept.
    Kept,
    /// It was before.
    Known,
    /// There is no room for it.
    Refused,
    /// It takes a number that another one has.
    Conflict,
}

impl KeptPacket {
    /// Charged for each, besides its bytes: more than two tree entries and an allocation take.
    const OVERHEAD: usize = 128;

    fn new(packet: &Packet<'_>, psns: u32, arrived: Time) -> Self {
        let mut bytes = Vec::with_capacity(Self::wire_len(packet));
        packet.emit_into(&mut bytes);
        KeptPacket {
            bytes: bytes.into_boxed_slice(),
            psns,
            arrived,
        }
    }

    /// The packet as it came.
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).expect("what was emitted can be parsed")
    }

    fn wire_len(packet: &Packet<'_>) -> usize {
        let payload = packet.payload.len();
        packet.headers.len() + payload + nonic_wire::pad_len(payload) + nonic_wire::ICRC_LEN
    }

    fn charge(wire_len: usize) -> usize {
        wire_len + Self::OVERHEAD
    }
}

impl Reorder {
    /// Whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// One past the last number that those kept take.
    pub(crate) fn end(&self) -> Option<ExtendedPsn> {
        self.ranges.last_key_value().map(|(_, end)| *end)
    }

    /// When the first in sequence of those kept came.
    pub(crate) fn first_arrived(&self) -> Option<Time> {
        self.packets.first_key_value().map(|(_, kept)| kept.arrived)
    }

    /// Keeps a packet that takes `psns` numbers from `at` on, if there is room.
    pub(crate) fn insert(
        &mut self,
        memory: &mut ReorderMemory,
        now: Time,
        at: ExtendedPsn,
        psns: u32,
        packet: &Packet<'_>,
    ) -> Keep {
        let end = at + psns;
        let before = self
            .ranges
            .range(..=at)
            .next_back()
            .map(|(first, end)| (*first, *end));
        let after = self.ranges.range(at..).next().map(|(first, end)| (*first, *end));
        if before.is_some_and(|(_, end)| end > at) {
            let copy = |kept: &KeptPacket| kept.psns == psns && are_copies(&kept.packet(), packet);
            if !self.packets.get(&at).is_some_and(copy) {
                return Keep::Conflict;
            }
            self.note_change(at);
            return Keep::Known;
        }
        if after.is_some_and(|(first, _)| first < end) {
            return Keep::Conflict;
        }
        let charge = KeptPacket::charge(KeptPacket::wire_len(packet));
        let fits = self.bytes + charge <= memory.config.queue_pair_bytes
            && memory.used + charge <= memory.config.total_bytes;
        if !fits {
            return Keep::Refused;
        }
        self.bytes += charge;
        memory.used += charge;
        self.packets.insert(at, KeptPacket::new(packet, psns, now));
        let end = match after.filter(|(first, _)| *first == end) {
            Some((first, last)) => {
                self.ranges.remove(&first);
                last
            }
            None => end,
        };
        let first = before
            .filter(|(_, end)| *end == at)
            .map_or(at, |(first, _)| first);
        self.ranges.insert(first, end);
        self.note_change(at);
        Keep::Kept
    }

    /// Takes out the packet that is next in sequence, if it is there. What lies before it is dropped.
    pub(crate) fn pop(&mut self, memory: &mut ReorderMemory, next: ExtendedPsn) -> Option<KeptPacket> {
        while let Some(entry) = self.packets.first_entry() {
            let at = *entry.key();
            if at > next {
                return None;
            }
            let kept = entry.remove();
            self.release(memory, at, &kept);
            if at == next {
                return Some(kept);
            }
        }
        None
    }

    /// A packet, the first of those kept, is kept no more.
    fn release(&mut self, memory: &mut ReorderMemory, at: ExtendedPsn, kept: &KeptPacket) {
        let charge = KeptPacket::charge(kept.bytes.len());
        self.bytes -= charge;
        memory.used -= charge;
        let rest = at + kept.psns;
        if let Some((_, end)) = self.ranges.pop_first() {
            if rest < end {
                self.ranges.insert(rest, end);
            }
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self, memory: &mut ReorderMemory) {
        memory.used -= self.bytes;
        *self = Reorder::default();
    }

    /// What is kept, as far as it fits an acknowledgement: the range that changed last first, each once.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = HeldRange> {
        self.changed.iter().filter_map(|psn| {
            let (first, end) = self.range_of(*psn)?;
            let packets = u32::try_from(end - first).unwrap_or(u32::MAX);
            Some(HeldRange {
                first: first.psn(),
                packets: packets.min(HeldRange::MAX_PACKETS),
            })
        })
    }

    fn range_of(&self, psn: ExtendedPsn) -> Option<(ExtendedPsn, ExtendedPsn)> {
        let (first, end) = self.ranges.range(..=psn).next_back()?;
        (*end > psn).then_some((*first, *end))
    }

    /// The range of this number is the one to tell of first. Each is listed once, and no more than can be told of.
    fn note_change(&mut self, psn: ExtendedPsn) {
        let Some((first, end)) = self.range_of(psn) else {
            return;
        };
        // Most packets continue the range that the one before them was in.
        match self.changed.front_mut() {
            Some(latest) if (first..end).contains(latest) => *latest = psn,
            _ => self.changed.push_front(psn),
        }
        let mut listed = 0;
        self.changed.retain(|other| {
            listed += 1;
            listed == 1 || (!(first..end).contains(other) && listed <= SelectiveAck::MAX_RANGES)
        });
    }
}

#[cfg(test)]
mod tests;
