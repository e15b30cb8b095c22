//! How a shard fails: it lost a descriptor, another shard of its device failed, or a fault was asked for.

use nonic_core::Time;

/// Whether a shard has failed, is about to, or may have.
#[derive(Debug, Default)]
pub(super) struct Failure {
    /// An operation failed as it does on a descriptor that is not ours any more.
    in_doubt: bool,
    /// When it is to fail, because a fault plan says so.
    due: Option<Time>,
    /// It has failed, and the program was not told yet.
    untold: bool,
    /// It was this shard that failed first: it tells the program.
    is_first: bool,
}

impl Failure {
    /// Has the shard fail at a time.
    pub(super) fn plan(&mut self, at: Time) {
        self.due = Some(at);
    }

    /// When it is to fail.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Whether that time has come; once.
    pub(super) fn take_due(&mut self, now: Time) -> bool {
        self.due.take_if(|at| *at <= now).is_some()
    }

    /// An operation failed. If `casts_doubt`, a descriptor may not be ours any more.
    pub(super) fn doubt(&mut self, casts_doubt: bool) {
        self.in_doubt |= casts_doubt;
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Whether descriptors are to be looked at; once.
    pub(super) fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.in_doubt)
    }

    /// The shard fails. `anew` says whether it had not before.
    pub(super) fn fail(&mut self, anew: bool) {
        self.untold = anew;
    }

    /// No other shard of the device has failed before.
    pub(super) fn is_the_first(&mut self) {
        self.is_first = true;
    }

    /// Whether this shard tells the program that the device failed.
    pub(super) fn tells(&self) -> bool {
        self.is_first
    }

    /// Whether the program is yet to be told.
    pub(super) fn is_untold(&self) -> bool {
        self.untold
    }

    /// The program is told.
    pub(super) fn told(&mut self) {
        self.untold = false;
    }
}
