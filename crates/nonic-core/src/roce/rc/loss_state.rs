//! What a requester knows about packets that were lost, came early or do not count any more.
//!
//! Most queue pairs have nothing to know: the [`Recovery`] exists while packets are missing or came early. How losses are found, and
//! what is sent again, is in `recovery`; what the peer says has arrived is entered by `overtaking`.

use super::scoreboard::Scoreboard;
use super::sequence::SequenceCursor;
use crate::roce::extended_psn::ExtendedPsn;
use nonic_wire::Operation;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of answers that a queue pair keeps at most. It asks for no more than the window to the peer at a time.
const MAX_KEPT_BYTES: usize = 16 << 20;

/// The losses of a requester.
#[derive(Debug, Default)]
pub(super) struct LossRecovery {
    /// Boxed: few queue pairs have one.
    recovery: Option<Box<Recovery>>,
    /// The gap that was acted on already, if nothing has been acknowledged since.
    rewound_at: Option<ExtendedPsn>,
    /// Where a READ was last asked for again within a chunk: the answer may begin anew there.
    restarted_at: Option<ExtendedPsn>,
    /// Packets before this one are under way but do not count in the window any more: the queue pair stalled with them under way.
    /// Going back or sending them again makes them count again.
    written_off: ExtendedPsn,
    /// Until everything before this packet is acknowledged, one packet at a time is under way.
    cautious_until: ExtendedPsn,
}

impl LossRecovery {
    /// For a new sequence of packets.
    pub(super) fn start(&mut self, first: ExtendedPsn) {
        self.count_all(first);
    }

    /// What is known, if something is amiss.
    pub(super) fn known(&self) -> Option<&Recovery> {
        self.recovery.as_deref()
    }

    /// The same, to change it.
    pub(super) fn known_mut(&mut self) -> Option<&mut Recovery> {
        self.recovery.as_deref_mut()
    }

    /// Something is amiss with packets from `una` on.
    pub(super) fn begin(&mut self, una: ExtendedPsn) -> &mut Recovery {
        self.recovery.get_or_insert_with(|| Box::new(Recovery::new(una)))
    }

    /// Ends it if nothing is left to watch. Returns whether it did.
    pub(super) fn end_if_over(&mut self, una: ExtendedPsn) -> bool {
        self.recovery
            .take_if(|recovery| recovery.board.is_complete() && recovery.board.end() <= una)
            .is_some()
    }

    /// Whether lost packets are to be sent again.
    pub(super) fn has_lost(&self) -> bool {
        matches!(&self.recovery, Some(recovery) if recovery.board.has_lost())
    }

    /// Whether the next repetition is to provoke an answer.
    pub(super) fn provokes(&self) -> bool {
        matches!(&self.recovery, Some(recovery) if recovery.provokes)
    }

    /// How many of the packets under way count in the window to the peer.
    pub(super) fn counted(&self, sequence: &SequenceCursor) -> u64 {
        let next = sequence.next();
        let first = sequence.una().max(self.written_off);
        match self.known() {
            None => next - first,
            Some(Recovery { board, .. }) => next - first.max(board.end()).min(next) + board.under_way(first),
        }
    }

    /// Nothing before `next` counts any more, and until it is done with, one packet at a time is sent.
    pub(super) fn write_off(&mut self, next: ExtendedPsn) {
        (self.written_off, self.cautious_until) = (next, next);
        if let Some(recovery) = self.known_mut() {
            recovery.board.write_off();
        }
    }

    /// Everything from `una` on counts, and as many as fit may be under way.
    fn count_all(&mut self, una: ExtendedPsn) {
        (self.written_off, self.cautious_until) = (una, una);
    }

    /// Whether one packet at a time is to be under way.
    pub(super) fn is_cautious(&self, una: ExtendedPsn) -> bool {
        una < self.cautious_until
    }

    /// One packet at a time is sent until everything before this one is acknowledged.
    pub(super) fn be_cautious_until(&mut self, psn: ExtendedPsn) {
        self.cautious_until = psn;
    }

    /// The peer reported a gap. Returns whether that is news: it is reported once, further reports are copies.
    pub(super) fn is_new_gap(&mut self, gap: ExtendedPsn) -> bool {
        self.rewound_at.replace(gap) != Some(gap)
    }

    /// The next report of a gap is news.
    pub(super) fn forget_gap(&mut self) {
        self.rewound_at = None;
    }

