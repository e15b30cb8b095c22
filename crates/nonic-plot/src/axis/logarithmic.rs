//! Logarithmic axes: equal factors are equally long.

use super::Axis;

/// A logarithmic scale.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LogarithmicAxis {
    least: f64,
    most: f64,
    /// Where the least and the most are.
    ends: (f64, f64),
}

impl LogarithmicAxis {
    /// An axis from one value to another, both above zero.
    ///
    /// # Panics
    ///
    /// If it would have no length.
    #[must_use]
    pub fn new(least: f64, most: f64, ends: (f64, f64)) -> Self {
        assert!(0.0 < least && least < most, "a logarithmic axis has a length");
        Self { least, most, ends }
    }

    /// An axis that begins and ends with a tick and has all values between.
    pub fn around(values: impl Iterator<Item = f64> + Clone, ends: (f64, f64)) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(0.0, f64::max);
        if !(least.is_finite() && least > 0.0) {
            return Self::new(1.0, 10.0, ends);
        }
        let (least, most) = (round_down(least), round_up(most));
        Self::new(least, if most > least { most } else { least * 10.0 }, ends)
    }
}

impl Axis for LogarithmicAxis {
    fn position(&self, value: f64) -> f64 {
        let part = (value / self.least).ln() / (self.most / self.least).ln();
        self.ends.0 + part * (self.ends.1 - self.ends.0)
    }

    /// One, two and five of every power of ten; the powers alone if that would be too many.
    fn ticks(&self) -> Vec<f64> {
        let exponents = self.least.log10().floor() as i32..=self.most.log10().ceil() as i32;
        let decades = (self.most / self.least).log10();
        let steps: &[f64] = if decades > 4.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let all = exponents.flat_map(|exponent| steps.iter().map(move |step| step * power(exponent)));
        let slack = 1.0 + 1e-9;
        all.filter(|tick| self.least <= tick * slack && *tick <= self.most * slack)
            .collect()
    }
}

/// Ten to a small whole power, without the error of a logarithm.
fn power(exponent: i32) -> f64 {
    10_f64.powi(exponent)
}

/// The next tick that is not above.
fn round_down(value: f64) -> f64 {
    let decade = power(value.log10().floor() as i32);
    let steps = [5.0, 2.0, 1.0].map(|step| step * decade);
    let fitting = steps.iter().find(|tick| **tick <= value * (1.0 + 1e-9));
    *fitting.unwrap_or(&decade)
}

/// The next tick that is not below.
fn round_up(value: f64) -> f64 {
    let decade = power(value.log10().floor() as i32);
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    let fitting = steps.iter().find(|tick| **tick * (1.0 + 1e-9) >= value);
    *fitting.unwrap_or(&(10.0 * decade))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(values: &[f64]) -> LogarithmicAxis {
        LogarithmicAxis::around(values.iter().copied(), (0.0, 100.0))
    }

    fn same(ticks: &[f64], expected: &[f64]) -> bool {
        ticks.len() == expected.len()
            && ticks
                .iter()
                .zip(expected)
                .all(|(tick, wanted)| (tick / wanted - 1.0).abs() < 1e-9)
    }

    #[test]
    fn ticks_are_one_two_and_five_of_every_decade() {
        let ticks = around(&[0.3, 17.0]).ticks();
        assert!(same(&ticks, &[0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]), "{ticks:?}");
    }

    #[test]
    fn a_value_on_a_tick_is_the_end_of_the_axis() {
        let ticks = around(&[0.5, 10.0]).ticks();
        assert!(same(&ticks, &[0.5, 1.0, 2.0, 5.0, 10.0]), "{ticks:?}");
    }

    #[test]
    fn many_decades_have_a_tick_each() {
        let ticks = around(&[0.1, 90_000.0]).ticks();
        assert!(same(&ticks, &[0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5]), "{ticks:?}");
    }

    #[test]
    fn no_values_and_one_value_have_an_axis_too() {
        assert!(around(&[]).ticks().len() > 1);
        assert!(around(&[5.0]).ticks().len() > 1);
    }

    #[test]
    fn equal_factors_are_equally_far_apart() {
        let axis = LogarithmicAxis::new(1.0, 100.0, (0.0, 200.0));
        assert!((axis.position(10.0) - 100.0).abs() < 1e-9);
        assert!((axis.position(1.0)).abs() < 1e-9);
        let upside_down = LogarithmicAxis::new(1.0, 100.0, (200.0, 0.0));
        assert!((upside_down.position(100.0)).abs() < 1e-9);
    }
}
