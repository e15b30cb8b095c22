//! Allocates queue pair numbers: drawn at random from the NIC's blocks, and not reused for a while.

use crate::entropy::Entropy;
use crate::time::Time;
use nonic_wire::Qpn;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Queue pair numbers in a block. A process has whole blocks.
pub const QPNS_PER_BLOCK: u32 = 1 << 12;
const BLOCK: usize = QPNS_PER_BLOCK as usize;
/// How long the number of a destroyed queue pair rests. A peer's connection manager remembers the number for as long as
/// packets may be under way, about a second, and refuses a connection from it meanwhile ("stale connection").
const REST: Duration = Duration::from_secs(4);
/// Numbers that rest at a time, at most: what is known of destroyed queue pairs is bounded.
const MAX_RESTING: usize = 1 << 16;

/// The numbers of a NIC's queue pairs.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Each is the upper 12 bits of its numbers. Without one, the whole range is ours.
    blocks: Vec<u16>,
    /// How many queue pairs have numbers of a block.
    used: HashMap<u16, usize>,
    /// Numbers of queue pairs that were destroyed lately.
    resting: HashSet<u32>,
    /// The same with the end of each one's rest, the earliest first.
    rests: VecDeque<(Time, u32)>,
}

impl Numbers {
    pub(super) fn add_block(&mut self, block: u16) {
        self.blocks.push(block & 0xfff);
    }

    /// A number that is not `taken`, for the queue pair after `count` others; `None` if another block is needed.
    pub(super) fn draw(
        &self,
        entropy: &mut dyn Entropy,
        count: usize,
        taken: impl Fn(u32) -> bool,
    ) -> Option<Qpn> {
        // With a quarter free a random draw succeeds within a few tries. If all fail, hardly any number is free that does not rest.
        const TRIES: usize = 64;
        let space = match self.blocks.len() {
            0 => 1 << 24,
            blocks => blocks * BLOCK,
        };
        if count >= space / 4 * 3 {
            return None;
        }
        for _ in 0..TRIES {
            let draw = entropy.next_u32();
            let value = match self.blocks.len() {
                0 => draw & 0xff_ffff,
                blocks => {
                    let block = self.blocks[(draw >> 12) as usize % blocks];
                    (u32::from(block) << 12) | (draw & 0xfff)
                }
            };
            let reserved = value < 2 || value == Qpn::MULTICAST.value() || self.resting.contains(&value);
            if !reserved && !taken(value) {
                return Some(Qpn::new(value));
            }
        }
        None
    }

    /// A queue pair has this number now.
    pub(super) fn take(&mut self, qpn: Qpn) {
        *self.used.entry(block_of(qpn)).or_default() += 1;
    }

    /// Its queue pair is gone: the number rests from now on.
    pub(super) fn retire(&mut self, now: Time, qpn: Qpn) {
        // A number that was chosen, not drawn, may rest already.
        if self.resting.insert(qpn.value()) {
            self.rests.push_back((now + REST, qpn.value()));
        }
        let block = block_of(qpn);
        if let Some(used) = self.used.get_mut(&block) {
            *used -= 1;
            if *used == 0 {
                self.used.remove(&block);
            }
        }
    }

    /// A number that has rested for long enough, or has to do because too many rest.
    pub(super) fn rested(&mut self, now: Time) -> Option<u32> {
        let (end, number) = *self.rests.front()?;
        if end > now && self.rests.len() <= MAX_RESTING {
            return None;
        }
        self.rests.pop_front();
        self.resting.remove(&number);
        Some(number)
    }

    /// Gives back a block that no queue pair needs: not the first, which peers know us by, and only while the others
    /// would do for twice the `count` there are, so that blocks do not come and go. Some of its numbers may still rest:
    /// if the block comes back, they are not drawn.
    pub(super) fn give_back(&mut self, count: usize) -> Option<u16> {
        if self.blocks.len() < 2 || count > (self.blocks.len() - 1) * BLOCK / 8 * 3 {
            return None;
        }
        let spare = self
            .blocks
            .iter()
            .skip(1)
            .position(|block| !self.used.contains_key(block))?;
        Some(self.blocks.swap_remove(1 + spare))
    }
}

fn block_of(qpn: Qpn) -> u16 {
    (qpn.value() >> 12) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::SeededEntropy;

    /// As many numbers as can be had.
    fn fill(numbers: &mut Numbers, entropy: &mut SeededEntropy) -> Vec<Qpn> {
        let mut taken: Vec<Qpn> = Vec::new();
        while let Some(qpn) = numbers.draw(entropy, taken.len(), |value| taken.contains(&Qpn::new(value))) {
            numbers.take(qpn);
            taken.push(qpn);
        }
        taken
    }

    #[test]
    fn blocks_come_back_when_nobody_needs_them_and_the_first_stays() {
        let (mut numbers, mut entropy) = (Numbers::default(), SeededEntropy::new(1));
        for block in [7, 8, 9] {
            numbers.add_block(block);
        }
        let mut taken = fill(&mut numbers, &mut entropy);
        assert!(taken.len() > 3 * BLOCK / 2, "{}", taken.len());
        assert_eq!(numbers.give_back(taken.len()), None, "all are in use");
        // The last one left is of the second block.
        taken.sort_by_key(|qpn| block_of(*qpn) == 8);
        let mut given_back = Vec::new();
        while let Some(qpn) = (taken.len() > 1).then(|| taken.remove(0)) {
            numbers.retire(Time::ZERO, qpn);
            given_back.extend(numbers.give_back(taken.len()));
        }
        assert_eq!(given_back, [9], "one is needed, one is the first");
        numbers.retire(Time::ZERO, taken[0]);
        assert_eq!(numbers.give_back(0), Some(8));
        assert_eq!(numbers.give_back(0), None);
    }

    #[test]
    fn a_number_rests() {
        let (mut numbers, mut entropy) = (Numbers::default(), SeededEntropy::new(1));
        numbers.add_block(5);
        let qpn = numbers.draw(&mut entropy, 0, |_| false).expect("all are free");
        numbers.take(qpn);
        numbers.retire(Time::ZERO, qpn);
        for _ in 0..10 * BLOCK {
            assert_ne!(numbers.draw(&mut entropy, 0, |_| false), Some(qpn));
        }
        assert_eq!(numbers.rested(Time::ZERO + REST / 2), None);
        assert_eq!(numbers.rested(Time::ZERO + REST), Some(qpn.value()));
        let other = |value| value != qpn.value();
        let drawn = (0..BLOCK).find_map(|_| numbers.draw(&mut entropy, 0, other));
        assert_eq!(drawn, Some(qpn));
    }

    #[test]
    fn numbers_that_rest_are_as_good_as_taken() {
        let (mut numbers, mut entropy) = (Numbers::default(), SeededEntropy::new(1));
        numbers.add_block(4);
        for number in 0..BLOCK as u32 {
            numbers.retire(Time::ZERO, Qpn::new((4 << 12) | number));
        }
        assert_eq!(
            numbers.draw(&mut entropy, 0, |_| false),
            None,
            "another block is needed"
        );
        numbers.add_block(5);
        let drawn = numbers
            .draw(&mut entropy, 0, |_| false)
            .expect("one of the new block");
        assert_eq!(block_of(drawn), 5);
    }

    #[test]
    fn only_so_many_rest() {
        let mut numbers = Numbers::default();
        for number in 0..=MAX_RESTING as u32 {
            numbers.retire(Time::ZERO, Qpn::new(number + 2));
        }
        assert_eq!(numbers.rested(Time::ZERO), Some(2));
        assert_eq!(numbers.rested(Time::ZERO), None);
    }
}
