//! The settings of one direction of a link, as people write them: `delay=10ms,loss=1%,rate=1gbit`.

use anyhow::{Context, Result, bail, ensure};

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// How long a packet takes.
    pub(crate) delay_ns: u64,
    /// As much longer or shorter, evenly spread. Packets overtake each other if it is more than what lies between them.
    pub(crate) jitter_ns: u64,
    /// No packet overtakes: it waits for those before it.
    pub(crate) in_order: bool,
    /// The part of packets that get lost, each by itself.
    pub(crate) loss: f64,
    /// Losses in bursts: packets that get lost one after the other.
    pub(crate) bursts: Option<Bursts>,
    /// The part of packets that are not delayed, and so overtake the others.
    pub(crate) early: f64,
    /// The part of packets that come twice.
    pub(crate) duplicates: f64,
    /// The part of packets of which one bit is wrong.
    pub(crate) corruption: f64,
    /// Bits per second; without it there is no queue.
    pub(crate) rate: Option<u64>,
    /// Bytes that wait for the link at most; what comes then is dropped.
    pub(crate) queue: u64,
    /// Random early detection: drops or marks before the queue is full.
    pub(crate) red: Option<Red>,
}

/// Losses in bursts: Gilbert and Elliott's link, which loses nothing while good and everything while bad.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Bursts {
    /// The part of packets that get lost.
    pub(crate) part: f64,
    /// The mean length of a burst, in packets.
    pub(crate) length: f64,
}

/// Random early detection, in bytes of the average queue.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Red {
    /// Nothing is done below.
    pub(crate) least: u64,
    /// Here the probability is `most_part`; it grows to one at twice of it.
    pub(crate) most: u64,
    pub(crate) most_part: f64,
    /// Mark packets that can be marked instead of dropping them.
    pub(crate) ecn: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            delay_ns: 0,
            jitter_ns: 0,
            in_order: false,
            loss: 0.0,
            bursts: None,
            early: 0.0,
            duplicates: 0.0,
            corruption: 0.0,
            rate: None,
            queue: 1 << 20,
            red: None,
        }
    }
}

impl Settings {
    /// Changes what the text names, `name=value` with commas between, and nothing else.
    pub(crate) fn change(&mut self, text: &str) -> Result<()> {
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            self.set(name.trim(), value.trim())
                .with_context(|| format!("in `{word}`"))?;
        }
        if let (Some(_), None) = (self.red, self.rate) {
            bail!("without a rate there is no queue that red could watch");
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "delay" => self.delay_ns = duration_ns(value)?,
            "jitter" => self.jitter_ns = duration_ns(value)?,
            "in-order" => self.in_order = switch(value)?,
            "loss" => self.loss = part(value)?,
            "bursts" => self.bursts = bursts(value)?,
            "early" => self.early = part(value)?,
            "duplicates" => self.duplicates = part(value)?,
            "corruption" => self.corruption = part(value)?,
            "rate" => self.rate = rate(value)?,
            "queue" => self.queue = bytes(value)?,
            "red" => self.red = red(value)?,
            _ => bail!("there is no `{name}`; {NAMES}"),
        }
        Ok(())
    }
}

/// For messages and help.
pub(crate) const NAMES: &str = "what there is: delay=TIME, jitter=TIME, in-order, loss=PART, bursts=PART:LENGTH, early=PART, \
     duplicates=PART, corruption=PART, rate=BITS, queue=BYTES, red=LEAST:MOST:PART[:drop]";

/// `LEAST:MOST:PART` marks, with `:drop` at the end it drops; `off` is none.
fn red(text: &str) -> Result<Option<Red>> {
    if text == "off" {
        return Ok(None);
    }
    let words: Vec<&str> = text.split(':').collect();
    let (numbers, ecn) = match words.as_slice() {
        [numbers @ .., "drop"] => (numbers, false),
        numbers => (numbers, true),
    };
    let [least, most, most_part] = numbers else {
        bail!("red is LEAST:MOST:PART, such as 20k:60k:10%");
    };
    let (least, most, most_part) = (bytes(least)?, bytes(most)?, part(most_part)?);
    ensure!(least < most, "the least is not below the most");
    Ok(Some(Red {
        least,
        most,
        most_part,
        ecn,
    }))
}

