//! Rate limiting of repeated lines: the same line is logged once a second, with how often it came meanwhile.
//!
//! A program that repeats a call which is refused would otherwise fill a disk with one sentence.

use std::time::{Duration, Instant};

/// So long the same line is not logged again.
const PAUSE: Duration = Duration::from_secs(1);

/// So many different lines are remembered. A program that makes the same mistakes in turn makes few.
const LINES: usize = 16;

/// The lines that were logged lately.
#[derive(Default)]
pub(super) struct Repeated(Vec<Line>);

struct Line {
    text: String,
    told: Instant,
    /// How often it came since.
    since: u64,
}

/// Whether a line is logged.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    First,
    /// It is logged, and came so often since it was logged last, this time included.
    Again {
        times: u64,
    },
    TooSoon,
}

impl Repeated {
    pub(super) const fn new() -> Self {
        Repeated(Vec::new())
    }

    pub(super) fn admit(&mut self, text: &str, now: Instant) -> Admission {
        if let Some(line) = self.0.iter_mut().find(|line| line.text == text) {
            line.since += 1;
            if now.saturating_duration_since(line.told) < PAUSE {
                return Admission::TooSoon;
            }
            let times = std::mem::take(&mut line.since);
            line.told = now;
            return Admission::Again { times };
        }
        if self.0.len() == LINES {
            let oldest = self.0.iter().enumerate().min_by_key(|(_, line)| line.told);
            let place = oldest.map_or(0, |(place, _)| place);
            self.0.swap_remove(place);
        }
        self.0.push(Line {
            text: text.to_owned(),
            told: now,
            since: 0,
        });
        Admission::First
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_once_a_second_with_a_count() {
        let mut repeated = Repeated::new();
        let start = Instant::now();
        assert_eq!(repeated.admit("a", start), Admission::First);
        for _ in 0..1000 {
            assert_eq!(repeated.admit("a", start), Admission::TooSoon);
        }
        assert_eq!(repeated.admit("b", start), Admission::First, "another line");
        assert_eq!(
            repeated.admit("a", start + PAUSE),
            Admission::Again { times: 1001 }
        );
        assert_eq!(repeated.admit("a", start + PAUSE), Admission::TooSoon);
        assert_eq!(
            repeated.admit("a", start + 2 * PAUSE),
            Admission::Again { times: 2 }
        );
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_oldest_goes() {
        let mut repeated = Repeated::new();
        let start = Instant::now();
        for number in 0..=LINES {
            let later = start + Duration::from_micros(number as u64);
            assert_eq!(repeated.admit(&format!("line {number}"), later), Admission::First);
        }
        assert_eq!(repeated.0.len(), LINES);
        assert_eq!(repeated.admit("line 0", start), Admission::First, "forgotten");
        assert_eq!(
            repeated.admit(&format!("line {LINES}"), start),
            Admission::TooSoon
        );
    }
}
