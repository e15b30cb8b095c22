//! Round-trip estimation: how long a requester waits before it suspects a loss.
//!
//! Samples are of packets that asked for an acknowledgement and were sent once (Karn's rule). From them come a smoothed
//! round trip and how much it varies (RFC 6298 §2). From these come two waits, both much shorter than most programs'
//! timeouts:
//! - after [`RoundTrip::probe_after`] without an answer, one packet is sent again to provoke one;
//! - after [`RoundTrip::retransmit_after`] more, whatever is under way counts as lost.
//!
//! Neither says anything about a peer that is gone: the program's timeout and its retries find that out.
//!
//! The third result is the *reordering window*: how long a packet that a later one has overtaken may still be on its
//! way. It is a part of the round trip at first and grows when packets turn out to have been only late.

use std::time::Duration;

/// A peer may withhold an acknowledgement for a millisecond, and so may its scheduler: a shorter wait would send many
/// packets twice on a short path.
const SHORTEST_PROBE: u32 = 2_000_000;

/// What a round trip may vary by beyond what was measured, before everything counts as lost.
const SHORTEST_VARIATION: u32 = 4_000_000;

/// The wait before there is a sample: longer than most paths take, shorter than most programs' timeouts. If a thousand
/// peers begin at once and most of what they send is lost, they ask again before any of them takes the other for dead.
const UNKNOWN: u32 = 30_000_000;

/// No wait is longer, however often it was doubled.
const LONGEST: Duration = Duration::from_secs(2);

/// The reordering window is at least this long: about what a packet may wait in the queues of one more processor.
const SHORTEST_REORDERING: u32 = 100_000;

/// A sample is taken for no longer than this: it fits 32 bits of nanoseconds with room for the sums.
const LONGEST_SAMPLE: u64 = 500_000_000;

/// The estimate, in nanoseconds. Small, because every queue pair has one.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct RoundTrip {
    /// Zero before there is a sample.
    smoothed: u32,
    variation: u32,
    /// The longest that an overtaken packet was late for, of late.
    reordering: u32,
}

impl RoundTrip {
    /// An answer took this long.
    pub(super) fn sample(&mut self, took: Duration) {
        let sample =
            u64::try_from(took.as_nanos()).map_or(LONGEST_SAMPLE, |ns| ns.clamp(1, LONGEST_SAMPLE)) as u32;
        if self.smoothed == 0 {
            (self.smoothed, self.variation) = (sample, sample / 2);
            return;
        }
        let off = self.smoothed.abs_diff(sample);
        self.variation = self.variation - self.variation / 4 + off / 4;
        self.smoothed = (self.smoothed - self.smoothed / 8 + sample / 8).max(1);
    }

    /// The peer has answered, and it took no longer than this, if that is known.
    pub(super) fn assume(&mut self, at_most: Option<Duration>) {
        self.sample(at_most.unwrap_or(nanoseconds(UNKNOWN)));
    }

    /// Whether there was a sample.
    pub(super) fn is_known(&self) -> bool {
        self.smoothed != 0
    }

    /// A usual round trip; zero before there is a sample.
    pub(super) fn smoothed(&self) -> Duration {
        nanoseconds(self.smoothed)
    }

    /// How long to wait for an answer before one is provoked.
    pub(super) fn probe_after(&self) -> Duration {
        if self.smoothed == 0 {
            return nanoseconds(UNKNOWN);
        }
        nanoseconds(self.smoothed) + nanoseconds(SHORTEST_PROBE).max(2 * nanoseconds(self.variation))
    }

    /// How long to wait before everything under way counts as lost, after it did so `times` already: twice as long each time.
    pub(super) fn retransmit_after(&self, times: u8) -> Duration {
        let once = match self.smoothed {
            0 => nanoseconds(UNKNOWN),
            _ => {
                nanoseconds(self.smoothed)
                    + nanoseconds(SHORTEST_VARIATION).max(4 * nanoseconds(self.variation))
            }
        };
        (once * (1 << times.min(8))).min(LONGEST)
    }

    /// How long a packet that was overtaken may be on its way before it counts as lost.
    pub(super) fn reordering_window(&self) -> Duration {
        let usual = (self.smoothed / 4).max(SHORTEST_REORDERING);
        let bound = self.smoothed.saturating_mul(2).max(usual);
        nanoseconds(self.reordering.clamp(usual, bound))
    }

    /// A packet came so long after it was overtaken, without being sent again or before that could have helped.
    pub(super) fn was_reordered(&mut self, late: Duration) {
        let late = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        // A quarter more, or the window would never find out that it is too short.
        let wanted = (late + late / 4).min(2 * LONGEST_SAMPLE) as u32;
        self.reordering = self.reordering.max(wanted);
    }

    /// A packet was lost indeed. Paths change: what was learned of reordering is forgotten slowly.
    pub(super) fn was_lost(&mut self) {
        self.reordering -= self.reordering / 64;
    }
}

fn nanoseconds(ns: u32) -> Duration {
    Duration::from_nanos(u64::from(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn after(samples: &[u32]) -> RoundTrip {
        let mut round_trip = RoundTrip::default();
        samples.iter().for_each(|ms| round_trip.sample(*ms * MS));
        round_trip
    }

    #[test]
    fn a_steady_round_trip_is_waited_for_and_little_more() {
        let steady = after(&[50; 40]);
        assert_eq!(steady.smoothed().as_millis(), 50);
        assert_eq!(steady.probe_after().as_millis(), 52);
        assert_eq!(steady.retransmit_after(0).as_millis(), 54);
    }

    #[test]
    fn one_that_varies_is_waited_for_longer() {
        let varying = after(&[10, 30].repeat(20));
        assert!(varying.retransmit_after(0) > 50 * MS, "{varying:?}");
        assert!(varying.probe_after() < varying.retransmit_after(0));
    }

    #[test]
    fn each_silence_doubles_the_wait_within_a_bound() {
        let steady = after(&[50; 40]);
        assert_eq!(steady.retransmit_after(3), 8 * steady.retransmit_after(0));
        assert_eq!(steady.retransmit_after(200), LONGEST);
    }

    #[test]
    fn samples_of_any_length_are_taken() {
        let mut round_trip = RoundTrip::default();
        for took in [Duration::ZERO, Duration::MAX, Duration::ZERO, MS, Duration::MAX] {
            round_trip.sample(took);
            assert!(round_trip.smoothed() > Duration::ZERO);
            assert!(round_trip.retransmit_after(u8::MAX) <= LONGEST);
        }
    }

    #[test]
    fn the_reordering_window_learns_what_late_means_and_forgets_it_slowly() {
        let mut round_trip = after(&[4; 40]);
        assert_eq!(round_trip.reordering_window(), MS);
        round_trip.was_reordered(4 * MS);
        assert_eq!(round_trip.reordering_window(), 5 * MS);
        round_trip.was_reordered(100 * MS);
        assert_eq!(round_trip.reordering_window(), 8 * MS, "two round trips at most");
        (0..400).for_each(|_| round_trip.was_lost());
        assert_eq!(round_trip.reordering_window(), MS);
    }
}
