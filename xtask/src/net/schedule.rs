//! Packets on their way, by when they arrive. Nothing is allocated for a packet once it has grown to its size.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Things with a time each.
#[derive(Debug)]
pub(super) struct Schedule<T> {
    /// Packets that are due after all that came before them: most, unless there is jitter.
    in_order: VecDeque<Entry<T>>,
    /// Packets that overtake.
    overtaking: BinaryHeap<Reverse<Entry<T>>>,
    /// Of the next one: first come, first served.
    number: u64,
}

#[derive(Debug)]
struct Entry<T> {
    due_ns: u64,
    number: u64,
    thing: T,
}

impl<T> Schedule<T> {
    pub(super) fn new() -> Self {
        Self {
            in_order: VecDeque::with_capacity(4096),
            overtaking: BinaryHeap::with_capacity(4096),
            number: 0,
        }
    }

    pub(super) fn push(&mut self, due_ns: u64, thing: T) {
        let entry = Entry {
            due_ns,
            number: self.number,
            thing,
        };
        self.number += 1;
        match self.in_order.back() {
            Some(last) if due_ns < last.due_ns => self.overtaking.push(Reverse(entry)),
            _ => self.in_order.push_back(entry),
        }
    }

    /// When the next is due.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        let first = self.in_order.front().map(|entry| entry.due_ns);
        let other = self.overtaking.peek().map(|entry| entry.0.due_ns);
        match (first, other) {
            (Some(first), Some(other)) => Some(first.min(other)),
            (first, other) => first.or(other),
        }
    }

    /// The first of those that are due.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<T> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        let overtakes = match (self.in_order.front(), self.overtaking.peek()) {
            (Some(first), Some(Reverse(other))) => other < first,
            (first, _) => first.is_none(),
        };
        let entry = match overtakes {
            true => self.overtaking.pop().map(|entry| entry.0),
            false => self.in_order.pop_front(),
        };
        entry.map(|entry| entry.thing)
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
        (self.due_ns, self.number).cmp(&(other.due_ns, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    #[test]
    fn they_come_by_their_time_and_then_by_their_order() {
        let mut random = Random::new(1, 0);
        let mut schedule = Schedule::new();
        let mut expected = Vec::new();
        for number in 0..5_000 {
            let due = random.word() % 500;
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
        assert_eq!(schedule.next_due_ns(), None);
    }

    #[test]
    fn nothing_comes_before_its_time() {
        let mut schedule = Schedule::new();
        schedule.push(10, 'b');
        schedule.push(5, 'a');
        assert_eq!((schedule.next_due_ns(), schedule.pop_due(4)), (Some(5), None));
        assert_eq!((schedule.pop_due(7), schedule.pop_due(7)), (Some('a'), None));
        assert_eq!((schedule.pop_due(10), schedule.next_due_ns()), (Some('b'), None));
    }
}
