//! The verdict on a row's figures, round by round: medians, their spread, and whether the promise is kept.

use super::measure::{Absence, Figure};
use super::probe::{Probe, Quantity, significant};
use super::rows::{Must, Row};
use std::collections::HashMap;
use testbed::stats::{Summary, median, ratios};

/// What was measured, by probe and round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    figures: HashMap<Probe, Vec<Result<Figure, Absence>>>,
}

impl Found {
    pub(crate) fn add(&mut self, probe: Probe, figure: Result<Figure, Absence>) {
        self.figures.entry(probe).or_default().push(figure);
    }

    fn rounds(&self, probe: &Probe) -> &[Result<Figure, Absence>] {
        self.figures.get(probe).map_or(&[], Vec::as_slice)
    }

    /// A probe's figure of every round.
    pub(crate) fn values(&self, probe: &Probe) -> Vec<Option<f64>> {
        let rounds = self.rounds(probe).iter();
        rounds
            .map(|round| round.as_ref().ok().map(|figure| figure.value))
            .collect()
    }

    pub(crate) fn summary(&self, probe: &Probe) -> Option<Summary> {
        let values: Vec<f64> = self.values(probe).into_iter().flatten().collect();
        Summary::of(&values)
    }

    /// Why a probe has no figure at all.
    pub(crate) fn absence(&self, probe: &Probe) -> Option<&Absence> {
        let rounds = self.rounds(probe);
        if rounds.iter().any(Result::is_ok) {
            return None;
        }
        rounds.iter().find_map(|round| round.as_ref().err())
    }

    /// The packages that are not installed.
    pub(crate) fn missing_packages(&self) -> Vec<&'static str> {
        let mut packages: Vec<&'static str> = self
            .figures
            .values()
            .flatten()
            .filter_map(|round| match round {
                Err(Absence::NotInstalled(package)) => Some(*package),
                _ => None,
            })
            .collect();
        packages.sort_unstable();
        packages.dedup();
        packages
    }

    /// What failed, and how often.
    pub(crate) fn failures(&self) -> Vec<(Probe, usize, String)> {
        let mut failures: Vec<_> = self
            .figures
            .iter()
            .filter_map(|(probe, rounds)| {
                let complaints = rounds.iter().filter_map(|round| match round {
                    Err(Absence::Failed(complaint)) => Some(complaint),
                    _ => None,
                });
                let complaints: Vec<&String> = complaints.collect();
                let first = complaints.first()?;
                Some((*probe, complaints.len(), (*first).clone()))
            })
            .collect();
        failures.sort_by_key(|(probe, ..)| probe.name());
        failures
    }

    /// The median of the rounds' slowest in a hundred, in microseconds.
    fn p99_us(&self, probe: &Probe) -> Option<f64> {
        let rounds = self.rounds(probe).iter().flatten();
        median(&rounds.filter_map(|figure| figure.p99_us).collect::<Vec<_>>())
    }

    /// The slowest in a hundred as so many times the median of the same round.
    fn tails(&self, probe: &Probe) -> Vec<f64> {
        let rounds = self.rounds(probe).iter().flatten();
        rounds
            .filter_map(|figure| Some(figure.p99_us? / figure.value))
            .collect()
    }
}

/// A row with its figures.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) ours: Result<Summary, String>,
    pub(crate) theirs: Option<Result<Summary, String>>,
    pub(crate) ratio: Option<Summary>,
    /// The slowest in a hundred, in microseconds, if that is what the row is about.
    p99_us: Option<f64>,
    /// Nothing promised, or nothing measured.
    pub(crate) met: Option<bool>,
}

impl Verdict {
    pub(crate) fn of(row: &Row, found: &Found) -> Self {
        let summary = |probe: &Probe| found.summary(probe).ok_or_else(|| excuse(found.absence(probe)));
        let ours = summary(&row.ours);
        let theirs = row.against.as_ref().map(summary);
        let ratio = match (&row.against, row.must) {
            (_, Must::TailAtMostTimes(_)) => found.tails(&row.ours),
            (Some(against), _) => ratios(&found.values(&row.ours), &found.values(against)),
            (None, _) => Vec::new(),
        };
        let ratio = Summary::of(&ratio);
        let less_is_better = row.ours.quantity == Quantity::Time;
        let of_ratio = |holds: &dyn Fn(f64) -> bool| ratio.map(|ratio| holds(ratio.median));
        let of_ours = |holds: &dyn Fn(f64) -> bool| ours.as_ref().ok().map(|ours| holds(ours.median));
        let met = match row.must {
            Must::AtMostTimes(most) | Must::TailAtMostTimes(most) => of_ratio(&|ratio| ratio <= most),
            Must::AtLeastTimes(least) => of_ratio(&|ratio| ratio >= least),
            Must::AtMost(most) => of_ours(&|value| value <= most),
            Must::AtLeast(least) => of_ours(&|value| value >= least),
            Must::Ahead if less_is_better => of_ratio(&|ratio| ratio < 1.0),
            Must::Ahead => of_ratio(&|ratio| ratio > 1.0),
            Must::Level if less_is_better => of_ratio(&|ratio| ratio <= 1.1),
            Must::Level => of_ratio(&|ratio| ratio >= 0.9),
            Must::Nothing => None,
        };
        let is_about_tail = matches!(row.must, Must::TailAtMostTimes(_));
        Self {
            ours,
            theirs,
            ratio,
            p99_us: is_about_tail.then(|| found.p99_us(&row.ours)).flatten(),
            met,
        }
    }

