//! How long something took, without the time that the machine itself did not run.
//!
//! The host of a virtual machine takes its processors away, at times for a quarter of a second again and again. No program can answer
//! then, and none is to blame for it. Linux counts that time as stolen, for all processors together; a [`Stopwatch`] leaves it out.
//! It forgives too much if several processors are taken at once, and nothing where none is.

use std::time::{Duration, Instant};

/// Begins to count when it is made.
#[derive(Copy, Clone, Debug)]
pub struct Stopwatch {
    begun: Instant,
    stolen: Duration,
}

impl Stopwatch {
    /// Starts it.
    #[expect(clippy::new_without_default, reason = "it has begun when it exists")]
    pub fn new() -> Self {
        Self {
            begun: Instant::now(),
            stolen: stolen(),
        }
    }

    /// The time that passed while the machine ran.
    pub fn elapsed(&self) -> Duration {
        let stolen = stolen().saturating_sub(self.stolen);
        self.begun.elapsed().saturating_sub(stolen)
    }
}

/// What was stolen since the machine began; nothing if the kernel does not say.
fn stolen() -> Duration {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    stolen_of(&text).unwrap_or_default()
}

/// The first line is of all processors: "cpu", then hundredths of a second by what they were spent on. The eighth is stolen.
fn stolen_of(text: &str) -> Option<Duration> {
    let mut fields = text.lines().next()?.split_whitespace();
    if fields.next()? != "cpu" {
        return None;
    }
    let hundredths: u64 = fields.nth(7)?.parse().ok()?;
    Some(Duration::from_millis(hundredths.checked_mul(10)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_number() {
        let text = "cpu  1706942 422346 291535 458302 13078 0 17103 125645 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(stolen_of(text), Some(Duration::from_millis(1_256_450)));
        assert_eq!(stolen_of("cpu0 1 2 3 4 5 6 7 8 9 0\n"), None);
        assert_eq!(stolen_of(""), None);
        assert_eq!(stolen_of("cpu 1 2 3"), None);
    }
}
