//! Random early detection (Floyd and Jacobson, 1993; the gentle variant): a queue that drops or marks before it is full, so that
//! senders slow down before they must.

use super::random::Random;
use super::settings::Red;

/// How much the newest queue counts in the average.
const WEIGHT: f64 = 1.0 / 256.0;

/// The average queue, and how long nothing was done.
#[derive(Clone, Debug, Default)]
pub(super) struct RedState {
    average: f64,
    /// Packets since the last that was chosen, while the average is above the least.
    since: u32,
}

impl RedState {
    /// Whether a packet that finds such a queue is to be marked or dropped. A number is drawn in any case.
    ///
    /// `idle_packets` is how many packets could have left since the queue was empty: the average sinks as if they had.
    pub(super) fn chooses(&mut self, red: &Red, queue: f64, idle_packets: f64, random: &mut Random) -> bool {
        let drawn = random.part();
        if idle_packets > 0.0 {
            self.average *= (1.0 - WEIGHT).powf(idle_packets);
        }
        self.average += WEIGHT * (queue - self.average);
        let probability = probability(red, self.average);
        if probability <= 0.0 {
            self.since = 0;
            return false;
        }
        self.since = self.since.saturating_add(1);
        // Chosen packets are evenly spread rather than in clusters: the probability grows with those that were not.
        let passed = f64::from(self.since) * probability;
        let corrected = if passed < 1.0 {
            probability / (1.0 - passed)
        } else {
            1.0
        };
        let chosen = drawn < corrected;
        if chosen {
            self.since = 0;
        }
        chosen
    }
}

fn probability(red: &Red, average: f64) -> f64 {
    let (least, most) = (red.least as f64, red.most as f64);
    if average < least {
        0.0
    } else if average < most {
        red.most_part * (average - least) / (most - least)
    } else {
        let beyond = (average - most) / most;
        (red.most_part + (1.0 - red.most_part) * beyond).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: Red = Red {
        least: 20_000,
        most: 60_000,
        most_part: 0.1,
        ecn: true,
    };

    /// The part chosen of packets that all find the same queue, once the average has settled.
    fn part_chosen(queue: f64) -> f64 {
        let mut state = RedState::default();
        let mut random = Random::new(3, 0);
        for _ in 0..5_000 {
            state.chooses(&RED, queue, 0.0, &mut random);
        }
        let all = 50_000;
        let chosen = (0..all).filter(|_| state.chooses(&RED, queue, 0.0, &mut random));
        chosen.count() as f64 / f64::from(all)
    }

    #[test]
    fn nothing_is_chosen_below_the_least_and_all_beyond_twice_the_most() {
        assert!(part_chosen(19_000.0) == 0.0);
        assert!(part_chosen(121_000.0) == 1.0);
    }

    #[test]
    fn the_part_grows_with_the_queue() {
        // Even spreading makes the mean distance half of what the bare probability would give.
        let parts = [25_000.0, 40_000.0, 59_000.0, 80_000.0].map(part_chosen);
        assert!(parts.is_sorted_by(|less, more| less < more), "{parts:?}");
        assert!((0.05..0.15).contains(&parts[1]), "{parts:?}");
    }

    #[test]
    fn a_short_burst_is_let_through_and_a_pause_forgets() {
        let mut state = RedState::default();
        let mut random = Random::new(3, 0);
        let burst = (0..20).filter(|_| state.chooses(&RED, 100_000.0, 0.0, &mut random));
        assert_eq!(burst.count(), 0, "the average is what counts");
        while state.average < 50_000.0 {
            state.chooses(&RED, 100_000.0, 0.0, &mut random);
        }
        state.chooses(&RED, 0.0, 2_000.0, &mut random);
        assert!(state.average < 100.0, "{}", state.average);
    }
}
