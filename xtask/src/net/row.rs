//! What was found of one cell of the table.

use super::cells::{Cell, Group};
use super::subject::Subject;
use std::collections::BTreeMap;
use testbed::stats;

/// What was found of a cell: for each subject what each round gave.
pub(super) struct Row {
    pub(super) cell: Cell,
    pub(super) rates: BTreeMap<Subject, Vec<Option<f64>>>,
}

impl Row {
    /// Megabits per second, in the middle of the rounds.
    pub(super) fn median(&self, subject: Subject) -> Option<f64> {
        let rates: Vec<f64> = self.rates.get(&subject)?.iter().flatten().copied().collect();
        stats::median(&rates)
    }

    /// Ours to a rival's, in the middle of the rounds.
    pub(super) fn ratio(&self, rival: Subject) -> Option<f64> {
        let (ours, theirs) = (self.rates.get(&self.cell.ours)?, self.rates.get(&rival)?);
        stats::median(&stats::ratios(ours, theirs))
    }

    /// Whether it shows what it must; nothing if nothing must show, or there is no rival to compare with.
    pub(super) fn is_met(&self) -> Option<bool> {
        let rival = *self.cell.rivals.first()?;
        if !rival.is_available() {
            return None;
        }
        let least = self.cell.must_show?;
        Some(self.ratio(rival).is_some_and(|ratio| ratio >= least))
    }
}

/// The rows of a group.
pub(super) fn of_group(rows: &[Row], group: Group) -> Vec<&Row> {
    rows.iter().filter(|row| row.cell.group == group).collect()
}
