//! Counters of the devices of all processes of a run, from `NONIC_COUNTERS`: whether a program used nonic is counted,
//! not assumed.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;
use testbed::temporary::Scratch;

/// The counters of every process that took part, in a file that every user may write to; gone when the value is.
pub(crate) struct Counters {
    folder: Scratch,
}

impl Counters {
    /// Of a run that has not begun.
    pub(crate) fn new() -> Result<Self> {
        Ok(Counters {
            folder: Scratch::new()?,
        })
    }

    /// What `NONIC_COUNTERS` is set to.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path("counters")
    }

    /// Every counter, added up over all devices of all processes that have ended or closed theirs.
    pub(crate) fn sums(&self) -> Result<BTreeMap<String, u64>> {
        let text = std::fs::read_to_string(self.file()).context("nobody wrote counters")?;
        Ok(sums(&text))
    }
}

/// Lines of `name value`, added up by name.
fn sums(text: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        *sums.entry(name.to_owned()).or_default() += value.parse::<u64>().unwrap_or(0);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_several_processes_are_added_up() {
        let sums = sums("sends 2\nreceives 5\nsends 3\n");
        assert_eq!(sums.get("sends"), Some(&5));
        assert_eq!(sums.get("receives"), Some(&5));
    }
}
