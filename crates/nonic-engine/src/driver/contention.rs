//! Whether a polling thread has its processor to itself, found out by offering it to others.
//!
//! A program that polls and finds nothing yields now and then. On a processor of its own that costs a fraction of a
//! microsecond. Where others want it, the scheduler lets each of them have a whole slice, several milliseconds, and a
//! thread that only ever yields waits its turn behind all of them, although the packet it polls for came long ago. A
//! thread that sleeps instead is let in as soon as it is woken. So a long absence after a yield means: sleep from now on,
//! for a while, then find out again.
//!
//! It knows nothing of sleeping or yielding itself.

use nonic_core::Time;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nobody but a thread that spins keeps the processor for so long.
const LONG_ABSENCE: Duration = Duration::from_micros(500);
/// For how long what was found out counts.
const REMEMBERED: Duration = Duration::from_millis(100);

/// What is known of the processors that the program's threads poll on.
#[derive(Debug, Default)]
pub(super) struct Contention {
    until_ns: AtomicU64,
}

impl Contention {
    /// A thread yielded at one time and was back at another.
    pub(super) fn yielded(&self, at: Time, back: Time) {
        if back.since(at) >= LONG_ABSENCE {
            let until = back + REMEMBERED;
            self.until_ns.store(until.as_ns(), Ordering::Relaxed);
        }
    }

    /// Whether others wanted the processor a moment ago.
    pub(super) fn is_known(&self, now: Time) -> bool {
        now.as_ns() < self.until_ns.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_long_absence_is_remembered_for_a_while() {
        let contention = Contention::default();
        let at = Time::from_ns(1_000_000);
        assert!(!contention.is_known(at));
        contention.yielded(at, at + Duration::from_micros(5));
        assert!(!contention.is_known(at + Duration::from_micros(5)));
        let back = at + Duration::from_millis(3);
        contention.yielded(at, back);
        assert!(contention.is_known(back));
        assert!(contention.is_known(back + REMEMBERED.mul_f32(0.9)));
        assert!(!contention.is_known(back + REMEMBERED));
    }
}