    /// The cells of the row, behind its title.
    pub(crate) fn cells(&self, row: &Row) -> [String; 5] {
        let quantity = row.ours.quantity;
        let show = |side: &Result<Summary, String>| match side {
            Ok(summary) => quantity.show(summary.median),
            Err(excuse) => excuse.clone(),
        };
        let theirs = match (&row.against, &self.theirs) {
            (Some(probe), Some(side)) => format!("{} ({})", show(side), probe.name()),
            _ => "–".to_owned(),
        };
        let ours = match self.p99_us {
            Some(p99_us) => format!("{} (P50 {})", quantity.show(p99_us), show(&self.ours)),
            None => show(&self.ours),
        };
        [
            ours,
            theirs,
            self.ratio.map_or("–".to_owned(), show_ratio),
            promise(row.must, quantity),
            match self.met {
                Some(true) => "yes",
                Some(false) => "**no**",
                None => "–",
            }
            .to_owned(),
        ]
    }
}

fn show_ratio(ratio: Summary) -> String {
    let Summary { median, least, most } = ratio;
    let text = format!("{} ×", significant(median));
    if least == most {
        return text;
    }
    format!("{text} ({}–{})", significant(least), significant(most))
}

/// What a row promises, for people.
fn promise(must: Must, quantity: Quantity) -> String {
    match must {
        Must::AtMostTimes(most) => format!("≤ {most} ×"),
        Must::AtLeastTimes(least) => format!("≥ {least} ×"),
        Must::AtMost(most) => format!("≤ {}", quantity.show(most)),
        Must::AtLeast(least) => format!("≥ {}", quantity.show(least)),
        Must::TailAtMostTimes(most) => format!("≤ {most} × P50"),
        Must::Ahead => "ahead".to_owned(),
        Must::Level => "level".to_owned(),
        Must::Nothing => "–".to_owned(),
    }
}

fn excuse(absence: Option<&Absence>) -> String {
    match absence {
        Some(Absence::NotInstalled(_)) => "not installed".to_owned(),
        Some(Absence::NeedsRoot) => "needs root".to_owned(),
        Some(Absence::Failed(_)) => "failed".to_owned(),
        None => "not measured".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::*;

    fn figure(value: f64, p99_us: Option<f64>) -> Result<Figure, Absence> {
        Ok(Figure { value, p99_us })
    }

    fn row(title: &str) -> Row {
        let all = rows::all();
        let mut rows = all.iter().flat_map(|one| &one.rows);
        rows.find(|row| row.title.contains(title))
            .expect("there is such a row")
            .clone()
    }

    #[test]
    fn a_promise_is_judged_by_the_median_of_the_rounds_ratios() {
        let row = Row {
            must: Must::AtMostTimes(2.0),
            ..row("ib_write_lat")
        };
        let against = row.against.expect("it is compared");
        let mut found = Found::default();
        for (ours, bare) in [(1.0, 0.5), (9.0, 1.0), (1.2, 0.8)] {
            found.add(row.ours, figure(ours, None));
            found.add(against, figure(bare, None));
        }
        let verdict = Verdict::of(&row, &found);
        assert_eq!(verdict.met, Some(true));
        assert_eq!(verdict.cells(&row)[2], "2.00 × (1.50–9.00)");
        found.add(row.ours, figure(3.0, None));
        found.add(against, figure(1.0, None));
        assert_eq!(Verdict::of(&row, &found).met, Some(false));
    }

    #[test]
    fn a_tail_is_compared_with_the_median_of_its_own_round() {
        let row = Row {
            must: Must::TailAtMostTimes(3.0),
            ..row("P99")
        };
        let mut found = Found::default();
        found.add(row.ours, figure(1.0, Some(2.5)));
        assert_eq!(Verdict::of(&row, &found).met, Some(true));
        found.add(row.ours, figure(1.0, Some(5.0)));
        assert_eq!(Verdict::of(&row, &found).met, Some(false));
    }

    #[test]
    fn what_is_not_installed_says_so_and_is_not_judged() {
        let row = row("ib_send_bw");
        let mut found = Found::default();
        found.add(row.ours, Err(Absence::NotInstalled("perftest")));
        let verdict = Verdict::of(&row, &found);
        assert_eq!(verdict.met, None);
        assert_eq!(verdict.cells(&row)[0], "not installed");
        assert_eq!(found.missing_packages(), ["perftest"]);
    }
}
