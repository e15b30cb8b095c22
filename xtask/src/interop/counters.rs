//! What both NICs counted, and what the guest's kernel complained about.

use crate::lab::Guest;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// rxe's `hw_counters`, and how many packets it refused for their ICRC (which it only says in the kernel's log).
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    values: BTreeMap<String, u64>,
}

impl Counters {
    pub(super) fn read(guest: &mut Guest) -> Result<Self> {
        let text = guest.run(
            "cd /sys/class/infiniband/rxe0/ports/1/hw_counters && for name in *; do echo $name $(cat $name); done; \
             echo bad_icrc_in_log $(dmesg | grep -ci icrc)",
        )?;
        Ok(Self { values: parse(&text) })
    }

    /// Prints what changed.
    pub(super) fn report(&self, before: &Self, seen: &Seen, mtu: u32) {
        let changes = self.values.iter().filter_map(|(name, value)| {
            let change = value.saturating_sub(before.values.get(name).copied().unwrap_or(0));
            (change > 0).then(|| format!("{name} {change}"))
        });
        eprintln!("rxe counted at {mtu}: {}", changes.collect::<Vec<_>>().join(", "));
        let ours: Vec<String> = seen
            .values
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        eprintln!("nonic counted at {mtu}: {}", ours.join(", "));
    }
}

/// The sum of what nonic's processes counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    values: BTreeMap<String, u64>,
}

impl Seen {
    /// Adds a file that a process wrote when it closed its device, and removes it. A killed one wrote none.
    pub(super) fn add(&mut self, file: &Path) {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let _ = std::fs::remove_file(file);
        for (name, value) in parse(&text).into_iter().filter(|(_, value)| *value > 0) {
            *self.values.entry(name).or_default() += value;
        }
    }
}

fn parse(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        })
        .collect()
}
