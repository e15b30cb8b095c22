//! The fault plan of `NONIC_FAULTS`, as text: what is to be done to packets, and what the NIC is to lack.
//!
//! Rules are separated by semicolons, their parts by commas. docs/faults.md has the list, with what each teaches.

use nonic_core::Qpn;
use nonic_core::link::{FaultInjector, FaultRule, Faults, Filter, Frequency, Prng, Shortage};
use nonic_settings::{self as settings, SettingError};
use std::str::FromStr;

const EXPECTED: &str = "parts such as loss=1%, dup=0.1%, reorder=5%, hold=2ms, corrupt=10ppm, delay=200us, kind=ack, every=10, \
                        seed=7, joined by commas, and semicolons between rules; docs/faults.md has them all";
/// For how long a packet that is reordered is held back if the plan does not say.
const USUAL_HOLD_NS: u64 = 1_000_000;
/// What draws numbers beside the links, whose numbers are small.
const RECEIVES: u64 = 1 << 40;
const REGISTRATIONS: u64 = 2 << 40;

/// What is to be done to packets, and what the NIC is to lack.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultPlan {
    /// What is done to which packets.
    pub rules: Vec<PlannedRule>,
    /// How often a receive is not found although it is posted, so that the responder is not ready (RNR).
    pub missing_receives: Option<Frequency>,
    /// How often memory cannot be registered.
    pub failing_registrations: Option<Frequency>,
    /// Completion queues have room for no more than this, whatever was asked for.
    pub completions: Option<usize>,
    /// The device fails after so long.
    pub fatal_ns: Option<u64>,
    /// The same seed makes the same decisions.
    pub seed: u64,
}

/// A rule, and where packets are disturbed by it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct PlannedRule {
    /// Which packets, and what is done to them.
    pub rule: FaultRule,
    /// Those that come, those that leave, or both.
    pub direction: Direction,
}

/// Where packets are disturbed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// As they come.
    #[default]
    In,
    /// As they leave.
    Out,
    /// Both.
    Both,
}

impl FaultPlan {
    pub(super) fn from_setting(text: &str) -> Result<Self, SettingError> {
        text.parse()
            .map_err(|InvalidFaults| settings::FAULTS.refuse(text, EXPECTED))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut plan = FaultPlan::default();
        for rule in text.split(';') {
            let mut planned = PlannedRule::default();
            planned.rule.faults.hold_ns = USUAL_HOLD_NS;
            for part in rule.split(',') {
                let (name, value) = part.trim().split_once('=')?;
                let known = read_fault(&mut planned.rule.faults, name, value)
                    || read_filter(&mut planned, name, value)
                    || plan.read_shortage(name, value);
                if !known {
                    return None;
                }
            }
            if !planned.rule.faults.is_none() {
                plan.rules.push(planned);
            } else if planned != PlannedRule::holding_for(planned.rule.faults.hold_ns) {
                // A filter for nothing is a mistake.
                return None;
            }
        }
        Some(plan)
    }

    /// Reads a part that is not about packets. Whether it is one, and well formed.
    fn read_shortage(&mut self, name: &str, value: &str) -> bool {
        match name {
            "rnr" => assign(&mut self.missing_receives, frequency(value).map(Some)),
            "registration" => assign(&mut self.failing_registrations, frequency(value).map(Some)),
            "cq" => assign(
                &mut self.completions,
                positive(value).map(|size| Some(size as usize)),
            ),
            "fatal" => assign(&mut self.fatal_ns, duration_ns(value).map(Some)),
            "seed" => assign(&mut self.seed, value.parse().ok()),
            _ => false,
        }
    }

    /// The injector for what comes to the `index`-th link, or leaves it, with decisions of its own.
    pub(crate) fn injector(&self, index: u64, direction: Direction) -> FaultInjector {
        let rules: Vec<FaultRule> = self
            .rules
            .iter()
            .filter(|planned| planned.direction == direction || planned.direction == Direction::Both)
            .map(|planned| planned.rule)
            .collect();
        let seed = self.seed.wrapping_add(index);
        let prng = match direction {
            Direction::Out => Prng::new(!seed),
            Direction::In | Direction::Both => Prng::new(seed),
        };
        FaultInjector::with_rules(&rules, prng)
    }

