//! A sender's timeouts: the same rules and constants as the core's requester has, for flows without a NIC.

/// A usual round trip, how much it varies, and how late packets come that others overtook. Nanoseconds.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed: u64,
    variation: u64,
    reordering: u64,
}

const SHORTEST_PROBE: u64 = 2_000_000;
const SHORTEST_VARIATION: u64 = 4_000_000;
const UNKNOWN: u64 = 30_000_000;
const SHORTEST_REORDERING: u64 = 100_000;
const LONGEST: u64 = 2_000_000_000;

impl RoundTrip {
    pub(super) fn sample(&mut self, ns: u64) {
        if self.smoothed == 0 {
            (self.smoothed, self.variation) = (ns.max(1), ns / 2);
            return;
        }
        let off = self.smoothed.abs_diff(ns);
        self.variation = self.variation - self.variation / 4 + off / 4;
        self.smoothed = (self.smoothed - self.smoothed / 8 + ns / 8).max(1);
    }

    /// After so long without an answer one is provoked.
    pub(super) fn probe_after(&self) -> u64 {
        match self.smoothed {
            0 => UNKNOWN,
            smoothed => smoothed + SHORTEST_PROBE.max(2 * self.variation),
        }
    }

    /// After so long more, everything counts as lost.
    pub(super) fn retransmit_after(&self, times: u8) -> u64 {
        let once = match self.smoothed {
            0 => UNKNOWN,
            smoothed => smoothed + SHORTEST_VARIATION.max(4 * self.variation),
        };
        (once << times.min(8)).min(LONGEST)
    }

    /// A packet that was overtaken is lost after so long.
    pub(super) fn reordering_window(&self) -> u64 {
        let usual = (self.smoothed / 4).max(SHORTEST_REORDERING);
        self.reordering.clamp(usual, usual.max(2 * self.smoothed))
    }

    /// A packet came so long after it was overtaken.
    pub(super) fn was_reordered(&mut self, late_ns: u64) {
        self.reordering = self.reordering.max(late_ns + late_ns / 4);
    }

    pub(super) fn was_lost(&mut self) {
        self.reordering -= self.reordering / 64;
    }
}
