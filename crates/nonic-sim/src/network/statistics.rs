//! Figures that describe many values by one.

/// Jain's index.
pub(super) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 {
        return 0.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

/// The value below which so many of a thousand are, of sorted ones.
pub(super) fn rank<T: Copy + Default>(sorted: &[T], of_1000: usize) -> T {
    let Some(last) = sorted.len().checked_sub(1) else {
        return T::default();
    };
    sorted[(sorted.len() * of_1000 / 1000).min(last)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_one_in_n_for_a_monopoly() {
        assert_eq!(jain(&[3.0; 7]), 1.0);
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[]), 0.0);
    }

    #[test]
    fn ranks_are_of_what_is_there() {
        let values: Vec<u64> = (0..1000).collect();
        assert_eq!((rank(&values, 500), rank(&values, 999)), (500, 999));
        assert_eq!(rank::<u64>(&[], 500), 0);
        assert_eq!(rank(&[7], 999), 7);
    }
}
