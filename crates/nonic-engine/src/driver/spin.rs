//! Adaptive spinning: whether a thread about to sleep should poll for a while first, learned from how earlier waits ended.
//!
//! Sleeping and being woken costs several microseconds on either side. Where the next packet comes sooner than that, a
//! thread that polls gains; where it does not, the thread has used a processor for nothing. So [`Spin`] remembers how long
//! threads waited for packets lately, asleep or not. It answers with a duration that is a small multiple of that, never
//! more than [`LONGEST`], or with none at all if packets take longer than is worth it.
//!
//! A thread that polled in vain polls less often: the next time, then every second time, then every fourth, and so on, with
//! at most [`MAX_SKIPPED`] waits in between. That also keeps it from competing with the threads it waits for: where they
//! need the same processor, the packet never comes while it polls. A thread that is interrupted while it polls, because
//! other threads want the processor, lets several waits pass at once.
//!
//! A thread that waits once, and long, polls for [`LONGEST`] at most and sleeps.
//!
//! This module reads no clock and polls nothing itself.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// No thread polls for longer: several times what a wake-up costs.
const LONGEST: Duration = Duration::from_micros(50);
/// What is not found within this is not worth looking for, on the average.
const WORTHWHILE_NS: u64 = 40_000;
/// A single wait counts for no more than this.
const LONGEST_COUNTED_NS: u64 = 200_000;
/// Added to twice the usual wait, for the least a packet takes to come.
const MARGIN_NS: u64 = 5_000;
/// The most waits in a row that do not begin with a look, however many looks were in vain.
const MAX_SKIPPED: u32 = 255;

/// A thread that was interrupted lets at least so many waits pass.
const DISTURBED_SKIP: u32 = 15;
/// Between two readings of the clock in a look, which are a few system calls apart, nothing takes so long but another
/// thread that runs on the same processor.
pub(crate) const DISTURBANCE: Duration = Duration::from_micros(20);

/// What is known of the waits of one thread, or of the threads that wait for one thing.
#[derive(Debug)]
pub(crate) struct Spin {
    /// How long something was waited for lately, a moving average.
    usual_ns: AtomicU64,
    /// How many waits to let pass before looking again, now and the next time a look is in vain.
    skip: AtomicU32,
    next_skip: AtomicU32,
}

impl Default for Spin {
    /// Nothing is known: no reason to look.
    fn default() -> Self {
        Spin {
            usual_ns: AtomicU64::new(LONGEST_COUNTED_NS),
            skip: AtomicU32::new(0),
            next_skip: AtomicU32::new(0),
        }
    }
}

impl Spin {
    /// For how long to look before sleeping, if at all. Asked once for each wait.
    pub(crate) fn duration(&self) -> Option<Duration> {
        let usual_ns = self.usual_ns.load(Ordering::Relaxed);
        if usual_ns > WORTHWHILE_NS {
            return None;
        }
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Ordering::Relaxed);
            return None;
        }
        Some(Duration::from_nanos(2 * usual_ns + MARGIN_NS).min(LONGEST))
    }

    /// Something came after so long, to a thread that looked or to one that slept.
    pub(crate) fn waited(&self, duration: Duration) {
        let wait_ns =
            u64::try_from(duration.as_nanos()).map_or(LONGEST_COUNTED_NS, |ns| ns.min(LONGEST_COUNTED_NS));
        let usual_ns = self.usual_ns.load(Ordering::Relaxed);
        // Two threads that write at once lose one sample.
        self.usual_ns
            .store((7 * usual_ns + wait_ns) / 8, Ordering::Relaxed);
    }

    /// A look found something.
    pub(crate) fn paid_off(&self) {
        self.next_skip.store(0, Ordering::Relaxed);
    }

    /// A look found nothing.
    pub(crate) fn was_in_vain(&self) {
        let skip = self.next_skip.load(Ordering::Relaxed);
        self.skip.store(skip, Ordering::Relaxed);
        self.next_skip
            .store((2 * skip + 1).min(MAX_SKIPPED), Ordering::Relaxed);
    }

    /// A look was interrupted for longer than anything in it takes: other threads want the processor.
    pub(crate) fn was_disturbed(&self) {
        self.next_skip.fetch_max(DISTURBED_SKIP, Ordering::Relaxed);
        self.was_in_vain();
    }

    /// Whether packets come so soon that a thread which sleeps is hardly ever gone for long.
    pub(crate) fn is_brisk(&self) -> bool {
        self.usual_ns.load(Ordering::Relaxed) <= 2 * WORTHWHILE_NS
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(8);
    const LONG: Duration = Duration::from_millis(5);

    fn after(waits: impl IntoIterator<Item = Duration>) -> Spin {
        let spin = Spin::default();
        waits.into_iter().for_each(|wait| spin.waited(wait));
        spin
    }

    #[test]
    fn who_knows_nothing_or_waits_long_does_not_look() {
        assert_eq!(after([]).duration(), None);
        assert_eq!(after([SHORT]).duration(), None, "once is not a habit");
        let spin = after([SHORT; 30].into_iter().chain([LONG; 30]));
        assert_eq!(spin.duration(), None);
        assert!(!spin.is_brisk());
    }

    #[test]
    fn short_waits_are_worth_a_look_that_is_not_much_longer() {
        let spin = after([SHORT; 40]);
        let duration = spin.duration().expect("worth it");
        assert!(duration > 2 * SHORT && duration <= LONGEST, "{duration:?}");
        spin.waited(LONG);
        assert!(spin.duration().is_some(), "one pause changes nothing");
    }

    #[test]
    fn looks_in_vain_become_rare_until_one_pays_off() {
        let spin = after([SHORT; 40]);
        let mut looks = 0;
        for _ in 0..10_000 {
            if spin.duration().is_some() {
                looks += 1;
                spin.was_in_vain();
            }
        }
        assert!((8..60).contains(&looks), "{looks}");
        spin.paid_off();
        spin.was_disturbed();
        assert_eq!(spin.duration(), None);
        spin.paid_off();
        while spin.duration().is_none() {}
        spin.was_in_vain();
        assert!(spin.duration().is_some(), "one failure is forgiven");
    }
}
