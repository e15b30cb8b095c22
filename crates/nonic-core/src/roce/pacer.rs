//! Rate limiting: how fast the requests of a queue pair with a rate may leave.
//!
//! It counts packets with their headers, as a wire would. A sender that is late, because a timer fired late or its
//! program was not scheduled, makes up for it, but only for a moment's worth. Answers to the peer are not held back.

use crate::time::Time;
use std::time::Duration;

/// What may be made up for: without it, timers that fire late would make the rate lower than asked for.
const MOMENT: Duration = Duration::from_millis(1);

/// The rate of a queue pair.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Pacer {
    /// Kilobits per second; none is as fast as can be.
    rate: u32,
    /// When the next packet may leave.
    next: Time,
}

impl Pacer {
    /// From now on, so many kilobits leave in a second; 0 is as many as can.
    pub(crate) fn set(&mut self, now: Time, kilobits_per_second: u32) {
        self.rate = kilobits_per_second;
        self.next = now;
    }

    /// The rate in kilobits per second; 0 if there is none.
    pub(crate) fn rate(&self) -> u32 {
        self.rate
    }

    /// Whether a packet must wait.
    #[inline]
    pub(crate) fn holds(&self, now: Time) -> bool {
        self.rate != 0 && now < self.next
    }

    /// When the next packet may leave, if there is a rate.
    pub(crate) fn next(&self) -> Option<Time> {
        (self.rate != 0).then_some(self.next)
    }

    /// A packet of so many bytes leaves.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Time, bytes: usize) {
        if self.rate == 0 {
            return;
        }
        let due = self.next + MOMENT;
        let begins = if due < now { now } else { due };
        // Bits by kilobits per second are milliseconds.
        let takes = bytes as u64 * 8 * 1_000_000 / u64::from(self.rate);
        let ends = begins + Duration::from_nanos(takes);
        self.next = Time::from_ns(ends.as_ns().saturating_sub(MOMENT.as_nanos() as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that leave in a second if it is asked every so often.
    fn in_a_second(rate: u32, asked_every: Duration) -> u64 {
        let mut pacer = Pacer::default();
        pacer.set(Time::ZERO, rate);
        let (mut now, mut bytes) = (Time::ZERO, 0);
        while now < Time::from_ns(1_000_000_000) {
            while !pacer.holds(now) {
                pacer.on_sent(now, 1000);
                bytes += 1000;
            }
            now = now + asked_every;
        }
        bytes
    }

    #[test]
    fn what_leaves_is_what_was_asked_for_however_late_one_is_asked() {
        for rate in [1_000, 100_000, 10_000_000] {
            for asked_every in [1, 50, 900].map(Duration::from_micros) {
                let bytes = in_a_second(rate, asked_every);
                let wanted = u64::from(rate) * 1000 / 8;
                assert!(
                    bytes.abs_diff(wanted) <= wanted / 50 + 2000,
                    "{bytes} of {wanted}, {asked_every:?}"
                );
            }
        }
    }

    #[test]
    fn who_was_idle_does_not_burst() {
        let mut pacer = Pacer::default();
        pacer.set(Time::ZERO, 8_000);
        let now = Time::from_ns(10_000_000_000);
        let mut bytes = 0;
        while !pacer.holds(now) {
            pacer.on_sent(now, 100);
            bytes += 100;
        }
        // A megabyte in a second is a kilobyte in a millisecond.
        assert!((1000..=1200).contains(&bytes), "{bytes}");
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pacer = Pacer::default();
        pacer.on_sent(Time::ZERO, 1_000_000);
        assert!(!pacer.holds(Time::ZERO));
        assert_eq!(pacer.next(), None);
    }
}
