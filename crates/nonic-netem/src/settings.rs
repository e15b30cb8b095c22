//! The settings of one direction of a link as people write them: `delay=10ms,loss=1%,rate=1gbit`.
//!
//! They are the rules of [`grammar`](crate::grammar), and what a link has beside: a rate, a queue, RED and order.

use crate::grammar::{self, PartError, assign};
use crate::{Beyond, BottleneckSettings, FaultRule, Marking, Rate};

/// One direction of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkSettings {
    /// The line, and the queue in front of it.
    pub bottleneck: BottleneckSettings,
    /// No packet overtakes: it waits for those before it.
    pub in_order: bool,
    /// What is done to packets behind the line. There is one at least.
    rules: Vec<FaultRule>,
}

/// The parts that there are, for messages and help.
pub const LINK_PARTS: &str = "what there is: delay=TIME, jitter=TIME, in-order, loss=SHARE, burst=SHARExLENGTH, early=SHARE, \
     reorder=SHARE, dup=SHARE, hold=TIME, corrupt=SHARE, rate=BITS, queue=BYTES, red=LEAST:MOST:SHARE[:drop], and those that \
     choose packets, such as kind=ack; docs/networks.md and docs/faults.md explain them";

/// Why settings were refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingsError {
    /// No part has this name.
    #[error("there is no `{0}`; {LINK_PARTS}")]
    Unknown(String),
    /// A part has no such value.
    #[error("in `{0}`: {1}")]
    Part(String, PartError),
    /// RED watches a queue.
    #[error("without a rate there is no queue that red could watch")]
    RedWithoutRate,
    /// A link cannot do this.
    #[error("a link cannot garble: the receiver would check what arrives; NONIC_FAULTS can")]
    Garble,
    /// A rule that does nothing.
    #[error("a rule chooses packets and does nothing to them")]
    Pointless,
}

impl Default for LinkSettings {
    fn default() -> Self {
        LinkSettings {
            bottleneck: BottleneckSettings {
                rate: Rate::UNLIMITED,
                queue_bytes: 1 << 20,
                red: None,
                red_drops: false,
            },
            in_order: false,
            rules: vec![FaultRule::new()],
        }
    }
}

impl LinkSettings {
    /// What is done to packets, rule by rule.
    pub fn rules(&self) -> &[FaultRule] {
        &self.rules
    }

    /// Changes what the text names, and nothing else: parts up to the first semicolon change the first rule and the link. The
    /// rules behind it replace all further rules. A text that is refused changes nothing.
    pub fn change(&mut self, text: &str) -> Result<(), SettingsError> {
        let mut changed = self.clone();
        let mut texts = text.split(';');
        let mut first = changed.rules[0];
        changed.read_rule(&mut first, texts.next().unwrap_or(""))?;
        if text.contains(';') {
            changed.rules.truncate(1);
        }
        changed.rules[0] = first;
        for text in texts {
            let mut rule = FaultRule::new();
            changed.read_rule(&mut rule, text)?;
            changed.rules.push(rule);
        }
        changed.check()?;
        *self = changed;
        Ok(())
    }

