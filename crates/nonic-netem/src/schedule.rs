//! An event queue: things with a time each, which come out by their time.
//!
//! Things due at the same instant come out in the order they went in, so a simulated run is a function of its inputs and
//! packets of one moment keep their order. The schedule reads no clock: its caller says what time it is, or jumps to the
//! next event.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The queue.
#[derive(Clone, Debug)]
pub struct Schedule<T> {
    /// Things that were due after all others when they came: most packets, unless there is jitter. They need no heap.
    in_order: VecDeque<Entry<T>>,
    /// Things that overtake.
    overtaking: BinaryHeap<Reverse<Entry<T>>>,
    /// The number of the next one: first come, first served.
    number: u64,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    at_ns: u64,
    number: u64,
    what: T,
}

impl<T> Schedule<T> {
    /// An empty one.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// An empty one that allocates nothing until it holds more than `capacity` things.
    pub fn with_capacity(capacity: usize) -> Self {
        Schedule {
            in_order: VecDeque::with_capacity(capacity),
            overtaking: BinaryHeap::with_capacity(capacity),
            number: 0,
        }
    }

    /// Adds something that happens at `at_ns`.
    pub fn push(&mut self, at_ns: u64, what: T) {
        let number = self.number;
        let entry = Entry { at_ns, number, what };
        self.number += 1;
        match self.in_order.back() {
            Some(last) if at_ns < last.at_ns => self.overtaking.push(Reverse(entry)),
            _ => self.in_order.push_back(entry),
        }
    }

    /// When the next thing happens.
    pub fn next_at(&self) -> Option<u64> {
        let first = self.in_order.front().map(|entry| entry.at_ns);
        let other = self.overtaking.peek().map(|entry| entry.0.at_ns);
        match (first, other) {
            (Some(first), Some(other)) => Some(first.min(other)),
            (first, other) => first.or(other),
        }
    }

    /// The next thing, and when it happens.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let overtakes = match (self.in_order.front(), self.overtaking.peek()) {
            (Some(first), Some(Reverse(other))) => other < first,
            (first, _) => first.is_none(),
        };
        let entry = match overtakes {
            true => self.overtaking.pop().map(|entry| entry.0),
            false => self.in_order.pop_front(),
        };
        entry.map(|entry| (entry.at_ns, entry.what))
    }

    /// The first of those that are due.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<T> {
        if self.next_at()? > now_ns {
            return None;
        }
        self.pop().map(|(_, what)| what)
    }
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    #[test]
    fn earlier_first_and_equals_in_order_of_arrival() {
        let mut schedule = Schedule::new();
        for (at, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
            schedule.push(at, name);
        }
        let order: String = std::iter::from_fn(|| schedule.pop())
            .map(|(_, name)| name)
            .collect();
        assert_eq!(order, "abcd");
    }

    #[test]
    fn they_come_by_their_time_and_then_by_their_order() {
        let mut prng = Prng::new(1);
        let mut schedule = Schedule::new();
        let mut expected = Vec::new();
        for number in 0..5_000 {
            let due = prng.below(500);
            schedule.push(due, (due, number));
            expected.push((due, number));
        }
        expected.sort_unstable();
        let mut found = Vec::new();
        for now in 0..500 {
            while let Some(thing) = schedule.pop_due(now) {
                assert_eq!(thing.0, now, "neither early nor late");
                found.push(thing);
            }
        }
        assert_eq!(found, expected);
        assert_eq!(schedule.next_at(), None);
    }

    #[test]
    fn nothing_comes_before_its_time() {
        let mut schedule = Schedule::new();
        schedule.push(10, 'b');
        schedule.push(5, 'a');
        assert_eq!((schedule.next_at(), schedule.pop_due(4)), (Some(5), None));
        assert_eq!((schedule.pop_due(7), schedule.pop_due(7)), (Some('a'), None));
        assert_eq!((schedule.pop_due(10), schedule.next_at()), (Some('b'), None));
    }
}
