//! Time limits: how long a call may wait.

use std::time::{Duration, Instant};

/// Whether a call may wait at all, and until when.
#[derive(Copy, Clone)]
pub(crate) struct WaitLimit {
    pub(crate) may_wait: bool,
    pub(crate) deadline: Option<Instant>,
}

impl WaitLimit {
    pub(crate) fn new(may_wait: bool, timeout: Option<Duration>) -> Self {
        WaitLimit {
            may_wait,
            deadline: timeout.map(|timeout| Instant::now() + timeout),
        }
    }

    /// Whether the call may not wait, or not any longer.
    pub(crate) fn is_over(self) -> bool {
        !self.may_wait || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}
