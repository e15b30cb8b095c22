//! `NONIC_FAULTS`: what is to be done to received packets, as text.

use nonic_core::link::{FaultInjector, Faults, Prng};
use nonic_settings::{self as settings, SettingError};

const EXPECTED: &str = "parts such as loss=1%, dup=0.1%, reorder=5%, hold=2ms, corrupt=10ppm, delay=200us, seed=7, joined by commas";
/// For how long a packet that is reordered is held back if nobody says.
const USUAL_HOLD_NS: u64 = 1_000_000;

/// What is to be done to received packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// How much of what.
    pub faults: Faults,
    /// The same seed makes the same decisions.
    pub seed: u64,
}

impl FaultPlan {
    pub(super) fn from_setting(text: &str) -> Result<Self, SettingError> {
        Self::parse(text).ok_or_else(|| settings::FAULTS.refuse(text, EXPECTED))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut plan = FaultPlan {
            faults: Faults {
                hold_ns: USUAL_HOLD_NS,
                ..Faults::default()
            },
            seed: 0,
        };
        for part in text.split(',') {
            let (name, value) = part.trim().split_once('=')?;
            let faults = &mut plan.faults;
            match name {
                "loss" => faults.loss_ppm = rate(value)?,
                "dup" => faults.duplicate_ppm = rate(value)?,
                "reorder" => faults.reorder_ppm = rate(value)?,
                "corrupt" => faults.corrupt_ppm = rate(value)?,
                "hold" => faults.hold_ns = duration_ns(value)?,
                "delay" => faults.delay_ns = duration_ns(value)?,
                "seed" => plan.seed = value.parse().ok()?,
                _ => return None,
            }
        }
        Some(plan)
    }

    /// The injector of the `index`-th link, with decisions of its own.
    pub(crate) fn injector(&self, index: u64) -> FaultInjector {
        FaultInjector::new(self.faults, Prng::new(self.seed.wrapping_add(index)))
    }
}

/// A share of all packets, in millionths: `1%`, `0.01%` or `100ppm`.
fn rate(text: &str) -> Option<u32> {
    let (number, millionths) = match text.strip_suffix("ppm") {
        Some(number) => (number, 1.0),
        None => (text.strip_suffix('%')?, 10_000.0),
    };
    let ppm = number.parse::<f64>().ok()? * millionths;
    // A rate that is not zero but smaller than anything we can do would silently be none.
    let fits = ppm == 0.0 || (1.0..=1_000_000.0).contains(&ppm);
    fits.then_some(ppm.round() as u32)
}

/// A time: `200us`, `1.5ms`, `2s` or `500ns`.
fn duration_ns(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    const LONGEST_NS: f64 = 1e10;
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|number| (number, unit)))?;
    let ns = number.parse::<f64>().ok()? * unit;
    (0.0..=LONGEST_NS).contains(&ns).then_some(ns.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_read() {
        let text = "loss=1%,dup=0.1%, reorder=2.5%,corrupt=10ppm,hold=3ms,delay=200us,seed=7";
        let plan = FaultPlan::parse(text).expect("well formed");
        let expected = Faults {
            loss_ppm: 10_000,
            duplicate_ppm: 1_000,
            reorder_ppm: 25_000,
            corrupt_ppm: 10,
            hold_ns: 3_000_000,
            delay_ns: 200_000,
            ..Faults::default()
        };
        assert_eq!(
            plan,
            FaultPlan {
                faults: expected,
                seed: 7
            }
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let wrong = [
            "",
            "loss",
            "loss=",
            "loss=1",
            "loss=101%",
            "loss=-1%",
            "loss=0.00001%",
            "lost=1%",
            "delay=5",
            "delay=-1ms",
            "delay=1h",
            "seed=x",
            "loss=nan%",
            "delay=infs",
            "loss=1%,,dup=1%",
        ];
        for text in wrong {
            assert_eq!(FaultPlan::parse(text), None, "{text}");
        }
        let error = FaultPlan::from_setting("loss=much")
            .expect_err("no rate")
            .to_string();
        assert!(
            error.starts_with("NONIC_FAULTS=loss=much: must be parts such as"),
            "{error}"
        );
    }
}
