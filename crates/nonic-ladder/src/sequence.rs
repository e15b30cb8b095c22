//! Judges a packet by its sequence number: whether packets before it are missing, and whether it was seen already.
//!
//! The judgement is from where the packets were captured, which need not be where they were lost. A READ request takes
//! as many numbers as its answer has packets, and how many those are depends on a path MTU that packets do not name:
//! the next request may have any of the numbers that are possible.

use nonic_wire::{Headers, Operation, Psn, Service};
use std::collections::{BTreeSet, HashMap};

/// More missing numbers, or answers to READs, than this are not remembered for a queue pair.
const MAX_REMEMBERED: usize = 1 << 14;
/// The smallest path MTU.
const MIN_MTU: u32 = 256;

/// What a sequence number says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the next one, or says nothing.
    Next,
    /// So many before it were not seen.
    Gap(u32),
    /// It was missing, and others have overtaken it.
    Late,
    /// It was seen already.
    Again,
}

/// The sequence numbers of every queue pair's packets. `K` names a queue pair by its receiver.
#[derive(Clone, Debug)]
pub struct Sequences<K> {
    flows: HashMap<K, Flow>,
}

impl<K> Default for Sequences<K> {
    fn default() -> Self {
        Sequences {
            flows: HashMap::new(),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Flow {
    /// The numbers that the next request may have: the first and the last of them.
    next: Option<(Psn, Psn)>,
    missing: BTreeSet<u32>,
    answered: BTreeSet<u32>,
}

impl<K: std::hash::Hash + Eq> Sequences<K> {
    /// Takes note of a packet for a queue pair.
    pub fn note(&mut self, queue_pair: K, headers: &Headers) -> Verdict {
        let (service, operation) = (headers.bth.opcode.service(), headers.bth.opcode.operation());
        // Datagrams may be numbered as their sender likes.
        if !matches!(service, Service::Rc | Service::Uc | Service::Xrc) {
            return Verdict::Next;
        }
        let psn = headers.bth.psn;
        if operation.is_read_response() {
            return self.flows.entry(queue_pair).or_default().note_answer(psn);
        }
        if !operation.is_request() {
            return Verdict::Next;
        }
        let most = match operation {
            Operation::ReadRequest => headers.reth.dma_len.div_ceil(MIN_MTU).max(1),
            _ => 1,
        };
        self.flows.entry(queue_pair).or_default().note_request(psn, most)
    }
}

impl Flow {
    fn note_request(&mut self, psn: Psn, most: u32) -> Verdict {
        let verdict = match self.next {
            None => Verdict::Next,
            Some((first, _)) if psn.is_before(first) => {
                return match self.missing.remove(&psn.value()) {
                    true => Verdict::Late,
                    false => Verdict::Again,
                };
            }
            Some((_, last)) if psn.is_after(last) => {
                let count = psn.distance_from(last).unsigned_abs();
                let all = (0..count).map(|offset| last.add(offset).value());
                let room = MAX_REMEMBERED.saturating_sub(self.missing.len());
                self.missing.extend(all.take(room));
                Verdict::Gap(count)
            }
            Some(_) => Verdict::Next,
        };
        self.next = Some((psn.next(), psn.add(most)));
        verdict
    }

    fn note_answer(&mut self, psn: Psn) -> Verdict {
        if self.answered.len() >= MAX_REMEMBERED {
            self.answered.clear();
        }
        match self.answered.insert(psn.value()) {
            true => Verdict::Next,
            false => Verdict::Again,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic_wire::{Bth, Opcode, Qpn};

    fn headers(operation: Operation, psn: u32, length: u32) -> Headers {
        let opcode = Opcode::new(Service::Rc, operation).expect("RC has it");
        let mut headers = Headers::new(Bth::new(opcode, Qpn::new(1), Psn::new(psn)));
        headers.reth.dma_len = length;
        headers
    }

    fn verdicts(packets: &[(Operation, u32, u32)]) -> Vec<Verdict> {
        let mut sequences = Sequences::default();
        let note = |(operation, psn, length): &(Operation, u32, u32)| {
            sequences.note(7, &headers(*operation, *psn, *length))
        };
        packets.iter().map(note).collect()
    }

    #[test]
    fn gaps_are_found_also_round_the_circle_and_filled_by_late_packets() {
        use Operation::SendOnly;
        let seen = verdicts(&[
            (SendOnly, 0xff_fffe, 0),
            (SendOnly, 0xff_ffff, 0),
            (SendOnly, 2, 0),
            (SendOnly, 1, 0),
            (SendOnly, 1, 0),
            (SendOnly, 0xff_ffff, 0),
            (SendOnly, 3, 0),
        ]);
        use Verdict::{Again, Gap, Late, Next};
        assert_eq!(seen, [Next, Next, Gap(2), Late, Again, Again, Next]);
    }

    #[test]
    fn behind_a_read_any_possible_number_is_the_next() {
        use Operation::{ReadRequest, ReadResponseOnly, SendOnly};
        // 1000 bytes are one packet of 1024 bytes or four of 256.
        for next in 11..=14 {
            assert_eq!(
                verdicts(&[(ReadRequest, 10, 1000), (SendOnly, next, 0)])[1],
                Verdict::Next
            );
        }
        assert_eq!(
            verdicts(&[(ReadRequest, 10, 1000), (SendOnly, 15, 0)])[1],
            Verdict::Gap(1)
        );
        let answers = verdicts(&[(ReadResponseOnly, 10, 0), (ReadResponseOnly, 10, 0)]);
        assert_eq!(answers, [Verdict::Next, Verdict::Again]);
    }

    #[test]
    fn acknowledgements_say_nothing() {
        let seen = verdicts(&[(Operation::Acknowledge, 5, 0), (Operation::Acknowledge, 5, 0)]);
        assert_eq!(seen, [Verdict::Next; 2]);
    }
}