fn bursts(text: &str) -> Result<Option<Bursts>> {
    if text == "off" {
        return Ok(None);
    }
    let (lost, length) = text
        .split_once(':')
        .context("bursts are PART:LENGTH, such as 1%:8")?;
    let (lost, length) = (part(lost)?, length.parse::<f64>().context("not a length")?);
    ensure!(lost < 1.0, "all of them is no burst");
    ensure!(length >= 1.0, "a burst has a packet at least");
    Ok(Some(Bursts { part: lost, length }))
}

fn switch(text: &str) -> Result<bool> {
    match text {
        "" | "on" => Ok(true),
        "off" => Ok(false),
        _ => bail!("`{text}` is neither on nor off"),
    }
}

/// `1%`, `0.5%` or `0.01`.
fn part(text: &str) -> Result<f64> {
    let (digits, divisor) = match text.strip_suffix('%') {
        Some(digits) => (digits, 100.0),
        None => (text, 1.0),
    };
    let part = number(digits)? / divisor;
    ensure!(part <= 1.0, "`{text}` is more than all");
    Ok(part)
}

/// `100mbit`, `2.5gbit`, or `off`.
fn rate(text: &str) -> Result<Option<u64>> {
    if text == "off" {
        return Ok(None);
    }
    let units = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
    let bits = with_unit(text, &units).context("a rate is written like 100mbit")?;
    ensure!(bits >= 1.0, "a rate is at least a bit per second");
    Ok(Some(bits as u64))
}

/// `1500`, `64k` or `2m`, in powers of two.
fn bytes(text: &str) -> Result<u64> {
    let units = [("k", 1024.0), ("m", 1024.0 * 1024.0), ("", 1.0)];
    Ok(with_unit(text, &units).context("bytes are written like 64k")? as u64)
}

/// `1s`, `20ms`, `50us` or `100ns`.
fn duration_ns(text: &str) -> Result<u64> {
    let units = [("ms", 1e6), ("us", 1e3), ("µs", 1e3), ("ns", 1.0), ("s", 1e9)];
    let ns = match text {
        "0" => 0.0,
        text => with_unit(text, &units).context("a time is written like 20ms")?,
    };
    ensure!(ns <= 60e9, "a minute at most");
    Ok(ns as u64)
}

/// The first unit that the text ends in decides.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Result<f64> {
    for (unit, factor) in units {
        if let Some(digits) = text.strip_suffix(unit) {
            return Ok(number(digits)? * factor);
        }
    }
    bail!("`{text}` has no unit that is known");
}

fn number(digits: &str) -> Result<f64> {
    let number: f64 = digits
        .trim()
        .parse()
        .with_context(|| format!("`{digits}` is no number"))?;
    ensure!(number.is_finite() && number >= 0.0, "`{digits}` is below zero");
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings> {
        let mut settings = Settings::default();
        settings.change(text)?;
        Ok(settings)
    }

    #[test]
    fn everything_is_read_as_people_write_it() {
        let text = "delay=10ms, jitter=50us,in-order,loss=1%,bursts=0.5%:8,early=0.1%,duplicates=5%,corruption=0.01,\
                    rate=100mbit,queue=64k,red=20k:60k:10%";
        let expected = Settings {
            delay_ns: 10_000_000,
            jitter_ns: 50_000,
            in_order: true,
            loss: 0.01,
            bursts: Some(Bursts {
                part: 0.005,
                length: 8.0,
            }),
            early: 0.001,
            duplicates: 0.05,
            corruption: 0.01,
            rate: Some(100_000_000),
            queue: 65536,
            red: Some(Red {
                least: 20480,
                most: 61440,
                most_part: 0.1,
                ecn: true,
            }),
        };
        assert_eq!(read(text).expect("it is readable"), expected);
    }

    #[test]
    fn what_is_not_named_stays() {
        let mut settings = read("delay=1ms,loss=5%").expect("it is readable");
        settings.change("loss=0").expect("it is readable");
        assert_eq!(settings, read("delay=1ms").expect("it is readable"));
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
            "bursts=1%",
            "bursts=1%:0.5",
            "in-order=maybe",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
