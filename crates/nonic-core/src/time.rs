//! Time as the core sees it: nanoseconds since an epoch the caller picked.
//!
//! The core never reads a clock. The engine feeds it the monotonic clock, the simulator its virtual one.

use std::ops::Add;
use std::time::Duration;

/// A point in time, in nanoseconds since the caller's epoch.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

impl Time {
    /// The caller's epoch.
    pub const ZERO: Time = Time(0);

    /// A point `ns` nanoseconds after the epoch.
    pub const fn from_ns(ns: u64) -> Self {
        Time(ns)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, rhs: Duration) -> Time {
        Time(
            self.0
                .saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}
