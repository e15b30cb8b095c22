//! Sets of packet numbers that are mostly consecutive.

use super::packet::Held;
use std::collections::BTreeMap;

/// Disjoint ranges that do not touch each other: the first number, and one past the last.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u32, u32>);

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Held> {
        self.0.iter().map(|(first, end)| (*first, *end))
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        let before = self.0.range(..=number).next_back();
        before.is_some_and(|(_, end)| number < *end)
    }

    /// Adds a range, and tells which parts of it are new; the range that it is in now.
    pub(super) fn insert(&mut self, first: u32, end: u32, mut new: impl FnMut(Held)) -> Held {
        let mut whole = (first, end);
        if first >= end {
            return whole;
        }
        let before = self
            .0
            .range(..first)
            .next_back()
            .map(|(first, end)| (*first, *end));
        let mut from = first;
        if let Some((known, known_end)) = before.filter(|(_, known_end)| *known_end >= first) {
            whole = (known, end.max(known_end));
            from = known_end;
        }
        while let Some((known, known_end)) = self.0.range(first..=end).next().map(|(a, b)| (*a, *b)) {
            if from < known {
                new((from, known));
            }
            from = from.max(known_end);
            whole.1 = whole.1.max(known_end);
            self.0.remove(&known);
        }
        if from < end {
            new((from, end));
        }
        self.0.insert(whole.0, whole.1);
        whole
    }

    /// Takes out the range that begins with this number; one past its last.
    pub(super) fn take_at(&mut self, first: u32) -> Option<u32> {
        self.0.remove(&first)
    }

    /// Forgets everything before this number.
    pub(super) fn forget_before(&mut self, number: u32) {
        while let Some(entry) = self.0.first_entry().filter(|entry| *entry.key() < number) {
            let end = entry.remove();
            if end > number {
                self.0.insert(number, end);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic_netem::Prng;

    #[test]
    fn it_agrees_with_a_plain_set() {
        for seed in 0..200 {
            let mut prng = Prng::new(seed);
            let (mut ranges, mut plain) = (Ranges::default(), std::collections::BTreeSet::new());
            for _ in 0..60 {
                let first = prng.below(100) as u32;
                let end = first + prng.below(12) as u32;
                let mut told = Vec::new();
                ranges.insert(first, end, |(first, end)| told.extend(first..end));
                let expected: Vec<u32> = (first..end).filter(|number| !plain.contains(number)).collect();
                assert_eq!(told, expected, "seed {seed}");
                plain.extend(first..end);
                if prng.percent(5) {
                    ranges.forget_before(first);
                    plain.retain(|number| *number >= first);
                }
                let listed: Vec<u32> = ranges.iter().flat_map(|(first, end)| first..end).collect();
                assert_eq!(listed, plain.iter().copied().collect::<Vec<_>>(), "seed {seed}");
                assert!((0..120).all(|number| ranges.contains(number) == plain.contains(&number)));
            }
            let touching = ranges
                .iter()
                .zip(ranges.iter().skip(1))
                .any(|(one, next)| one.1 >= next.0);
            assert!(!touching, "seed {seed}");
        }
    }
}
