//! How long a thread that waits for a socket looks before it sleeps, learned from how its waits ended.
//!
//! To sleep and be woken takes both sides longer than most answers do. So a thread whose waits are short looks for as long
//! as they take, up to [`LONGEST`]; one whose waits are long looks for [`SHORTEST`]. Where the administrator says how long to
//! look, nothing is learned.
//!
//! The engine's `Spin` decides the same for threads that wait for completions. It is not used here: this library has nothing but
//! the C interface of libibverbs, and a wait for a socket is a wait for many completions.
//!
//! This module sleeps and polls nothing itself.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// For how long threads look at least: rdma-core's default.
const SHORTEST: Duration = Duration::from_micros(10);
/// What is not found within this is not worth looking for: several times what a wake-up costs both sides.
const LONGEST: Duration = Duration::from_micros(200);

/// For how long threads look.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum PollingTime {
    /// As the administrator says.
    Fixed(Duration),
    /// As is worth it for each of them.
    Learned,
}

thread_local! {
    /// For how long this thread will look.
    static LOOK: Cell<Duration> = const { Cell::new(SHORTEST) };
}

/// One wait of one thread. When it is dropped, the wait is over, however it ended.
pub(crate) struct Wait {
    since: Instant,
    polling_time: PollingTime,
}

impl Wait {
    pub(crate) fn begin(now: Instant, polling_time: PollingTime) -> Self {
        Wait {
            since: now,
            polling_time,
        }
    }

    /// Whether to look once more before the thread sleeps.
    pub(crate) fn looks(&self, now: Instant) -> bool {
        let look = match self.polling_time {
            PollingTime::Fixed(look) => look,
            PollingTime::Learned => LOOK.get(),
        };
        now.duration_since(self.since) < look
    }

    /// The thread learns from a wait of so long.
    fn ended(&self, waited: Duration) {
        if self.polling_time == PollingTime::Learned {
            LOOK.set(after(LOOK.get(), waited));
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.ended(self.since.elapsed());
    }
}

/// For how long to look after a wait: twice as long as before if that could have found it, and half as long if not.
fn after(look: Duration, waited: Duration) -> Duration {
    let next = match waited <= LONGEST {
        true => 2 * look,
        false => look / 2,
    };
    next.clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(30);
    const LONG: Duration = Duration::from_millis(5);

    fn after_all(waits: &[Duration]) -> Duration {
        waits.iter().fold(SHORTEST, |look, waited| after(look, *waited))
    }

    #[test]
    fn a_thread_looks_for_long_while_its_waits_are_short() {
        assert_eq!(after_all(&[SHORT; 20]), LONGEST);
        assert_eq!(after_all(&[LONG; 20]), SHORTEST);
        let waits = [SHORT, SHORT, SHORT, SHORT, SHORT, LONG].repeat(10);
        assert_eq!(after_all(&waits), LONGEST / 2, "one that is long changes little");
        let waits = [[SHORT; 5], [LONG; 5]].concat();
        assert_eq!(after_all(&waits), SHORTEST, "five are enough");
    }

    #[test]
    fn what_the_administrator_says_is_what_is_done() {
        let now = Instant::now();
        let fixed = Duration::from_millis(1);
        for _ in 0..3 {
            let wait = Wait::begin(now, PollingTime::Fixed(fixed));
            assert!(wait.looks(now + fixed / 2));
            assert!(!wait.looks(now + fixed));
        }
        assert_eq!(LOOK.get(), SHORTEST, "nothing is learned from it");
    }

    #[test]
    fn what_is_learned_counts_for_the_next_wait() {
        let now = Instant::now();
        let wait = Wait::begin(now, PollingTime::Learned);
        assert!(!wait.looks(now + SHORTEST));
        wait.ended(SHORT);
        assert!(wait.looks(now + SHORTEST));
        assert!(!wait.looks(now + 2 * SHORTEST));
    }
}
