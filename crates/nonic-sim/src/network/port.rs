//! Ports: the queue in front of a cable, and the memory that the queues of a switch share.

use super::topology::Cable;
use nonic_netem::{Marking, Prng};
use std::collections::VecDeque;

/// The owner of a port.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Host(usize),
    Switch(usize),
}

/// A queue and the cable behind it.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) owner: Node,
    pub(super) leads_to: Node,
    pub(super) cable: Cable,
    /// Packets (where they are kept, and how long they are); the first is on its way into the cable.
    queue: VecDeque<(u32, u32)>,
    /// Bytes in the queue.
    pub(super) queued: u64,
    pub(super) is_up: bool,
    /// Distinguishes what was in the cable before it was cut.
    pub(super) generation: u32,
    /// Of a million packets, so many are lost on the way.
    pub(super) lost_ppm: u32,
    pub(super) counts: PortCounts,
}

/// What happened at a port.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct PortCounts {
    pub(super) carried_bytes: u64,
    pub(super) dropped: u64,
    pub(super) marked: u64,
    pub(super) longest: u64,
}

impl Port {
    pub(super) fn new(owner: Node, leads_to: Node, cable: Cable) -> Port {
        Port {
            owner,
            leads_to,
            cable,
            queue: VecDeque::new(),
            queued: 0,
            is_up: true,
            generation: 0,
            lost_ppm: 0,
            counts: PortCounts::default(),
        }
    }

    /// A packet joins the queue; whether it is the only one, so that the cable takes it at once.
    pub(super) fn push(&mut self, at: u32, bytes: u32) -> bool {
        self.queue.push_back((at, bytes));
        self.queued += u64::from(bytes);
        self.counts.longest = self.counts.longest.max(self.queued);
        self.queue.len() == 1
    }

    /// The first packet is in the cable.
    pub(super) fn pop(&mut self) -> Option<(u32, u32)> {
        let (at, bytes) = self.queue.pop_front()?;
        self.queued -= u64::from(bytes);
        self.counts.carried_bytes += u64::from(bytes);
        Some((at, bytes))
    }

    /// How long the packet takes that is first now.
    pub(super) fn next_takes_ns(&self) -> Option<u64> {
        self.queue
            .front()
            .map(|(_, bytes)| self.cable.rate.occupied_ns(u64::from(*bytes)))
    }

    /// The cable was cut: where the packets are kept that waited for it.
    pub(super) fn cut(&mut self) -> Vec<u32> {
        self.is_up = false;
        self.generation += 1;
        self.counts.dropped += self.queue.len() as u64;
        self.queued = 0;
        self.queue.drain(..).map(|(at, _)| at).collect()
    }
}

/// The memory of a switch.
#[derive(Copy, Clone, Debug)]
pub(super) struct SharedBuffer {
    pub(super) size: u64,
    pub(super) used: u64,
    pub(super) marking: Option<Marking>,
}

/// What a switch does with a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Take,
    Mark,
    Drop,
}

impl SharedBuffer {
    /// A queue may be as long as the memory that is free: one that is full leaves half of it to others, two a third
    /// (dynamic thresholds, as most switches have them).
    pub(super) fn judge(&self, queued: u64, bytes: u32, markable: bool, prng: &mut Prng) -> Verdict {
        let free = self.size.saturating_sub(self.used);
        let bytes = u64::from(bytes);
        if bytes > free || queued + bytes > free {
            return Verdict::Drop;
        }
        match self.marking {
            Some(marking) if markable && queued > marking.low && prng.ppm(marking.ppm(queued)) => {
                Verdict::Mark
            }
            _ => Verdict::Take,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_queue_takes_half_of_the_memory_and_two_take_two_thirds() {
        let mut prng = Prng::new(1);
        let mut buffer = SharedBuffer {
            size: 90_000,
            used: 0,
            marking: None,
        };
        let mut queues = [0_u64; 2];
        for queue in [0, 1, 0, 1, 0, 1, 0, 1] {
            while buffer.judge(queues[queue], 100, true, &mut prng) == Verdict::Take {
                queues[queue] += 100;
                buffer.used += 100;
            }
            if queue == 0 && queues[1] == 0 {
                assert_eq!(queues[0], 45_000);
                // It drains to what it may have beside another.
                buffer.used -= 15_000;
                queues[0] = 30_000;
            }
        }
        assert_eq!(queues, [30_000; 2]);
    }

    #[test]
    fn marks_become_more_with_the_queue_and_only_for_those_that_asked() {
        let buffer = SharedBuffer {
            size: 10_000_000,
            used: 0,
            marking: Some(Marking::USUAL),
        };
        let mut prng = Prng::new(2);
        let mut marks = |queued, markable| {
            let judged =
                (0..10_000).filter(|_| buffer.judge(queued, 100, markable, &mut prng) == Verdict::Mark);
            judged.count()
        };
        assert_eq!(marks(100_000, true), 0);
        assert!((900..1100).contains(&marks(250_000, true)), "a tenth at half way");
        assert_eq!(marks(400_000, true), 10_000);
        assert_eq!(marks(400_000, false), 0);
    }
}