    /// Whether packets that leave are disturbed: then each goes alone.
    pub(crate) fn disturbs_sending(&self) -> bool {
        self.rules
            .iter()
            .any(|planned| planned.direction != Direction::In)
    }

    /// Which receives of the `index`-th shard are not found.
    pub(crate) fn missing_receives(&self, index: u64) -> Option<Shortage> {
        let prng = Prng::new(self.seed.wrapping_add(RECEIVES + index));
        self.missing_receives
            .map(|frequency| Shortage::new(frequency, prng))
    }

    /// Which registrations fail.
    pub(crate) fn failing_registrations(&self) -> Option<Shortage> {
        let prng = Prng::new(self.seed.wrapping_add(REGISTRATIONS));
        self.failing_registrations
            .map(|frequency| Shortage::new(frequency, prng))
    }
}

/// The text is no plan.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it must be {EXPECTED}")]
pub struct InvalidFaults;

impl FromStr for FaultPlan {
    type Err = InvalidFaults;

    fn from_str(text: &str) -> Result<Self, InvalidFaults> {
        Self::parse(text).ok_or(InvalidFaults)
    }
}

impl PlannedRule {
    /// One that does nothing, so far.
    fn holding_for(hold_ns: u64) -> Self {
        let mut planned = PlannedRule::default();
        planned.rule.faults.hold_ns = hold_ns;
        planned
    }
}

/// Reads a part that says what is done. Whether it is one, and well formed.
fn read_fault(faults: &mut Faults, name: &str, value: &str) -> bool {
    match name {
        "loss" => assign(&mut faults.loss_ppm, rate(value)),
        "dup" => assign(&mut faults.duplicate_ppm, rate(value)),
        "reorder" => assign(&mut faults.reorder_ppm, rate(value)),
        "corrupt" => assign(&mut faults.corrupt_ppm, rate(value)),
        "garble" => assign(&mut faults.garble_ppm, rate(value)),
        "hold" => assign(&mut faults.hold_ns, duration_ns(value)),
        "delay" => assign(&mut faults.delay_ns, duration_ns(value)),
        "burst" => read_burst(faults, value).is_some(),
        _ => false,
    }
}

/// `0.1%x20`: so often a burst begins, in which so many packets are lost on the average.
fn read_burst(faults: &mut Faults, value: &str) -> Option<()> {
    let (begin, length) = value.split_once('x')?;
    faults.burst_begin_ppm = rate(begin)?;
    faults.burst_end_ppm = (1_000_000 / positive(length)?).max(1) as u32;
    Some(())
}

/// Reads a part that says to which packets. Whether it is one, and well formed.
fn read_filter(planned: &mut PlannedRule, name: &str, value: &str) -> bool {
    let PlannedRule { rule, direction } = planned;
    let Filter {
        qpn,
        peer,
        kind,
        from_ns,
        until_ns,
        period_ns,
        skip,
        every,
    } = &mut rule.filter;
    match name {
        "direction" => assign(
            direction,
            match value {
                "in" => Some(Direction::In),
                "out" => Some(Direction::Out),
                "both" => Some(Direction::Both),
                _ => None,
            },
        ),
        "qp" => assign(qpn, queue_pair(value).map(Some)),
        "peer" => assign(peer, value.parse().ok().map(Some)),
        "kind" => assign(kind, value.parse().ok().map(Some)),
        "from" => assign(from_ns, duration_ns(value)),
        "until" => assign(until_ns, duration_ns(value).map(Some)),
        "period" => assign(period_ns, duration_ns(value).filter(|ns| *ns > 0).map(Some)),
        "skip" => assign(skip, value.parse().ok()),
        "every" => assign(every, positive(value)),
        "limit" => assign(&mut rule.limit, positive(value).map(Some)),
        _ => false,
    }
}

