//! Retransmission of messages that get no answer.
//!
//! Both sides agree on how long an answer may take: by Linux's default, 4.4 s. A single lost message would hold up a
//! connection for that long. So during the first of these waits a message is sent a few times more, each time after
//! twice the pause. A peer that is merely slow knows the message already; it costs the peer an MRA at most. None of
//! these early repetitions counts as an attempt: a peer is given up no sooner and no later than without them.

use super::config::CmConfig;
use crate::time::Time;
use std::time::Duration;

/// Where a connection stands with the message it has sent last.
#[derive(Copy, Clone, Debug)]
pub(super) struct Repetition {
    /// When its state began: for one that waits for an answer, when the message was first sent.
    pub(super) since: Time,
    /// Early ones made, or about to be.
    early: u8,
    /// The next one costs no attempt.
    pub(super) free: bool,
}

impl Repetition {
    pub(super) fn new(since: Time) -> Self {
        Repetition {
            since,
            early: 0,
            free: false,
        }
    }

    /// The message is sent now; when it is sent again.
    pub(super) fn first(&mut self, now: Time, patience: Duration, config: &CmConfig) -> Time {
        *self = Repetition::new(now);
        self.next(now, patience, config)
    }

    /// It is sent again now; when it is the next time.
    pub(super) fn next(&mut self, now: Time, patience: Duration, config: &CmConfig) -> Time {
        let whole = self.since + patience;
        let early = now + config.early_pause * (1 << self.early.min(16));
        self.free = self.early < config.early_repeats && early < whole;
        if self.free {
            self.early += 1;
            early
        } else if now < whole {
            whole
        } else {
            now + patience
        }
    }

    /// The peer answered that it has no listener, and is asked again at this time. That is not for want of an answer, so the count
    /// begins anew, and the peer has as long to answer as before.
    pub(super) fn again(&mut self, at: Time) {
        *self = Repetition::new(at);
        self.free = true;
    }
}
