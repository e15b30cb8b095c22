//! The fault plan of `NONIC_FAULTS`, as text: what is to be done to packets, and what the NIC is to lack.
//!
//! Rules are separated by semicolons, their parts by commas. What is done to packets, and to which, is read by
//! [`nonic_netem::grammar`]; here are the parts that only a NIC has. docs/faults.md has the list, with what each teaches.

use nonic_core::{Frequency, Shortage};
use nonic_netem::grammar::{PartError, duration_ns, positive, share};
use nonic_netem::{FaultInjector, FaultRule, Prng};
use nonic_settings::{self as settings, SettingError};
use std::str::FromStr;

const EXPECTED: &str = "parts such as loss=1%, dup=0.1%, reorder=5%, hold=2ms, corrupt=10ppm, delay=200us, kind=ack, every=10, \
                        seed=7, joined by commas, and semicolons between rules; docs/faults.md has them all";
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
            let mut planned = PlannedRule {
                rule: FaultRule::new(),
                direction: Direction::default(),
            };
            for part in rule.split(',') {
                let (name, value) = part.trim().split_once('=')?;
                match planned.read(name, value) {
                    Err(PartError::Unknown) if plan.read_shortage(name, value) => {}
                    read => read.ok()?,
                }
            }
            let PlannedRule { rule, direction } = planned;
            if !rule.faults.is_none() {
                plan.rules.push(planned);
            } else if rule.is_pointless() || direction != Direction::default() {
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
    /// Reads a part that is about packets.
    fn read(&mut self, name: &str, value: &str) -> Result<(), PartError> {
        if name != "direction" {
            return self.rule.read(name, value);
        }
        self.direction = match value {
            "in" => Direction::In,
            "out" => Direction::Out,
            "both" => Direction::Both,
            _ => return Err(PartError::Malformed("in, out or both")),
        };
        Ok(())
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

/// How often: a share, or `1/10` for each tenth.
fn frequency(text: &str) -> Option<Frequency> {
    match text.strip_prefix("1/") {
        Some(every) => positive(every).map(Frequency::Every),
        None => share(text).map(Frequency::Ppm),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic_core::Qpn;
    use nonic_netem::{Faults, Filter, PacketKind};

    #[test]
    fn every_part_is_read() {
        let text = "loss=1%,dup=0.1%, reorder=2.5%,corrupt=10ppm,garble=2ppm,hold=3ms,delay=200us,burst=0.1%x20,\
                    early=3%,jitter=10us,seed=7";
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
            early_ppm: 30_000,
            jitter_ns: 10_000,
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
