//! Linear axes: equal differences are equally long. They begin at zero.

use super::Axis;

/// A scale from zero up.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LinearAxis {
    most: f64,
    /// Where zero and the most are.
    ends: (f64, f64),
}

impl LinearAxis {
    /// An axis from zero to a value above it.
    ///
    /// # Panics
    ///
    /// If it would have no length.
    #[must_use]
    pub fn new(most: f64, ends: (f64, f64)) -> Self {
        assert!(0.0 < most, "a linear axis has a length");
        Self { most, ends }
    }
}

impl Axis for LinearAxis {
    /// Where a value is; what is beyond an end is at the end.
    fn position(&self, value: f64) -> f64 {
        self.ends.0 + (self.ends.1 - self.ends.0) * (value / self.most).clamp(0.0, 1.0)
    }

    /// Round numbers, at most six of them.
    fn ticks(&self) -> Vec<f64> {
        let rough = self.most / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|part| part * power);
        let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let count = (self.most / step + 1e-9).floor() as usize;
        (0..=count).map(|index| index as f64 * step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number;

    #[test]
    fn ticks_are_round_and_few() {
        for (most, expected) in [
            (1.05, "0 0.5 1"),
            (0.8, "0 0.2 0.4 0.6 0.8"),
            (8389.0, "0 2000 4000 6000 8000"),
        ] {
            let ticks = LinearAxis::new(most, (0.0, 1.0)).ticks();
            let ticks: Vec<String> = ticks.into_iter().map(number).collect();
            assert_eq!(ticks.join(" "), expected);
        }
    }

    #[test]
    fn what_is_beyond_an_end_is_at_the_end() {
        let axis = LinearAxis::new(10.0, (200.0, 100.0));
        let places = [-1.0, 0.0, 5.0, 10.0, 11.0].map(|value| axis.position(value));
        assert_eq!(places, [200.0, 200.0, 150.0, 100.0, 100.0]);
    }
}