fn assign<T>(place: &mut T, value: Option<T>) -> bool {
    match value {
        Some(value) => {
            *place = value;
            true
        }
        None => false,
    }
}

fn positive(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number > 0)
}

/// A number of a queue pair, as programs show it: `0x1a2b` or decimal.
fn queue_pair(text: &str) -> Option<Qpn> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    (number < 1 << 24).then(|| Qpn::new(number))
}

/// How often: a share, or `1/10` for each tenth.
fn frequency(text: &str) -> Option<Frequency> {
    match text.strip_prefix("1/") {
        Some(every) => positive(every).map(Frequency::Every),
        None => rate(text).map(Frequency::Ppm),
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
    use nonic_core::link::PacketKind;

    #[test]
    fn every_part_is_read() {
        let text = "loss=1%,dup=0.1%, reorder=2.5%,corrupt=10ppm,garble=2ppm,hold=3ms,delay=200us,burst=0.1%x20,seed=7";
        let plan = FaultPlan::parse(text).expect("well formed");
        let expected = Faults {
            loss_ppm: 10_000,
            duplicate_ppm: 1_000,
            reorder_ppm: 25_000,
            corrupt_ppm: 10,
            garble_ppm: 2,
            hold_ns: 3_000_000,
            delay_ns: 200_000,
            burst_begin_ppm: 1_000,
            burst_end_ppm: 50_000,
        };
        let [planned] = plan.rules[..] else {
            panic!("{plan:?}");
        };
        assert_eq!(planned.rule.faults, expected);
        assert_eq!(planned.rule.filter, Filter::default());
        assert_eq!((planned.direction, plan.seed), (Direction::In, 7));
    }

    #[test]
    fn rules_have_filters_of_their_own() {
        let text = "loss=100%,kind=ack,direction=out,qp=0x1a,peer=10.0.0.1,skip=2,every=3,limit=4; \
                    delay=1ms,from=1s,until=2s,period=10s,direction=both";
        let plan = FaultPlan::parse(text).expect("well formed");
        let [first, second] = plan.rules[..] else {
            panic!("{plan:?}");
        };
        let expected = Filter {
            qpn: Some(Qpn::new(0x1a)),
            peer: Some("10.0.0.1".parse().expect("an address")),
            kind: Some(PacketKind::Ack),
            skip: 2,
            every: 3,
            ..Filter::default()
        };
        assert_eq!((first.rule.filter, first.rule.limit), (expected, Some(4)));
        assert_eq!(first.direction, Direction::Out);
        let expected = Filter {
            from_ns: 1_000_000_000,
            until_ns: Some(2_000_000_000),
            period_ns: Some(10_000_000_000),
            ..Filter::default()
        };
        assert_eq!(
            (second.rule.filter, second.direction),
            (expected, Direction::Both)
        );
        assert!(plan.disturbs_sending());
    }

    #[test]
    fn what_the_nic_lacks_is_read() {
        let plan = FaultPlan::parse("rnr=5%;registration=1/3;cq=16;fatal=3s").expect("well formed");
        let expected = FaultPlan {
            missing_receives: Some(Frequency::Ppm(50_000)),
            failing_registrations: Some(Frequency::Every(3)),
            completions: Some(16),
            fatal_ns: Some(3_000_000_000),
            ..FaultPlan::default()
        };
        assert_eq!(plan, expected);
        assert!(!plan.disturbs_sending());
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
            "loss=1%;",
            "kind=ack",
            "loss=1%,kind=nothing",
            "loss=1%,every=0",
            "loss=1%,direction=up",
            "loss=1%,qp=0x1000000",
            "loss=1%,peer=somewhere",
            "loss=1%,period=0s",
            "burst=1%",
            "burst=1%x0",
            "rnr=1/0",
            "cq=0",
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
