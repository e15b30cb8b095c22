//! How long a requester waits for a process of this host, and how often it tries again.
//!
//! Three things can keep a record from being executed. The peer has no receive (RNR): it says how long to stay away, and how often is
//! the program's to say. The peer's queue pair does not receive yet: it is tried again soon, and the program's timeout decides when a
//! retry is used up. The peer does not look at its lane, because it is stopped or busy: then the same timeout runs, and nothing is written
//! again, since the record is still there.
//!
//! No clock is read when a record is written. A *watch* looks now and then whether records were answered since the last time.

use crate::queue_pair::RnrTimer;
use crate::roce::context::RoceContext;
use crate::roce::departure::GRACE;
use crate::time::Time;
use std::time::Duration;

/// `rnr_retry` of 7 means: for ever.
const RNR_RETRY_INFINITE: u8 = 7;
/// A peer that did not execute a record is tried again after this time, then after twice as much, and so on up to the longest.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The patience of a requester.
#[derive(Debug, Default)]
pub(super) struct Patience {
    retry_left: u8,
    rnr_left: u8,
    /// Nothing is written before this time.
    quiet_until: Option<Time>,
    /// How often in a row a record was not executed.
    ignored: u8,
    /// The peer must have executed something by then, or a retry is used up.
    due_at: Option<Time>,
    /// When to look whether the peer lives; and how many signs of that there had been when it last looked, if it did.
    watch_at: Option<Time>,
    watched: Option<u64>,
    /// The peer's queue pair, or its process, is gone.
    gone: bool,
}

/// What time has brought.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// Nothing, or the end of a pause.
    Nothing,
    /// The program's timeout has passed once more, and there are retries left.
    TimedOut,
    /// There are none left.
    GivenUp,
}

impl Patience {
    /// For a new connection.
    pub(super) fn new(roce: &RoceContext) -> Self {
        Patience {
            retry_left: roce.retry_count,
            rnr_left: roce.rnr_retry,
            ..Patience::default()
        }
    }

    pub(super) fn retries_left(&self) -> u8 {
        self.retry_left
    }

    pub(super) fn rnr_retries_left(&self) -> u8 {
        self.rnr_left
    }

    /// A record was executed.
    #[inline]
    pub(super) fn progressed(&mut self, roce: &RoceContext) {
        self.retry_left = roce.retry_count;
        self.rnr_left = roce.rnr_retry;
        if self.ignored > 0 {
            (self.ignored, self.due_at) = (0, None);
        }
    }

    /// Whether nothing may be written now.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet_until.is_some()
    }

    pub(super) fn quiet_until(&self) -> Option<Time> {
        self.quiet_until
    }

    /// How many times the peer may still say that it has no receive; `None` if any number of times.
    pub(super) fn rnr_retries(&self, roce: &RoceContext) -> Option<u8> {
        (roce.rnr_retry != RNR_RETRY_INFINITE).then_some(self.rnr_left)
    }

    /// The peer had no receive, and asks to be left alone. Returns whether it may be asked again.
    pub(super) fn not_ready(&mut self, roce: &RoceContext, now: Time, timer: RnrTimer) -> bool {
        if roce.rnr_retry != RNR_RETRY_INFINITE {
            let Some(left) = self.rnr_left.checked_sub(1) else {
                return false;
            };
            self.rnr_left = left;
        }
        self.quiet_until = Some(now + timer.duration());
        true
    }

    /// The peer did not execute a record, and says no more.
    pub(super) fn ignored(&mut self, roce: &RoceContext, now: Time) {
        let pause = FIRST_PAUSE * (1 << self.ignored.min(10));
        self.ignored = self.ignored.saturating_add(1);
        self.quiet_until = Some(now + pause.min(LONGEST_PAUSE));
        if self.due_at.is_none() {
            self.due_at = self.timeout(roce).map(|timeout| now + timeout);
        }
    }

    fn timeout(&self, roce: &RoceContext) -> Option<Duration> {
        let timeouts = roce.retry_count.saturating_sub(self.retry_left);
        roce.timeout.after_timeouts(timeouts)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// The peer is gone. What it did not execute fails when its retries would have run out, or after [`GRACE`].
    pub(super) fn lose_peer(&mut self, roce: &RoceContext, now: Time) {
        self.gone = true;
        self.wait_for_the_last(roce, now);
    }

    /// A request is queued to a peer that is gone.
    pub(super) fn wait_for_the_last(&mut self, roce: &RoceContext, now: Time) {
        let patience = roce.timeout.after_timeouts(0);
        let retries = patience.map_or(GRACE, |patience| patience * (1 + u32::from(self.retry_left)));
        self.due_at.get_or_insert(now + retries.min(GRACE));
    }

    /// A record was written. Returns whether a watch begins, so that a timer must be set.
    #[inline]
    pub(super) fn written(&mut self, roce: &RoceContext, now: Time) -> bool {
        if self.watch_at.is_some() {
            return false;
        }
        self.begin_watch(roce, now)
    }

    /// The time may be old: posting reads no clock. So the first look only begins to wait.
    #[cold]
    fn begin_watch(&mut self, roce: &RoceContext, now: Time) -> bool {
        self.watched = None;
        self.watch_at = self.timeout(roce).map(|timeout| now + timeout);
        self.watch_at.is_some()
    }

    /// When [`Patience::handle_timeout`] is due, pauses apart.
    pub(super) fn due_at(&self) -> Option<Time> {
        match (self.due_at, self.watch_at) {
            (Some(due_at), Some(watch_at)) => Some(due_at.min(watch_at)),
            (due_at, watch_at) => due_at.or(watch_at),
        }
    }

    /// Takes note of what is due. `signs` is how often the peer was seen to live, `under_way` whether something is waited for.
    pub(super) fn handle_timeout(
        &mut self,
        roce: &RoceContext,
        now: Time,
        signs: u64,
        under_way: bool,
    ) -> Due {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if is_due(self.quiet_until) {
            self.quiet_until = None;
        }
        let mut timed_out = false;
        if is_due(self.due_at) {
            if self.gone {
                return Due::GivenUp;
            }
            timed_out = true;
        }
        if is_due(self.watch_at) {
            timed_out |= under_way && self.watched == Some(signs);
            self.watched = Some(signs);
            self.watch_at = None;
        }
        if timed_out {
            let Some(left) = self.retry_left.checked_sub(1) else {
                return Due::GivenUp;
            };
            self.retry_left = left;
        }
        if is_due(self.due_at) {
            self.due_at = self.timeout(roce).map(|timeout| now + timeout);
        }
        if under_way && self.watch_at.is_none() {
            self.watch_at = self.timeout(roce).map(|timeout| now + timeout);
        }
        match timed_out {
            true => Due::TimedOut,
            false => Due::Nothing,
        }
    }

    /// Nothing is waited for any more.
    pub(super) fn stop(&mut self) {
        (self.quiet_until, self.due_at, self.watch_at) = (None, None, None);
    }
}
