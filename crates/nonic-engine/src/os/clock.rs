//! The monotonic clock, as the core counts time.

use nonic_core::Time;
use rustix::time::{ClockId, clock_gettime};

/// Counts from the moment it was made.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Clock {
    started_ns: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Clock {
            started_ns: monotonic_ns(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time::from_ns(monotonic_ns() - self.started_ns)
    }
}

/// Read with every poll, so without the detour over `Instant`, which checks and converts twice. 584 years fit.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
