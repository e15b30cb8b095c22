//! Faults of a network: what is done to packets and how often, as rules, and counts of what was done.

use crate::Filter;

/// The rates of each kind of fault, in packets per million, and how much later packets come.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Packets lost one by one.
    pub loss_ppm: u32,
    /// How often a burst of losses begins…
    pub burst_begin_ppm: u32,
    /// …and how often, once in it, a packet ends it. All packets of a burst are lost (Gilbert and Elliott's model).
    pub burst_end_ppm: u32,
    /// Packets that arrive twice.
    pub duplicate_ppm: u32,
    /// Packets that are held up, so that others overtake them.
    pub reorder_ppm: u32,
    /// For up to how long duplicates and reordered packets are held up.
    pub hold_ns: u64,
    /// Packets that are not delayed, so that they overtake others.
    pub early_ppm: u32,
    /// Packets with one to three bits flipped.
    pub corrupt_ppm: u32,
    /// Packets whose payload is changed so that no checksum shows it. Only where they arrive.
    pub garble_ppm: u32,
    /// How much longer every packet takes, in order.
    pub delay_ns: u64,
    /// By up to how much that is longer or shorter, evenly spread: packets overtake each other.
    pub jitter_ns: u64,
}

impl Faults {
    /// Whether there are any.
    pub fn is_none(&self) -> bool {
        self.loss_ppm == 0
            && self.burst_begin_ppm == 0
            && self.duplicate_ppm == 0
            && self.reorder_ppm == 0
            && self.early_ppm == 0
            && self.corrupt_ppm == 0
            && self.garble_ppm == 0
            && self.delay_ns == 0
            && self.jitter_ns == 0
    }
}

/// What is done, and to which packets.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultRule {
    /// To which.
    pub filter: Filter,
    /// What, and how often.
    pub faults: Faults,
    /// At most so many packets are disturbed.
    pub limit: Option<u64>,
}

impl FaultRule {
    /// Whether it chooses packets and then does nothing to them, which is a mistake of its author.
    pub fn is_pointless(&self) -> bool {
        let chooses = self.filter != Filter::default() || self.limit.is_some();
        chooses && self.faults.is_none()
    }
}

/// What an injector did so far, in packets.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Lost, alone or in a burst.
    pub lost: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Held up so that others overtook them, or not delayed so that they overtook others.
    pub reordered: u64,
    /// Damaged so that a checksum shows it.
    pub corrupted: u64,
    /// Damaged so that none does.
    pub garbled: u64,
}

impl FaultCounts {
    /// Packets that did not arrive as they were sent.
    pub fn disturbed(&self) -> u64 {
        self.lost + self.reordered + self.corrupted + self.garbled
    }
}
