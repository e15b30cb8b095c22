//! Another build of nonic beside this one: each measurement of nonic that the tables have, the two builds taking turns.
//!
//! It answers whether a change made anything slower. The builds follow each other directly and each round begins with the
//! other one, so that a machine that slows down slows both.

use super::measure::Bench;
use super::probe::{Probe, Quantity, significant};
use super::rows::Comparison;
use super::verdict::Found;
use serde_json::{Value, json};
use testbed::stats::{Summary, ratios};
use testbed::table::Table;

/// What both builds did.
pub(super) struct Builds {
    probes: Vec<Probe>,
    before: Found,
    now: Found,
}

impl Builds {
    /// Everything of nonic's own that the comparisons measure, each once.
    pub(super) fn new(comparisons: &[Comparison]) -> Self {
        let mut probes: Vec<Probe> = Vec::new();
        for probe in comparisons.iter().flat_map(Comparison::probes) {
            if probe.subject.is_nonic() && !probes.contains(&probe) {
                probes.push(probe);
            }
        }
        Self {
            probes,
            before: Found::default(),
            now: Found::default(),
        }
    }

    /// Measures everything once with each build.
    pub(super) fn measure_round(&mut self, before: &Bench<'_>, now: &Bench<'_>, round: usize) {
        for (index, probe) in self.probes.iter().enumerate() {
            let mut turns = [(before, &mut self.before), (now, &mut self.now)];
            turns.rotate_left((round + index) % 2);
            for (bench, found) in turns {
                found.add(*probe, bench.measure(probe));
            }
            let last = |found: &Found| found.values(probe).pop().flatten();
            eprintln!(
                "round {}: {:<50} {} → {}",
                round + 1,
                probe.name(),
                shown(probe, last(&self.before)),
                shown(probe, last(&self.now))
            );
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new(["", "before", "now", "now : before (least–most)", ""]);
        for probe in &self.probes {
            let median = |found: &Found| found.summary(probe).map(|summary| summary.median);
            let ratio = self.ratio(probe);
            table.add([
                probe.name(),
                shown(probe, median(&self.before)),
                shown(probe, median(&self.now)),
                ratio.map_or("–".to_owned(), |ratio| {
                    let [median, least, most] = [ratio.median, ratio.least, ratio.most].map(significant);
                    format!("{median} × ({least}–{most})")
                }),
                ratio.map_or("", |ratio| word(probe.quantity, ratio)).to_owned(),
            ]);
        }
        format!(
            "{}{}{}",
            table.columns(),
            failures("before", &self.before),
            failures("now", &self.now)
        )
    }

    /// For scripts.
    pub(super) fn json(&self, rounds: u32) -> Value {
        let row = |probe: &Probe| {
            json!({
                "name": probe.name(),
                "place": probe.place.word(),
                "unit": probe.quantity.unit(),
                "before": self.before.values(probe),
                "now": self.now.values(probe),
                "ratio": self.ratio(probe).map(|ratio| json!({
                    "median": ratio.median, "least": ratio.least, "most": ratio.most,
                })),
            })
        };
        json!({ "rounds": rounds, "rows": self.probes.iter().map(row).collect::<Vec<_>>() })
    }

    fn ratio(&self, probe: &Probe) -> Option<Summary> {
        Summary::of(&ratios(&self.now.values(probe), &self.before.values(probe)))
    }
}

/// What a reader wants to know of a ratio. A difference counts if every round shows it.
fn word(quantity: Quantity, ratio: Summary) -> &'static str {
    let less_is_better = quantity == Quantity::Time;
    match (ratio.most < 1.0, ratio.least > 1.0) {
        (true, _) if less_is_better => "faster",
        (_, true) if !less_is_better => "faster",
        (false, false) => "",
        _ => "slower",
    }
}

fn shown(probe: &Probe, value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| probe.quantity.show(value))
}

fn failures(build: &str, found: &Found) -> String {
    let line = |(probe, times, complaint): (Probe, usize, String)| {
        format!("\n{build}: failed {times} ×: {}: {complaint}\n", probe.name())
    };
    found.failures().into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::*;

    #[test]
    fn only_what_runs_on_nonic_is_compared_with_the_build_before() {
        let builds = Builds::new(&rows::all());
        let names: Vec<String> = builds.probes.iter().map(Probe::name).collect();
        assert!(
            names.iter().any(|name| name.contains("ib_write_lat")),
            "{names:?}"
        );
        assert!(
            names.iter().any(|name| name.contains("rc over nonic")),
            "{names:?}"
        );
        assert!(!names.iter().any(|name| name.contains("bare")), "{names:?}");
        assert!(!names.iter().any(|name| name.contains("libfabric")), "{names:?}");
    }

    #[test]
    fn a_difference_counts_if_every_round_shows_it() {
        let ratio = |least, most| Summary {
            median: 0.9,
            least,
            most,
        };
        assert_eq!(word(Quantity::Time, ratio(0.8, 0.95)), "faster");
        assert_eq!(word(Quantity::Rate, ratio(0.8, 0.95)), "slower");
        assert_eq!(word(Quantity::Bandwidth, ratio(1.1, 1.3)), "faster");
        assert_eq!(word(Quantity::Time, ratio(1.1, 1.3)), "slower");
        assert_eq!(word(Quantity::Time, ratio(0.8, 1.1)), "");
    }
}
