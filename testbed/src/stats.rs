//! Medians, spreads and ratios of what rounds found.

/// The middle of the values; between the two in the middle if there is none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The value that so large a part of them does not exceed.
pub fn quantile(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The summary of many values.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Summary {
    /// The middle of them.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

impl Summary {
    /// Nothing if there is no value.
    pub fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(values)?,
            least: values.iter().copied().min_by(f64::total_cmp)?,
            most: values.iter().copied().max_by(f64::total_cmp)?,
        })
    }
}

/// The ratio of each round in which both sides were measured: rounds are not mixed.
pub fn ratios(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Vec<f64> {
    let pairs = ours.iter().zip(theirs);
    pairs
        .filter_map(|(ours, theirs)| Some((*ours)? / (*theirs)?))
        .filter(|ratio| ratio.is_finite())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.99), Some(198.0));
        assert_eq!(quantile(&values, 0.5), Some(100.0));
        assert_eq!(quantile(&[7.0], 0.99), Some(7.0));
        assert_eq!(quantile(&[], 0.99), None);
    }

    #[test]
    fn a_summary_has_the_extremes() {
        let summary = Summary::of(&[3.0, 1.0, 2.0]);
        let expected = Summary {
            median: 2.0,
            least: 1.0,
            most: 3.0,
        };
        assert_eq!(summary, Some(expected));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn a_ratio_is_of_one_round_and_needs_both_sides() {
        let ours = [Some(4.0), None, Some(9.0), Some(1.0)];
        let theirs = [Some(2.0), Some(5.0), Some(3.0), None];
        assert_eq!(ratios(&ours, &theirs), [2.0, 3.0]);
        assert!(ratios(&[Some(1.0)], &[Some(0.0)]).is_empty());
    }
}
