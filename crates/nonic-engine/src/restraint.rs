//! How long the background thread keeps away from a program that polls.
//!
//! A nap that proves right is followed by a longer one; one that kept a peer waiting is followed by a time of watching
//! the sockets, twice as long each time it happens again. It knows no clock and no thread: the caller says what came
//! of a nap.

use nonic_core::Time;
use std::time::Duration;

/// The first nap.
pub(crate) const SHORTEST_NAP: Duration = Duration::from_micros(50);
/// The nap it comes to if the program never does anything but poll.
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// A nap is at least so many times as long as waking up from it took: on a slow machine that is dear, and the
/// processor it takes may be the one that the program polls on.
const REST_PER_LOOK: u32 = 16;
/// But no nap is longer than this.
const LONGEST_REST: Duration = Duration::from_millis(20);
/// How long the sockets are watched after a nap that kept a peer waiting, at first and at most. A program that looks at
/// memory now and at completions then is served best by staying.
const SHORTEST_WATCH: Duration = Duration::from_millis(10);
const LONGEST_WATCH: Duration = Duration::from_millis(640);
/// After so many right naps in a row the past is forgotten.
const FORGIVEN_AFTER: u32 = 16;

/// What the naps so far have taught.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Restraint {
    nap: Duration,
    watch: Duration,
    watching_until: Time,
    right_in_a_row: u32,
}

impl Restraint {
    pub(crate) fn new() -> Self {
        Restraint {
            nap: SHORTEST_NAP,
            watch: SHORTEST_WATCH,
            watching_until: Time::ZERO,
            right_in_a_row: 0,
        }
    }

    /// Whether a nap is in order, if the program polls.
    pub(crate) fn may_nap(&self, now: Time) -> bool {
        now >= self.watching_until
    }

    /// How long the next nap is.
    pub(crate) fn nap(&self) -> Duration {
        self.nap
    }

    /// The program polled all the while. Waking up and finding out took so long.
    pub(crate) fn was_right(&mut self, took: Duration) {
        let rest = (REST_PER_LOOK * took).min(LONGEST_REST);
        self.nap = (2 * self.nap).min(LONGEST_NAP).max(rest);
        self.right_in_a_row += 1;
        if self.right_in_a_row >= FORGIVEN_AFTER {
            self.watch = SHORTEST_WATCH;
        }
    }

    /// The program did not poll any more, and somebody had been waiting, or nobody.
    pub(crate) fn was_wrong(&mut self, now: Time, somebody_waited: bool) {
        self.nap = SHORTEST_NAP;
        self.right_in_a_row = 0;
        if somebody_waited {
            self.watching_until = now + self.watch;
            self.watch = (2 * self.watch).min(LONGEST_WATCH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_micros(2);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn naps_grow_while_they_are_right() {
        let mut restraint = Restraint::new();
        let naps: Vec<u128> = (0..7)
            .map(|_| {
                let nap = restraint.nap();
                restraint.was_right(QUICK);
                nap.as_micros()
            })
            .collect();
        assert_eq!(naps, [50, 100, 200, 400, 800, 1000, 1000]);
        restraint.was_wrong(at(5), false);
        assert_eq!(restraint.nap(), SHORTEST_NAP);
        assert!(restraint.may_nap(at(5)), "nobody was harmed");
    }

    #[test]
    fn where_waking_up_is_slow_it_is_done_seldom() {
        let mut restraint = Restraint::new();
        restraint.was_right(Duration::from_micros(300));
        assert_eq!(restraint.nap(), Duration::from_micros(4800));
        restraint.was_right(Duration::from_secs(1));
        assert_eq!(restraint.nap(), LONGEST_REST);
        restraint.was_right(QUICK);
        assert_eq!(restraint.nap(), LONGEST_NAP);
    }

    #[test]
    fn whoever_kept_others_waiting_watches_longer_each_time() {
        let mut restraint = Restraint::new();
        restraint.was_wrong(at(0), true);
        assert!(!restraint.may_nap(at(9)));
        assert!(restraint.may_nap(at(10)));
        restraint.was_wrong(at(10), true);
        assert!(!restraint.may_nap(at(29)));
        assert!(restraint.may_nap(at(30)));
        for _ in 0..20 {
            restraint.was_wrong(at(30), true);
        }
        assert!(restraint.may_nap(at(30) + LONGEST_WATCH));
    }

    #[test]
    fn long_good_conduct_is_rewarded() {
        let mut restraint = Restraint::new();
        for _ in 0..20 {
            restraint.was_wrong(at(0), true);
        }
        for _ in 0..FORGIVEN_AFTER {
            restraint.was_right(QUICK);
        }
        restraint.was_wrong(at(1000), true);
        assert!(restraint.may_nap(at(1000) + SHORTEST_WATCH));
    }
}
