//! The outcome of each test, and the expected one.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The outcome of a test.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// The outcomes of all of them, by name, each with the reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    tests: BTreeMap<String, (Option<Outcome>, String)>,
}

impl Report {
    /// Reads the lines the runner wrote.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut report = Self::default();
        for line in text.lines() {
            let line: serde_json::Value =
                serde_json::from_str(line).with_context(|| format!("in {}: {line}", path.display()))?;
            let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            let outcome = match word("outcome").as_str() {
                "passed" => Some(Outcome::Passed),
                "failed" => Some(Outcome::Failed),
                "skipped" => Some(Outcome::Skipped),
                _ => None,
            };
            report.tests.insert(word("test"), (outcome, word("reason")));
        }
        Ok(report)
    }

    /// The test that started and never ended.
    pub(super) fn unfinished(&self) -> Option<String> {
        let mut tests = self.tests.iter();
        tests
            .find(|(_, (outcome, _))| outcome.is_none())
            .map(|(name, _)| name.clone())
    }

    /// Writes down that a test failed, as the runner would have.
    pub(super) fn append(path: &Path, test: &str, reason: &str) -> Result<()> {
        use std::io::Write;
        let line = serde_json::json!({"test": test, "outcome": "failed", "reason": reason});
        let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
        writeln!(file, "{line}")?;
        Ok(())
    }

    pub(crate) fn count(&self, wanted: Outcome) -> usize {
        let outcomes = self.tests.values();
        outcomes.filter(|(outcome, _)| *outcome == Some(wanted)).count()
    }

    /// A paragraph for each test that failed.
    pub(crate) fn failures(&self) -> Vec<String> {
        let failed = self
            .tests
            .iter()
            .filter(|(_, (outcome, _))| *outcome == Some(Outcome::Failed));
        failed
            .map(|(name, (_, reason))| format!("FAILED {name}\n{reason}"))
            .collect()
    }

    /// A line for each test.
    pub(crate) fn lines(&self) -> String {
        let mut lines = String::new();
        for (name, (outcome, reason)) in &self.tests {
            let reason = reason.lines().last().unwrap_or_default();
            // Writing to a string does not fail.
            let _ = writeln!(lines, "{outcome:?} {name} {reason}");
        }
        lines.replace("Some(", "").replace(") tests", " tests")
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let tests = self.tests.iter().map(|(name, (outcome, reason))| {
            let outcome = outcome.map(|outcome| format!("{outcome:?}").to_lowercase());
            (
                name.clone(),
                serde_json::json!({"outcome": outcome, "reason": reason}),
            )
        });
        serde_json::Value::Object(tests.collect())
    }
}

/// The tests that are known to skip: `name  reason` per line, `#` for remarks.
#[derive(Clone, Debug)]
pub(crate) struct Skips {
    reasons: BTreeMap<String, String>,
}

impl Skips {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        Ok(Self {
            reasons: reasons(path)?,
        })
    }

    /// What is in another list, if there is one, skips too.
    pub(crate) fn and(mut self, path: &Path) -> Result<Self> {
        if path.exists() {
            self.reasons.extend(reasons(path)?);
        }
        Ok(self)
    }

    /// Everything that is not as written: failures, unexpected skips, and skips that no longer are.
    pub(crate) fn differences(&self, report: &Report) -> Vec<String> {
        let mut found = report.failures();
        for (name, (outcome, reason)) in &report.tests {
            match (outcome, self.reasons.contains_key(name)) {
                (Some(Outcome::Skipped), false) => found.push(format!("SKIPPED {name}: {reason}")),
                (Some(Outcome::Passed), true) => {
                    found.push(format!("PASSED {name}: take it from the list of skips"));
                }
                _ => {}
            }
        }
        for name in self
            .reasons
            .keys()
            .filter(|name| !report.tests.contains_key(*name))
        {
            found.push(format!("UNKNOWN {name}: there is no such test"));
        }
        found
    }
}

/// Reads a list.
fn reasons(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut reasons = BTreeMap::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (name, reason) = line.split_once(' ').unwrap_or((line, ""));
        ensure!(
            !reason.trim().is_empty(),
            "{}: {name} has no reason",
            path.display()
        );
        reasons.insert(name.to_owned(), reason.trim().to_owned());
    }
    Ok(reasons)
}