    /// A READ is asked for from this packet on.
    pub(super) fn note_read(&mut self, psn: ExtendedPsn) {
        self.restarted_at = Some(psn);
    }

    /// Whether the answer to a READ may begin with this packet because it was asked for again from there.
    pub(super) fn begins_part(&self, psn: ExtendedPsn) -> bool {
        self.restarted_at == Some(psn)
            || self
                .known()
                .is_some_and(|recovery| recovery.begins.contains(&psn))
    }

    /// Whether the answer to a part of a READ that was asked for again ends with this packet.
    pub(super) fn ends_part(&self, psn: ExtendedPsn) -> bool {
        self.known()
            .is_some_and(|recovery| recovery.ends.contains(&psn.next()))
    }

    /// Everything from `from` on is sent again: what is known of it is forgotten. `una` is where all of it begins.
    pub(super) fn go_back_to(&mut self, from: ExtendedPsn, una: ExtendedPsn) {
        if from <= una {
            self.recovery = None;
        } else if let Some(recovery) = self.known_mut() {
            recovery.forget_from(from);
        }
        self.count_all(una);
    }
}

/// What a requester knows while packets are missing or out of order.
#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) board: Scoreboard,
    /// How far what the peer has executed was entered in the scoreboard.
    pub(super) walked: ExtendedPsn,
    /// Answers that came before others.
    answers: BTreeMap<ExtendedPsn, KeptAnswer>,
    kept_bytes: usize,
    /// Where parts of READs begin that were asked for again, and one past where they end.
    begins: BTreeSet<ExtendedPsn>,
    ends: BTreeSet<ExtendedPsn>,
    /// The next repetition provokes an answer: it is sent even if what is under way was written off.
    pub(super) provokes: bool,
}

/// An answer that waits for an earlier one.
#[derive(Debug)]
pub(super) struct KeptAnswer {
    pub(super) response: Option<Operation>,
    pub(super) data: Box<[u8]>,
}

/// The answer to a READ or atomic, or a part of it.
#[derive(Copy, Clone, Debug)]
pub(super) struct Answer<'a> {
    pub(super) data: &'a [u8],
    /// What kind of READ response, which also answers ATOMIC_WRITEs and FLUSHes. Atomics have an answer of their own.
    pub(super) response: Option<Operation>,
}

impl Recovery {
    fn new(una: ExtendedPsn) -> Self {
        Recovery {
            board: Scoreboard::new(una),
            walked: una,
            answers: BTreeMap::new(),
            kept_bytes: 0,
            begins: BTreeSet::new(),
            ends: BTreeSet::new(),
            provokes: false,
        }
    }

    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.kept_bytes + bytes <= MAX_KEPT_BYTES
    }

    pub(super) fn keep_answer(&mut self, psn: ExtendedPsn, answer: Answer<'_>) {
        self.kept_bytes += answer.data.len();
        let kept = KeptAnswer {
            response: answer.response,
            data: answer.data.into(),
        };
        self.answers.insert(psn, kept);
    }

    pub(super) fn take_answer(&mut self, psn: ExtendedPsn) -> Option<KeptAnswer> {
        let kept = self.answers.remove(&psn)?;
        self.kept_bytes -= kept.data.len();
        Some(kept)
    }

    /// The last of the answers that are kept.
    pub(super) fn last_answer(&self) -> Option<ExtendedPsn> {
        self.answers.last_key_value().map(|(psn, _)| *psn)
    }

    /// A part of a READ is asked for again. What lies before `una` was answered.
    pub(super) fn note_asked_again(&mut self, una: ExtendedPsn, first: ExtendedPsn, end: ExtendedPsn) {
        while self.begins.first().is_some_and(|begin| *begin < una) {
            self.begins.pop_first();
        }
        while self.ends.first().is_some_and(|end| *end <= una) {
            self.ends.pop_first();
        }
        self.begins.insert(first);
        self.ends.insert(end);
    }

    fn forget_from(&mut self, from: ExtendedPsn) {
        self.board.forget_from(from);
        self.walked = self.walked.min(from);
        for kept in self.answers.split_off(&from).values() {
            self.kept_bytes -= kept.data.len();
        }
    }
}

impl KeptAnswer {
    pub(super) fn as_answer(&self) -> Answer<'_> {
        Answer {
            data: &self.data,
            response: self.response,
        }
    }
}
