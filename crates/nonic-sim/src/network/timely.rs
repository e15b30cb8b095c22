//! TIMELY (Mittal et al., SIGCOMM 2015), with the constants of the paper: an oracle, not a part of nonic.
//!
//! Each finished segment yields a round trip. Below `T_LOW` the rate rises, above `T_HIGH` it falls; between them it follows the
//! gradient. [`Timely::patched`] is what Zhu et al. (CoNEXT 2016) made of it so that flows converge to the same rate.

const T_LOW_NS: f64 = 50_000.0;
const T_HIGH_NS: f64 = 500_000.0;
const LEAST_ROUND_TRIP_NS: f64 = 20_000.0;
const STEP: f64 = 10e6;
const BETA: f64 = 0.8;
const PATCHED_BETA: f64 = 0.008;
const WEIGHT: f64 = 0.875;
/// So many segments with a falling gradient, and steps are five times as large.
const HYPERACTIVE_AFTER: u32 = 5;
const LEAST: f64 = 10e6;

/// Bytes from one sample to the next.
pub(super) const SEGMENT: u32 = 16_000;

/// The state of a flow. Rates are in bits per second.
#[derive(Clone, Debug)]
pub(super) struct Timely {
    line: f64,
    rate: f64,
    previous_ns: Option<f64>,
    difference_ns: f64,
    falling: u32,
    patched: bool,
    /// Samples are taken once in this time at most: a gradient over less would be noise.
    next_ns: u64,
}

impl Timely {
    pub(super) fn new(line: u64, rate: u64) -> Timely {
        Timely {
            line: line as f64,
            rate: rate as f64,
            previous_ns: None,
            difference_ns: 0.0,
            falling: 0,
            patched: false,
            next_ns: 0,
        }
    }

    pub(super) fn patched(mut self) -> Timely {
        self.patched = true;
        self
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    pub(super) fn on_round_trip(&mut self, now_ns: u64, ns: u64) {
        if now_ns < self.next_ns {
            return;
        }
        let at_rate = f64::from(SEGMENT) * 8e9 / self.rate;
        self.next_ns = now_ns + at_rate.max(LEAST_ROUND_TRIP_NS) as u64;
        let ns = ns as f64;
        let previous = self.previous_ns.replace(ns).unwrap_or(ns);
        self.difference_ns = (1.0 - WEIGHT) * self.difference_ns + WEIGHT * (ns - previous);
        let gradient = self.difference_ns / LEAST_ROUND_TRIP_NS;
        let rate = if ns < T_LOW_NS {
            self.rate + STEP
        } else if ns > T_HIGH_NS {
            self.rate * (1.0 - BETA * (1.0 - T_HIGH_NS / ns))
        } else if self.patched {
            self.between_patched(ns, gradient)
        } else {
            self.between(gradient)
        };
        self.rate = rate.clamp(LEAST, self.line);
    }

    fn between(&mut self, gradient: f64) -> f64 {
        if gradient > 0.0 {
            self.falling = 0;
            // A gradient above one would make the rate negative.
            return self.rate * (1.0 - BETA * gradient.min(1.0));
        }
        self.falling += 1;
        let steps = if self.falling >= HYPERACTIVE_AFTER {
            5.0
        } else {
            1.0
        };
        self.rate + steps * STEP
    }

    /// How much the gradient weighs rises smoothly, and the cut depends on how long the round trip is, not on how it changed.
    fn between_patched(&self, ns: f64, gradient: f64) -> f64 {
        let weight = (2.0 * gradient + 0.5).clamp(0.0, 1.0);
        let off = (ns - T_LOW_NS) / T_LOW_NS;
        STEP * (1.0 - weight) + self.rate * (1.0 - PATCHED_BETA * weight * off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate after round trips of so many microseconds, one in a millisecond.
    fn after(samples: &[u64]) -> f64 {
        let mut flow = Timely::new(10_000_000_000, 1_000_000_000);
        for (index, us) in samples.iter().enumerate() {
            flow.on_round_trip(index as u64 * 1_000_000, us * 1000);
        }
        flow.rate()
    }

    #[test]
    fn short_trips_add_and_long_ones_multiply() {
        assert_eq!(after(&[40, 40]), 1.02e9);
        // 1 − 0.8 × (1 − 500/1000), twice.
        assert!((after(&[1000, 1000]) - 0.36e9).abs() < 1.0);
    }

    #[test]
    fn between_the_thresholds_the_gradient_decides() {
        assert!(after(&[100, 110]) < 1.01e9 * 0.7);
        assert_eq!(after(&[110, 100]), 1.02e9);
        assert_eq!(
            after(&[200, 199, 198, 197, 196]),
            1.09e9,
            "the fifth step is five times as large"
        );
    }
}
