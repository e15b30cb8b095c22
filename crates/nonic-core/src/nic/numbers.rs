//! Which numbers queue pairs get: drawn at random from the blocks of the NIC, and not again for a while.

use crate::entropy::Entropy;
use nonic_wire::Qpn;
use std::collections::{HashMap, VecDeque};

/// Numbers in a block.
const BLOCK: usize = 1 << 12;
/// Numbers that rest at a time: half of the least that a NIC may have. A peer's connection manager remembers one for about
/// a second and refuses it meanwhile, and a program may make a thousand connections in that time.
const MAX_RETIRED: usize = BLOCK / 2;

/// The numbers of a NIC's queue pairs.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Each is the upper 12 bits of its numbers. Without one, the whole range is ours.
    blocks: Vec<u16>,
    /// How many queue pairs have numbers of a block.
    used: HashMap<u16, usize>,
    /// Numbers of queue pairs that were destroyed lately: a peer's connection manager may still remember them.
    retired: VecDeque<u32>,
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
        // With three quarters free a random draw succeeds within a few tries.
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
            let reserved = value < 2 || value == Qpn::MULTICAST.value() || self.retired.contains(&value);
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

    /// Its queue pair is gone: the number rests. Answers one that has rested for long enough.
    pub(super) fn retire(&mut self, qpn: Qpn) -> Option<u32> {
        let full = self.retired.len() >= MAX_RETIRED;
        let rested = if full { self.retired.pop_front() } else { None };
        self.retired.push_back(qpn.value());
        let block = block_of(qpn);
        if let Some(used) = self.used.get_mut(&block) {
            *used -= 1;
            if *used == 0 {
                self.used.remove(&block);
            }
        }
        rested
    }

    /// Gives back a block that no queue pair needs: not the first, which others know us by, and only while the
    /// rest would do for twice the `count` there are, so that blocks do not come and go.
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
            numbers.retire(qpn);
            given_back.extend(numbers.give_back(taken.len()));
        }
        assert_eq!(given_back, [9], "one is needed, one is the first");
        numbers.retire(taken[0]);
        assert_eq!(numbers.give_back(0), Some(8));
        assert_eq!(numbers.give_back(0), None);
    }

    #[test]
    fn a_number_rests() {
        let (mut numbers, mut entropy) = (Numbers::default(), SeededEntropy::new(1));
        numbers.add_block(5);
        let qpn = numbers.draw(&mut entropy, 0, |_| false).expect("all are free");
        numbers.take(qpn);
        numbers.retire(qpn);
        for _ in 0..10 * BLOCK {
            assert_ne!(numbers.draw(&mut entropy, 0, |_| false), Some(qpn));
        }
    }
}
