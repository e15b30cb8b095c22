//! The monotonic clock, as the core counts time.

use nonic_core::Time;
use std::time::Instant;

/// Counts from the moment it was made.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Clock(Instant::now())
    }

    pub(crate) fn now(&self) -> Time {
        // 584 years fit.
        Time::from_ns(self.0.elapsed().as_nanos() as u64)
    }
}
