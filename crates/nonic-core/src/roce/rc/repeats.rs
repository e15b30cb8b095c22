//! The budget for repeated READs: how many of them a responder answers.
//!
//! A READ request is a few bytes and its answer up to gigabytes. So a broken peer that repeats requests, or a forger in
//! its name, makes us flood the peer with answers, among which its other answers are lost. A requester repeats a READ
//! when an answer was lost: a few times for each READ, or once in a timeout. What goes beyond that is not answered; an
//! honest requester asks again.

use crate::time::Time;
use std::time::Duration;

/// Answers that may come at once.
const MOST: u32 = 64;
/// Answers that each new READ entitles to: with many packets and much loss, it takes as many.
const PER_READ: u32 = 16;
/// Otherwise, one in this time.
const INTERVAL: Duration = Duration::from_micros(100);

/// Repeated READs that may be answered.
#[derive(Copy, Clone, Debug)]
pub(super) struct RepeatBudget {
    left: u32,
    counted_at: Time,
}

impl Default for RepeatBudget {
    fn default() -> Self {
        RepeatBudget {
            left: MOST,
            counted_at: Time::ZERO,
        }
    }
}

impl RepeatBudget {
    /// A READ was asked for the first time.
    pub(super) fn earn(&mut self) {
        self.left = (self.left + PER_READ).min(MOST);
    }

    /// One was asked for again: whether to answer.
    pub(super) fn take(&mut self, now: Time) -> bool {
        let earned = now.since(self.counted_at).as_nanos() / INTERVAL.as_nanos();
        if earned > 0 {
            self.left = MOST.min(self.left.saturating_add(u32::try_from(earned).unwrap_or(MOST)));
            self.counted_at = now;
        }
        let any = self.left > 0;
        self.left = self.left.saturating_sub(1);
        any
    }
}
