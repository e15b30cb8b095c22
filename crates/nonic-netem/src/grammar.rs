//! Faults as text: `loss=1%,hold=2ms,kind=ack`. One grammar for `NONIC_FAULTS`, `nonic run --faults` and `cargo xtask net`.
//!
//! A rule is parts joined by commas, a plan is rules joined by semicolons. Here are the parts that every user of the grammar
//! has: what is done to packets, and to which. Callers add parts of their own: the engine what the NIC lacks,
//! [`LinkSettings`](crate::LinkSettings) the rate and the queue. docs/faults.md has the list, with what each part teaches.

use crate::{FaultRule, Faults, Filter, Rate};
use nonic_wire::Qpn;

/// For how long a packet that is reordered is held back if the text does not say.
const USUAL_HOLD_NS: u64 = 1_000_000;

/// Why a part was refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PartError {
    /// No part has this name.
    #[error("there is no such part")]
    Unknown,
    /// It has no such value.
    #[error("it must be {0}")]
    Malformed(&'static str),
}

const SHARE: &str = "a share such as 1% or 100ppm";
const TIME: &str = "a time such as 200us or 1.5ms, of 10 s at most";
const COUNT: &str = "a number above zero";

impl FaultRule {
    /// The rule of an empty text: it does nothing, and what a part makes it hold up is held up for the usual time.
    pub fn new() -> Self {
        let mut rule = FaultRule::default();
        rule.faults.hold_ns = USUAL_HOLD_NS;
        rule
    }

    /// Reads a part of a rule.
    pub fn read(&mut self, name: &str, value: &str) -> Result<(), PartError> {
        if name == "limit" {
            return assign(&mut self.limit, positive(value).map(Some), COUNT);
        }
        match self.faults.read(name, value) {
            Err(PartError::Unknown) => self.filter.read(name, value),
            read => read,
        }
    }
}

impl Faults {
    /// Reads a part that says what is done.
    fn read(&mut self, name: &str, value: &str) -> Result<(), PartError> {
        match name {
            "loss" => assign(&mut self.loss_ppm, share(value), SHARE),
            "dup" => assign(&mut self.duplicate_ppm, share(value), SHARE),
            "reorder" => assign(&mut self.reorder_ppm, share(value), SHARE),
            "early" => assign(&mut self.early_ppm, share(value), SHARE),
            "corrupt" => assign(&mut self.corrupt_ppm, share(value), SHARE),
            "garble" => assign(&mut self.garble_ppm, share(value), SHARE),
            "hold" => assign(&mut self.hold_ns, duration_ns(value), TIME),
            "delay" => assign(&mut self.delay_ns, duration_ns(value), TIME),
            "jitter" => assign(&mut self.jitter_ns, duration_ns(value), TIME),
            "burst" => self.read_burst(value).ok_or(PartError::Malformed(
                "how often a burst begins and its mean length, such as 0.1%x20",
            )),
            _ => Err(PartError::Unknown),
        }
    }

    /// `0.1%x20`: so often a burst begins, in which so many packets are lost on the average.
    fn read_burst(&mut self, value: &str) -> Option<()> {
        let (begin, length) = value.split_once('x')?;
        let (begin, length) = (share(begin)?, positive(length)?);
        self.burst_begin_ppm = begin;
        self.burst_end_ppm = (1_000_000 / length).max(1) as u32;
        Some(())
    }
}

impl Filter {
    /// Reads a part that says to which packets.
    fn read(&mut self, name: &str, value: &str) -> Result<(), PartError> {
        match name {
            "qp" => assign(
                &mut self.qpn,
                queue_pair(value).map(Some),
                "a queue pair's number such as 0x1a2b",
            ),
            "peer" => assign(&mut self.peer, value.parse().ok().map(Some), "an IP address"),
            "kind" => assign(
                &mut self.kind,
                value.parse().ok().map(Some),
                "a kind of packet such as ack or read-response",
            ),
            "from" => assign(&mut self.from_ns, duration_ns(value), TIME),
            "until" => assign(&mut self.until_ns, duration_ns(value).map(Some), TIME),
            "period" => assign(
                &mut self.period_ns,
                duration_ns(value).filter(|ns| *ns > 0).map(Some),
                TIME,
            ),
            "skip" => assign(&mut self.skip, value.parse().ok(), "a number"),
            "every" => assign(&mut self.every, positive(value), COUNT),
            _ => Err(PartError::Unknown),
        }
    }
}

/// Puts what was read into its place.
pub(crate) fn assign<T>(place: &mut T, value: Option<T>, expected: &'static str) -> Result<(), PartError> {
    *place = value.ok_or(PartError::Malformed(expected))?;
    Ok(())
}

/// A number above zero.
pub fn positive(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number > 0)
}

/// A share of all packets, in millionths: `1%`, `0.01%` or `100ppm`.
pub fn share(text: &str) -> Option<u32> {
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
pub fn duration_ns(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    const LONGEST_NS: f64 = 1e10;
    let ns = with_unit(text, &UNITS)?;
    (0.0..=LONGEST_NS).contains(&ns).then_some(ns.round() as u64)
}

/// A rate: `100mbit`, `2.5gbit`, or `off` for none.
pub fn rate(text: &str) -> Option<Rate> {
    const UNITS: [(&str, f64); 4] = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
    if text == "off" {
        return Some(Rate::UNLIMITED);
    }
    let bits = with_unit(text, &UNITS)?;
    (1.0..=1e15)
        .contains(&bits)
        .then(|| Rate::bits_per_second(bits as u64))
}

/// Bytes: `1500`, `64k` or `2m`, in powers of two.
pub fn bytes(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 3] = [("k", 1024.0), ("m", 1024.0 * 1024.0), ("", 1.0)];
    let bytes = with_unit(text, &UNITS)?;
    (0.0..=1e15).contains(&bytes).then_some(bytes as u64)
}

/// A number times its unit. The first unit that the text ends in decides.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| text.strip_suffix(unit).map(|number| (number, factor)))?;
    Some(number.parse::<f64>().ok()? * factor)
}

/// A number of a queue pair, as programs show it: `0x1a2b` or decimal.
fn queue_pair(text: &str) -> Option<Qpn> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    (number < 1 << 24).then(|| Qpn::new(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_says_why_it_was_refused() {
        let read = |name, value| FaultRule::new().read(name, value);
        assert_eq!(read("loss", "1%"), Ok(()));
        assert_eq!(read("lost", "1%"), Err(PartError::Unknown));
        assert_eq!(read("loss", "1"), Err(PartError::Malformed(SHARE)));
        assert_eq!(read("limit", "0"), Err(PartError::Malformed(COUNT)));
        let error = read("delay", "1h").expect_err("no such unit").to_string();
        assert_eq!(error, "it must be a time such as 200us or 1.5ms, of 10 s at most");
    }

    #[test]
    fn a_burst_that_is_refused_changes_nothing() {
        let mut rule = FaultRule::new();
        for value in ["1%", "1%x0", "2x20", "1%xx"] {
            assert!(rule.read("burst", value).is_err(), "{value}");
        }
        assert_eq!(rule, FaultRule::new());
    }

    #[test]
    fn numbers_have_units() {
        assert_eq!((duration_ns("1.5ms"), duration_ns("5")), (Some(1_500_000), None));
        assert_eq!((bytes("64k"), bytes("-1")), (Some(65_536), None));
        assert_eq!(rate("100mbit"), Some(Rate::bits_per_second(100_000_000)));
        assert_eq!((rate("off"), rate("0bit")), (Some(Rate::UNLIMITED), None));
    }
}
