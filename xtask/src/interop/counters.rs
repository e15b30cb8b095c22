//! What both NICs counted, and what the guest's kernel complained about.

use crate::lab::Guest;
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Lines in the guest's kernel log about a wrong ICRC: rxe has no counter for it.
const BAD_ICRC: &str = "bad_icrc_in_log";

type Values = BTreeMap<String, u64>;

/// rxe's `hw_counters`, and how many packets it refused for their ICRC.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    values: Values,
}

impl Counters {
    pub(super) fn read(guest: &mut Guest) -> Result<Self> {
        let text = guest.run(&format!(
            "cd /sys/class/infiniband/rxe0/ports/1/hw_counters && for name in *; do echo $name $(<$name); done; \
             echo {BAD_ICRC} $(dmesg | grep -ci icrc)"
        ))?;
        Ok(Self { values: parse(&text) })
    }

    fn since(&self, before: &Self) -> Values {
        let change = |(name, value): (&String, &u64)| {
            let change = value.saturating_sub(before.values.get(name).copied().unwrap_or(0));
            (change > 0).then(|| (name.clone(), change))
        };
        self.values.iter().filter_map(change).collect()
    }
}

/// The sum of what nonic's processes counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    values: Values,
}

impl Seen {
    /// Adds a file that a process wrote when it ended, and removes it. A killed one wrote none.
    pub(super) fn add(&mut self, file: &Path) {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let _ = std::fs::remove_file(file);
        for (name, value) in parse(&text).into_iter().filter(|(_, value)| *value > 0) {
            *self.values.entry(name).or_default() += value;
        }
    }
}

/// What both counted over some rows.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    mtu: u32,
    /// Whether netem disturbed the wire.
    disturbed: bool,
    rxe: Values,
    nonic: Values,
}

impl Tally {
    pub(super) fn new(mtu: u32, disturbed: bool, rxe: [&Counters; 2], nonic: Seen) -> Self {
        Self {
            mtu,
            disturbed,
            rxe: rxe[1].since(rxe[0]),
            nonic: nonic.values,
        }
    }

    /// What nobody injected and yet was seen.
    pub(super) fn complaint(&self) -> Option<String> {
        let refused = [(BAD_ICRC, &self.rxe), ("rx_icrc_errors", &self.nonic)];
        let refused: Vec<String> = refused
            .iter()
            .filter_map(|(name, values)| Some(format!("{name} {}", values.get(*name)?)))
            .collect();
        (!self.disturbed && !refused.is_empty())
            .then(|| format!("at {} an undisturbed wire gave {}", self.mtu, refused.join(", ")))
    }

    /// A paragraph for people.
    pub(super) fn text(&self) -> String {
        let wire = if self.disturbed {
            "disturbed"
        } else {
            "undisturbed"
        };
        let mut text = String::new();
        for (who, values) in [("rxe", &self.rxe), ("nonic", &self.nonic)] {
            let values: Vec<String> = values
                .iter()
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            let _ = writeln!(text, "{who} at MTU {}, {wire}: {}", self.mtu, values.join(", "));
        }
        text
    }
}

/// Values of one name are added: a process may have several devices.
fn parse(text: &str) -> Values {
    let pairs = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse::<u64>().ok()?))
    });
    pairs.fold(Values::new(), |mut values, (name, value)| {
        *values.entry(name).or_default() += value;
        values
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_icrc_is_only_explained_by_a_disturbed_wire() {
        let counters = |text| Counters { values: parse(text) };
        let [before, after] =
            ["sent_pkts 5\nbad_icrc_in_log 1", "sent_pkts 7\nbad_icrc_in_log 3"].map(counters);
        let quiet = Tally::new(1500, false, [&before, &after], Seen::default());
        assert!(
            quiet
                .complaint()
                .is_some_and(|text| text.ends_with("bad_icrc_in_log 2"))
        );
        assert!(quiet.text().contains("sent_pkts 2"));
        let disturbed = Tally::new(1500, true, [&before, &after], Seen::default());
        assert_eq!(disturbed.complaint(), None);
        let same = Tally::new(1500, false, [&after, &after], Seen::default());
        assert_eq!(same.complaint(), None);
    }
}