    fn read_rule(&mut self, rule: &mut FaultRule, text: &str) -> Result<(), SettingsError> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let read = match rule.read(name, value) {
                Err(PartError::Unknown) => self.read(name, value),
                read => read,
            };
            read.map_err(|error| match error {
                PartError::Unknown => SettingsError::Unknown(name.to_owned()),
                error => SettingsError::Part(part.to_owned(), error),
            })?;
        }
        Ok(())
    }

    /// Reads a part that is about the link.
    fn read(&mut self, name: &str, value: &str) -> Result<(), PartError> {
        let BottleneckSettings {
            rate, queue_bytes, ..
        } = &mut self.bottleneck;
        match name {
            "rate" => assign(rate, grammar::rate(value), "a rate such as 100mbit, or off"),
            "queue" => assign(queue_bytes, grammar::bytes(value), "bytes such as 64k"),
            "in-order" => assign(&mut self.in_order, switch(value), "on or off"),
            "red" => self.read_red(value).ok_or(PartError::Malformed(
                "LEAST:MOST:SHARE such as 20k:60k:10%, with the least below the most, or off",
            )),
            _ => Err(PartError::Unknown),
        }
    }

    /// `LEAST:MOST:SHARE` marks, with `:drop` at the end it drops; `off` is none.
    fn read_red(&mut self, text: &str) -> Option<()> {
        let BottleneckSettings { red, red_drops, .. } = &mut self.bottleneck;
        if text == "off" {
            *red = None;
            return Some(());
        }
        let words: Vec<&str> = text.split(':').collect();
        let (numbers, drops) = match words.as_slice() {
            [numbers @ .., "drop"] => (numbers, true),
            numbers => (numbers, false),
        };
        let [low, high, most] = numbers else {
            return None;
        };
        let marking = Marking {
            low: grammar::bytes(low)?,
            high: grammar::bytes(high)?,
            most_ppm: grammar::share(most)?,
            beyond: Beyond::Gentle,
        };
        if marking.low >= marking.high {
            return None;
        }
        (*red, *red_drops) = (Some(marking), drops);
        Some(())
    }

    fn check(&self) -> Result<(), SettingsError> {
        if self.bottleneck.red.is_some() && self.bottleneck.rate == Rate::UNLIMITED {
            return Err(SettingsError::RedWithoutRate);
        }
        if self.rules.iter().any(|rule| rule.faults.garble_ppm > 0) {
            return Err(SettingsError::Garble);
        }
        match self.rules.iter().any(FaultRule::is_pointless) {
            true => Err(SettingsError::Pointless),
            false => Ok(()),
        }
    }
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "" | "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Faults, PacketKind};

    fn read(text: &str) -> Result<LinkSettings, SettingsError> {
        let mut settings = LinkSettings::default();
        settings.change(text)?;
        Ok(settings)
    }

    #[test]
    fn everything_is_read_as_people_write_it() {
        let text = "delay=10ms, jitter=50us,in-order,loss=1%,burst=0.5%x8,early=0.1%,dup=5%,corrupt=100ppm,reorder=2%,\
                    hold=0s,rate=100mbit,queue=64k,red=20k:60k:10%";
        let faults = Faults {
            delay_ns: 10_000_000,
            jitter_ns: 50_000,
            loss_ppm: 10_000,
            burst_begin_ppm: 5_000,
            burst_end_ppm: 125_000,
            early_ppm: 1_000,
            duplicate_ppm: 50_000,
            corrupt_ppm: 100,
            reorder_ppm: 20_000,
            ..Faults::default()
        };
        let expected = LinkSettings {
            bottleneck: BottleneckSettings {
                rate: Rate::bits_per_second(100_000_000),
                queue_bytes: 65536,
                red: Some(Marking {
                    low: 20480,
                    high: 61440,
                    most_ppm: 100_000,
                    beyond: Beyond::Gentle,
                }),
                red_drops: false,
            },
            in_order: true,
            rules: vec![FaultRule {
                faults,
                ..FaultRule::default()
            }],
        };
        assert_eq!(read(text), Ok(expected));
    }

    #[test]
    fn what_is_not_named_stays() {
        let mut settings = read("delay=1ms,loss=5%").expect("it is readable");
        settings.change("loss=0%").expect("it is readable");
        assert_eq!(settings, read("delay=1ms").expect("it is readable"));
        let before = settings.clone();
        assert!(settings.change("loss=1%,delay=1h").is_err());
        assert_eq!(settings, before, "what is refused changes nothing");
    }

    #[test]
    fn rules_behind_a_semicolon_replace_those_that_were_there() {
        let mut settings = read("delay=1ms;loss=5%,kind=ack;dup=1%").expect("it is readable");
        assert_eq!(settings.rules().len(), 3);
        assert_eq!(settings.rules()[1].filter.kind, Some(PacketKind::Ack));
        settings.change("delay=2ms").expect("it is readable");
        assert_eq!(settings.rules().len(), 3);
        settings.change(";loss=1%").expect("it is readable");
        assert_eq!(settings, read("delay=2ms;loss=1%").expect("it is readable"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "loss=101%",
            "loss=-1%",
            "delay=10",
            "delay=2000s",
            "rate=0bit",
            "rate=fast",
            "speed=1gbit",
            "red=20k:60k:10%",
            "rate=1gbit,red=60k:20k:10%",
            "burst=1%",
            "burst=1%x0.5",
            "in-order=maybe",
            "garble=1%",
            "kind=ack",
            "loss=1%;every=2",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        let told = |text| read(text).expect_err("it makes no sense").to_string();
        assert!(told("speed=1gbit").starts_with("there is no `speed`; what there is: delay=TIME"));
        assert_eq!(
            told("rate=fast"),
            "in `rate=fast`: it must be a rate such as 100mbit, or off"
        );
    }
}
