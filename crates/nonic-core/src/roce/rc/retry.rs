//! How long a requester waits for its peer, and how often it tries again.
//!
//! Two clocks run while something is under way. The program's timeout decides when a retry is used up, and after the last one the peer
//! is gone. The measured round trip decides when an answer is overdue; provoking one costs a packet and no retry.
//!
//! Retries of another kind are counted apart: a peer without a receive (RNR) says how long to stay away, and the program's `rnr_retry`
//! says how often. A peer that says that its queue pair was destroyed is given up sooner (`roce::departure`). For a peer that is reached
//! by records in a lane, `roce::local` has rules of its own.
//!
//! This module says when something is due. What is sent then is decided in `recovery`.

use super::round_trip::RoundTrip;
use crate::roce::context::RoceContext;
use crate::roce::departure::GRACE;
use crate::roce::extended_psn::ExtendedPsn;
use crate::time::Time;
use std::time::Duration;

/// `rnr_retry` of 7 means: for ever.
const RNR_RETRY_INFINITE: u8 = 7;

/// When the requester wants to be woken.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequesterTimers {
    /// The peer must have answered by then: the program says so.
    pub(crate) retransmit_at: Option<Time>,
    /// The peer asked for quiet until then.
    pub(crate) quiet_until: Option<Time>,
    /// An answer usually comes before.
    silent_at: Option<Time>,
    /// What was overtaken, or sent again, counts as lost then.
    overdue_at: Option<Time>,
}

impl RequesterTimers {
    /// When losses are to be looked for.
    pub(crate) fn recover_at(&self) -> Option<Time> {
        match (self.silent_at, self.overdue_at) {
            (Some(silent_at), Some(overdue_at)) => Some(silent_at.min(overdue_at)),
            (silent_at, overdue_at) => silent_at.or(overdue_at),
        }
    }
}

/// What is due.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Due {
    /// The program's timeout has passed.
    pub(super) timeout: bool,
    /// A packet may have turned out lost.
    pub(super) overdue: bool,
    /// Nothing was heard for longer than answers take.
    pub(super) silence: bool,
}

/// The patience of a requester.
#[derive(Debug, Default)]
pub(super) struct RetryPolicy {
    retry_left: u8,
    rnr_left: u8,
    /// How often in a row nothing was heard for longer than usual.
    silences: u8,
    /// The peer's queue pair was destroyed: nothing is sent any more, and what is not answered soon fails.
    peer_gone: bool,
    timers: RequesterTimers,
    /// A packet whose answer was asked for, and when: its round trip is being measured.
    measured: Option<(ExtendedPsn, Time)>,
    pub(super) round_trip: RoundTrip,
}

impl RetryPolicy {
    /// For a new sequence of packets. What is known of the path stays.
    pub(super) fn start(&mut self, roce: &RoceContext) {
        self.peer_gone = false;
        self.renew(roce);
    }

    /// The peer has made progress: all retries may be used again.
    pub(super) fn renew(&mut self, roce: &RoceContext) {
        self.retry_left = roce.retry_count;
        self.rnr_left = roce.rnr_retry;
    }

    pub(super) fn timers(&self) -> &RequesterTimers {
        &self.timers
    }

    pub(super) fn retries_left(&self) -> u8 {
        self.retry_left
    }

    pub(super) fn rnr_retries_left(&self) -> u8 {
        self.rnr_left
    }

    /// How often in a row nothing was heard for longer than usual.
    pub(super) fn silences(&self) -> u8 {
        self.silences
    }

    /// Something was heard, or is sent anew.
    pub(super) fn end_silence(&mut self) {
        self.silences = 0;
    }

    /// Whether the peer has not answered within the program's timeout, and is asked with one packet at a time.
    pub(super) fn is_probing(&self, roce: &RoceContext) -> bool {
        self.retry_left < roce.retry_count
    }

    /// Whether the peer's queue pair was destroyed.
    pub(super) fn is_peer_gone(&self) -> bool {
        self.peer_gone
    }

    /// The peer's queue pair was destroyed.
    pub(super) fn lose_peer(&mut self) {
        self.peer_gone = true;
    }

    /// Whether the peer asked for quiet.
    pub(super) fn is_quiet(&self) -> bool {
        self.timers.quiet_until.is_some()
    }

    /// The peer asked for quiet. Nothing is expected of it until then.
    pub(super) fn keep_quiet(&mut self, until: Time) {
        self.stop_waiting();
        self.timers.quiet_until = Some(until);
    }

    /// The peer has executed what it was not ready for.
    pub(super) fn end_quiet(&mut self) {
        self.timers.quiet_until = None;
    }

    /// How many times the peer may still say that it has no receive; `None` if any number of times.
    pub(super) fn rnr_retries(&self, roce: &RoceContext) -> Option<u8> {
        (roce.rnr_retry != RNR_RETRY_INFINITE).then_some(self.rnr_left)
    }

    /// The peer had no receive. Returns whether it may be asked again.
    pub(super) fn use_rnr_retry(&mut self, roce: &RoceContext) -> bool {
        if roce.rnr_retry == RNR_RETRY_INFINITE {
            return true;
        }
        let left = self.rnr_left.checked_sub(1);
        self.rnr_left = left.unwrap_or(0);
        left.is_some()
    }

