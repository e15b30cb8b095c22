//! Measured latencies, and what can honestly be said of them.
//!
//! A percentile is only reported if there were enough samples for one of them to lie beyond it: the 99th of four would
//! be the largest under another name. The smallest, the largest and the mean are exact. Percentiles are samples as long
//! as there are few; of more samples than are kept, they have three digits.

use hdrhistogram::Histogram;
use serde_json::Value;
use std::time::Duration;

/// The longest latency told apart from longer ones.
const LONGEST_NS: u64 = 60_000_000_000;

/// Samples that are kept, so that percentiles of a few are samples themselves.
const MAX_KEPT: usize = 4096;

/// Percentiles by name, each with its quantile and the samples it takes.
const PERCENTILES: [(&str, f64, u64); 4] = [
    ("p50", 0.5, 2),
    ("p90", 0.9, 10),
    ("p99", 0.99, 100),
    ("p99_9", 0.999, 1000),
];

/// Latencies and losses.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
    /// The samples themselves, the first [`MAX_KEPT`] of them.
    kept: Vec<u64>,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
    pub(crate) lost: u64,
}

/// Samples between two latencies.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Bin {
    pub(crate) from_ns: f64,
    pub(crate) to_ns: f64,
    pub(crate) count: u64,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Latencies {
            histogram: histogram.expect("the bounds are in order and three digits are allowed"),
            kept: Vec::with_capacity(MAX_KEPT),
            min_ns: u64::MAX,
            max_ns: 0,
            sum_ns: 0,
            lost: 0,
        }
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(ns);
        if self.kept.len() < MAX_KEPT {
            self.kept.push(ns);
        }
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns);
    }

    pub(crate) fn samples(&self) -> u64 {
        self.histogram.len()
    }

    /// Names and values in nanoseconds; none where there are too few samples.
    pub(crate) fn summary(&self) -> [(&'static str, Option<u64>); 7] {
        let samples = self.samples();
        let some = |value: u64| (samples > 0).then_some(value);
        let mean_ns = self.sum_ns.checked_div(u128::from(samples)).unwrap_or(0) as u64;
        let mut sorted = self.kept.clone();
        sorted.sort_unstable();
        let [p50, p90, p99, p99_9] = PERCENTILES.map(|(name, quantile, enough)| {
            let value = (samples >= enough).then(|| self.percentile(&sorted, quantile));
            (name, value)
        });
        [
            ("min", some(self.min_ns)),
            p50,
            p90,
            p99,
            p99_9,
            ("max", some(self.max_ns)),
            ("mean", some(mean_ns)),
        ]
    }

    /// The smallest sample that this share of all does not exceed, or the end of its bucket if not all samples are kept.
    fn percentile(&self, sorted: &[u64], quantile: f64) -> u64 {
        if sorted.len() as u64 == self.samples() {
            let rank = (quantile * sorted.len() as f64).ceil() as usize;
            return sorted[rank.clamp(1, sorted.len()) - 1];
        }
        // The end of a bucket may lie beyond the largest sample.
        self.histogram
            .value_at_quantile(quantile)
            .clamp(self.min_ns, self.max_ns.max(self.min_ns))
    }

    pub(crate) fn as_json(&self) -> Value {
        self.summary()
            .into_iter()
            .map(|(name, ns)| (name.to_owned(), Value::from(ns)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// The samples in so many bins, each as many times as wide as the one before; the last is where the largest lies.
    pub(crate) fn bins(&self, count: usize) -> Vec<Bin> {
        if self.samples() == 0 || count == 0 {
            return Vec::new();
        }
        let (least, most) = (self.min_ns.max(1) as f64, self.max_ns.max(1) as f64);
        // Samples that hardly differ are not spread out over all bins.
        let ratio = (most / least).max(1.2).powf(1.0 / count as f64);
        let edge = |index: usize| least * ratio.powf(index as f64);
        let mut bins: Vec<Bin> = (0..count)
            .map(|index| Bin {
                from_ns: edge(index),
                to_ns: edge(index + 1),
                count: 0,
            })
            .collect();
        for step in self.histogram.iter_recorded() {
            let value = (step.value_iterated_to() as f64).clamp(least, most);
            let index = ((value / least).ln() / ratio.ln()).floor().max(0.0) as usize;
            bins[index.min(count - 1)].count += step.count_at_value();
        }
        let used = bins
            .iter()
            .rposition(|bin| bin.count > 0)
            .map_or(0, |last| last + 1);
        bins.truncate(used);
        bins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn of(samples: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::new();
        for ns in samples {
            latencies.record(Duration::from_nanos(ns));
        }
        latencies
    }

    #[test]
    fn the_largest_is_a_sample_and_percentiles_need_enough_of_them() {
        let four = of([551_941, 556_541, 560_003, 2_156_537]).summary();
        let value = |name| {
            four.iter()
                .find(|(found, _)| *found == name)
                .and_then(|(_, ns)| *ns)
        };
        assert_eq!((value("min"), value("max")), (Some(551_941), Some(2_156_537)));
        assert_eq!(value("mean"), Some((551_941 + 556_541 + 560_003 + 2_156_537) / 4));
        assert_eq!(value("p50"), Some(556_541), "a sample, not the end of a bucket");
        assert_eq!((value("p90"), value("p99"), value("p99_9")), (None, None, None));
    }

    #[test]
    fn no_percentile_lies_beyond_the_largest() {
        for samples in [2, 10, 100, 1000] {
            let found = of((0..samples).map(|index| 1_000_003 + index)).summary();
            let max = found[5].1;
            assert!(found.iter().all(|(_, ns)| *ns <= max), "{found:?}");
            let told = found[1..5].iter().filter(|(_, ns)| ns.is_some()).count();
            assert_eq!(told, samples.ilog10() as usize + 1);
        }
        assert!(of([]).summary().iter().all(|(_, ns)| ns.is_none()));
    }

    #[test]
    fn percentiles_of_few_samples_are_samples() {
        for count in [2, 3, 10, 99, 1000, MAX_KEPT as u64] {
            let samples = (0..count).map(|index| 1_000_003 + index * 1_237);
            let found = of(samples.clone()).summary();
            for (name, ns) in &found[..6] {
                assert!(
                    ns.is_none_or(|ns| samples.clone().any(|sample| sample == ns)),
                    "{name} of {count}: {ns:?}"
                );
            }
        }
        let found = of((0..MAX_KEPT as u64 + 1).map(|index| 1_000_003 + index)).summary();
        assert!(
            found[1].1.is_some_and(|ns| ns.abs_diff(1_002_051) < 1_000),
            "{found:?}"
        );
    }

    #[test]
    fn every_sample_is_in_a_bin() {
        for samples in [
            vec![5],
            vec![1, 1, 1],
            vec![100, 101, 5_000_000],
            (1..5000).collect(),
        ] {
            let count = samples.len() as u64;
            let bins = of(samples).bins(12);
            assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), count);
            assert!(bins.len() <= 12 && bins.last().is_some_and(|bin| bin.count > 0));
        }
        assert_eq!(of([]).bins(12), []);
    }
}
