//! Contention: whether a polling thread has its processor to itself, found out by yielding it.
//!
//! A program that polls and finds nothing yields now and then. On a processor of its own that costs a fraction of a
//! microsecond. Where other threads want it, the scheduler gives each of them a whole slice, several milliseconds. A thread
//! that only ever yields waits behind all of them, although the packet it polls for came long ago. A thread that sleeps
//! instead runs as soon as it is woken. So a long absence after a yield means: sleep from now on, for a while, then try
//! again.
//!
//! The peer may also be a thread on the same processor, which can answer only while this one does not run. Then each answer
//! takes as long as this thread polls before it yields. A sign of that is a yield during which another thread ran and after
//! which the next poll finds work: from then on fewer polls come before a yield, down to [`LEAST_PATIENCE`]. A yield during
//! which no other thread ran, or that brought no work, has the opposite effect.
//!
//! This module neither sleeps nor yields: its callers do.

use nonic_core::Time;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Only a thread that spins keeps the processor for so long.
const LONG_ABSENCE: Duration = Duration::from_micros(500);
/// For how long what was found out counts.
const REMEMBERED: Duration = Duration::from_millis(100);

/// A yield during which no other thread runs takes less.
const NOTICEABLE_ABSENCE: Duration = Duration::from_nanos(1_500);
/// After so many polls in a row without work, a polling thread yields the processor, at most and at least.
const MOST_PATIENCE: u32 = 64;
const LEAST_PATIENCE: u32 = 2;

/// What is known of the processors that the program's threads poll on.
#[derive(Debug)]
pub(super) struct Contention {
    until_ns: AtomicU64,
    patience: AtomicU32,
    /// Another thread ran during the last yield.
    used: AtomicBool,
}

impl Default for Contention {
    fn default() -> Self {
        Contention {
            until_ns: AtomicU64::new(0),
            patience: AtomicU32::new(MOST_PATIENCE),
            used: AtomicBool::new(false),
        }
    }
}

impl Contention {
    /// A thread yielded at one time and was back at another.
    pub(super) fn yielded(&self, at: Time, back: Time) {
        let absence = back.since(at);
        if absence >= LONG_ABSENCE {
            let until = back + REMEMBERED;
            self.until_ns.store(until.as_ns(), Ordering::Relaxed);
        }
        match absence >= NOTICEABLE_ABSENCE {
            true => self.used.store(true, Ordering::Relaxed),
            false => self.be_patient(),
        }
    }

    /// A thread polled, and found work or did not.
    #[inline]
    pub(super) fn polled(&self, worked: bool) {
        if self.used.load(Ordering::Relaxed) {
            self.used.store(false, Ordering::Relaxed);
            match worked {
                true => self.be_impatient(),
                false => self.be_patient(),
            }
        }
    }

    /// After how many polls in a row without work to yield the processor.
    #[inline]
    pub(super) fn patience(&self) -> u32 {
        self.patience.load(Ordering::Relaxed)
    }

    fn be_patient(&self) {
        let patience = (2 * self.patience()).min(MOST_PATIENCE);
        self.patience.store(patience, Ordering::Relaxed);
    }

    fn be_impatient(&self) {
        let patience = (self.patience() / 2).max(LEAST_PATIENCE);
        self.patience.store(patience, Ordering::Relaxed);
    }

    /// Whether other threads wanted the processor a moment ago.
    pub(super) fn is_known(&self, now: Time) -> bool {
        now.as_ns() < self.until_ns.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn yields_that_bring_something_come_sooner_and_others_later() {
        let contention = Contention::default();
        let at = Time::from_ns(1_000_000);
        let back = at + Duration::from_micros(5);
        let most = contention.patience();
        for _ in 0..10 {
            contention.yielded(at, back);
            contention.polled(true);
        }
        assert_eq!(contention.patience(), LEAST_PATIENCE);
        contention.polled(true);
        assert_eq!(contention.patience(), LEAST_PATIENCE, "that was no yield");
        contention.yielded(at, back);
        contention.polled(false);
        assert!(contention.patience() > LEAST_PATIENCE);
        for _ in 0..10 {
            contention.yielded(at, at + Duration::from_nanos(300));
        }
        assert_eq!(contention.patience(), most, "nobody wants it");
    }

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