    /// The program's timeout has passed. Returns whether the peer may be asked again.
    pub(super) fn use_retry(&mut self) -> bool {
        let left = self.retry_left.checked_sub(1);
        self.retry_left = left.unwrap_or(0);
        left.is_some()
    }

    /// Takes note of what is due, of which the peer's wish for quiet ends here.
    pub(super) fn take_due(&mut self, now: Time) -> Due {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if is_due(self.timers.quiet_until) {
            self.timers.quiet_until = None;
        }
        Due {
            timeout: is_due(self.timers.retransmit_at),
            overdue: is_due(self.timers.overdue_at),
            silence: is_due(self.timers.silent_at),
        }
    }

    /// No answer is due.
    pub(super) fn stop_waiting(&mut self) {
        (self.timers.retransmit_at, self.timers.silent_at) = (None, None);
    }

    /// Nothing is due at all.
    pub(super) fn stop(&mut self) {
        self.timers = RequesterTimers::default();
    }

    /// The program's timeout runs, from now on if it did not before. `asked` says whether an answer was asked for.
    pub(super) fn ensure_waiting(&mut self, roce: &RoceContext, now: Time, asked: bool) {
        if self.timers.retransmit_at.is_none() {
            self.wait(roce, now, asked);
        }
    }

    /// The program's timeout begins anew.
    pub(super) fn wait(&mut self, roce: &RoceContext, now: Time, asked: bool) {
        if self.peer_gone {
            self.wait_for_the_last(roce, now);
            return;
        }
        let timeouts = roce.retry_count.saturating_sub(self.retry_left);
        let patience = roce.timeout.after_timeouts(timeouts);
        self.timers.retransmit_at = patience.map(|patience| now + patience);
        self.timers.silent_at = None;
        if asked {
            self.expect_answer(roce, now);
        }
    }

    /// The peer is gone: the time begins after which requests that were not answered fail.
    #[cold]
    fn wait_for_the_last(&mut self, roce: &RoceContext, now: Time) {
        let patience = roce.timeout.after_timeouts(0);
        let retries = patience.map_or(GRACE, |patience| patience * (1 + u32::from(self.retry_left)));
        self.timers.silent_at = None;
        self.timers.retransmit_at.get_or_insert(now + retries.min(GRACE));
    }

    /// An answer was asked for. If none was expected before, one is from now on.
    pub(super) fn ensure_expecting(&mut self, roce: &RoceContext, now: Time) {
        if self.timers.silent_at.is_none() {
            self.expect_answer(roce, now);
        }
    }

    fn expect_answer(&mut self, roce: &RoceContext, now: Time) {
        // A peer that did not answer in time has the program's timeout, and nothing else. One that never answered is waited for
        // as long as the program says, if that is for ever.
        let patient = self.round_trip.is_known() || roce.timeout.after_timeouts(0).is_some();
        if !self.is_probing(roce) && patient {
            self.expect_by(now + self.round_trip.probe_after());
        }
    }

    /// A peer that is silent until `at` is asked again, unless the program's timeout is shorter.
    pub(super) fn expect_by(&mut self, at: Time) {
        let allowed = self.timers.retransmit_at.is_none_or(|timeout| at < timeout);
        self.timers.silent_at = allowed.then_some(at);
    }

    /// Nothing was heard for longer than answers take. Returns how long to wait after what is done about it.
    pub(super) fn count_silence(&mut self) -> Duration {
        let wait = self.round_trip.retransmit_after(self.silences);
        self.silences = self.silences.saturating_add(1);
        wait
    }

    /// The silence is being dealt with.
    pub(super) fn stop_expecting(&mut self) {
        self.timers.silent_at = None;
    }

    /// When the next packet may turn out lost.
    pub(super) fn watch_overdue(&mut self, at: Option<Time>) {
        self.timers.overdue_at = at;
    }

    /// How long to wait for a packet that was overtaken, and for one that was sent again. To a peer that is silent, nothing is sent
    /// for want of patience: that has a timer of its own, which grows.
    pub(super) fn reordering_waits(&self) -> (Duration, Option<Duration>) {
        let patience = (self.silences < 2).then(|| self.round_trip.probe_after());
        (self.round_trip.reordering_window(), patience)
    }

    /// Measures the round trip of what asks for an answer up to here, unless one is being measured.
    pub(super) fn measure(&mut self, asked: ExtendedPsn, now: Time) {
        self.measured.get_or_insert((asked, now));
    }

    /// When the packet was sent whose round trip is being measured.
    pub(super) fn measured_since(&self) -> Option<Time> {
        self.measured.map(|(_, asked_at)| asked_at)
    }

    /// An answer covers what is after `from` and up to `to`: when that was asked for, if its round trip is being measured.
    pub(super) fn take_measured(&mut self, from: Option<ExtendedPsn>, to: ExtendedPsn) -> Option<Time> {
        let covered = |psn: ExtendedPsn| from.is_none_or(|from| from < psn) && psn <= to;
        let taken = self.measured.take_if(|(psn, _)| covered(*psn));
        taken.map(|(_, asked_at)| asked_at)
    }

    /// Packets from here on are sent again. Karn's rule: an answer that covers them may be to either copy.
    pub(super) fn forget_measured_after(&mut self, first: ExtendedPsn) {
        self.measured = self.measured.filter(|(psn, _)| *psn <= first);
    }

    /// All packets under way are sent again.
    pub(super) fn forget_measured(&mut self) {
        self.measured = None;
    }
}
