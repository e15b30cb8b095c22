//! Random early detection: a queue that marks packets, or drops them, before it is full, so that senders slow down
//! before they must.
//!
//! [`Marking`] is the curve: which share of packets at which length of the queue. Switches of data centres apply it to the
//! length of the moment (DCQCN, DCTCP). [`Red`] applies it to the average, as Floyd and Jacobson (1993) do.

use crate::Prng;

/// The share of packets that are marked or dropped, by the length of the queue: none up to `low` bytes, `most_ppm` of a
/// million at `high`, and evenly more between them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Marking {
    /// Up to here nothing is done.
    pub low: u64,
    /// Here the share is `most_ppm`. Above `low`.
    pub high: u64,
    /// Of a million packets.
    pub most_ppm: u32,
    /// What is done beyond `high`.
    pub beyond: Beyond,
}

/// What is done to packets that find a queue beyond the upper threshold.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Beyond {
    /// All of them are marked, as switches do it.
    All,
    /// The share rises on to all of them at twice the threshold: the gentle variant of RED.
    Gentle,
}

impl Marking {
    /// What Alibaba's public simulator has for 25 Gbit/s, and many switches by default.
    pub const USUAL: Marking = Marking {
        low: 100_000,
        high: 400_000,
        most_ppm: 200_000,
        beyond: Beyond::All,
    };

    /// Of a million packets, how many are marked at this length of the queue.
    pub fn ppm(&self, queued: u64) -> u32 {
        const ALL: u64 = 1_000_000;
        let most = u64::from(self.most_ppm);
        let ppm = if queued <= self.low {
            0
        } else if queued < self.high {
            let part = (queued - self.low) * ALL / (self.high - self.low);
            part * most / ALL
        } else if self.beyond == Beyond::Gentle {
            let part = (queued - self.high).min(self.high) * ALL / self.high.max(1);
            most + ALL.saturating_sub(most) * part / ALL
        } else {
            ALL
        };
        ppm as u32
    }
}

/// How much the newest queue counts in the average.
const WEIGHT: f64 = 1.0 / 256.0;

/// The average queue, and how long nothing was done.
#[derive(Clone, Debug, Default)]
pub struct Red {
    average: f64,
    /// Packets since the last that was chosen, while the curve chooses any.
    since: u32,
}

impl Red {
    /// Whether a packet that finds such a queue, in bytes, is to be marked or dropped.
    ///
    /// `idle_packets` is how many packets could have left since the queue was empty: the average sinks as if they had.
    pub fn chooses(&mut self, marking: &Marking, queue: u64, idle_packets: f64, prng: &mut Prng) -> bool {
        if idle_packets > 0.0 {
            self.average *= (1.0 - WEIGHT).powf(idle_packets);
        }
        self.average += WEIGHT * (queue as f64 - self.average);
        let probability = f64::from(marking.ppm(self.average as u64)) / 1e6;
        if probability <= 0.0 {
            self.since = 0;
            return false;
        }
        self.since = self.since.saturating_add(1);
        // Chosen packets are evenly spread rather than in clusters: the probability grows with those that were not.
        let passed = f64::from(self.since) * probability;
        let corrected = if passed < 1.0 {
            (probability / (1.0 - passed)).min(1.0)
        } else {
            1.0
        };
        let chosen = prng.ppm((corrected * 1e6) as u32);
        if chosen {
            self.since = 0;
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURVE: Marking = Marking {
        low: 20_000,
        high: 60_000,
        most_ppm: 100_000,
        beyond: Beyond::Gentle,
    };

    #[test]
    fn the_curve_rises_between_its_thresholds_and_then_as_it_is_told_to() {
        assert_eq!(CURVE.ppm(20_000), 0);
        assert_eq!(CURVE.ppm(40_000), 50_000);
        assert_eq!(CURVE.ppm(60_000), 100_000);
        assert_eq!(CURVE.ppm(90_000), 550_000);
        assert_eq!(CURVE.ppm(500_000), 1_000_000);
        let switch = Marking {
            beyond: Beyond::All,
            ..CURVE
        };
        assert_eq!((switch.ppm(59_999), switch.ppm(60_000)), (99_997, 1_000_000));
    }

    /// The part chosen of packets that all find the same queue, once the average has settled.
    fn part_chosen(queue: u64) -> f64 {
        let mut red = Red::default();
        let mut prng = Prng::new(3);
        for _ in 0..5_000 {
            red.chooses(&CURVE, queue, 0.0, &mut prng);
        }
        let all = 50_000;
        let chosen = (0..all).filter(|_| red.chooses(&CURVE, queue, 0.0, &mut prng));
        chosen.count() as f64 / f64::from(all)
    }

    #[test]
    fn nothing_is_chosen_below_the_least_and_all_beyond_twice_the_most() {
        assert!(part_chosen(19_000) == 0.0);
        assert!(part_chosen(121_000) == 1.0);
    }

    #[test]
    fn the_part_grows_with_the_queue() {
        // Even spreading makes the mean distance half of what the bare probability would give.
        let parts = [25_000, 40_000, 59_000, 80_000].map(part_chosen);
        assert!(parts.is_sorted_by(|less, more| less < more), "{parts:?}");
        assert!((0.05..0.15).contains(&parts[1]), "{parts:?}");
    }

    #[test]
    fn a_short_burst_is_let_through_and_a_pause_forgets() {
        let mut red = Red::default();
        let mut prng = Prng::new(3);
        let burst = (0..20).filter(|_| red.chooses(&CURVE, 100_000, 0.0, &mut prng));
        assert_eq!(burst.count(), 0, "the average is what counts");
        while red.average < 50_000.0 {
            red.chooses(&CURVE, 100_000, 0.0, &mut prng);
        }
        red.chooses(&CURVE, 0, 2_000.0, &mut prng);
        assert!(red.average < 100.0, "{}", red.average);
    }
}
