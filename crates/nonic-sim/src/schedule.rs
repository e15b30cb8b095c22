//! The event queue of a run, in virtual time.
//!
//! Events due at the same instant come out in the order they went in, so a run is a function of its inputs.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The queue.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    heap: BinaryHeap<Entry<T>>,
    sequence: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at_ns: u64,
    sequence: u64,
    what: T,
}

impl<T> Schedule<T> {
    pub(crate) fn new() -> Self {
        Schedule {
            heap: BinaryHeap::new(),
            sequence: 0,
        }
    }

    /// Adds something that happens at `at_ns`.
    pub(crate) fn push(&mut self, at_ns: u64, what: T) {
        self.sequence += 1;
        self.heap.push(Entry {
            at_ns,
            sequence: self.sequence,
            what,
        });
    }

    /// When the next thing happens.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.at_ns)
    }

    /// The next thing, and when it happens.
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        self.heap.pop().map(|entry| (entry.at_ns, entry.what))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap yields its greatest element: earlier is greater.
        (other.at_ns, other.sequence).cmp(&(self.at_ns, self.sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
