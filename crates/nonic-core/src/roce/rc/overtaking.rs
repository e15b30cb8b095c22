//! The requester's notes on reordering: which of its packets have arrived although earlier ones have not.
//!
//! Three things tell it: an acknowledgement behind an unanswered READ or atomic, an answer that is not the next one,
//! and a selective acknowledgement, by which the peer says what it holds. Nothing completes here; `recovery` finds what
//! does not arrive.

use super::answers::expected_length;
use super::loss_state::{Answer, Recovery};
use super::requester::Requester;
use super::scoreboard::Arrived;
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::extended_psn::ExtendedPsn;
use nonic_wire::SelectiveAck;

/// Answers beyond the last that came which are kept. More than of requests: a READ is answered in one go.
const ANSWERS_REACH: u64 = 256;

impl Requester {
    /// An answer overtook another: it waits until it is its turn, so that two READs to one place still end with the later one.
    pub(super) fn keep(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        psn: ExtendedPsn,
        answer: Answer<'_>,
    ) {
        // After going back, an answer to what has not been asked for again is as good as lost.
        if psn >= self.sequence.next() || self.is_far(psn) {
            return;
        }
        let suits = self.queue.get(self.position(psn)).is_some_and(|request| {
            self.suits(request, psn, answer) && answer.data.len() == expected_length(request, psn, roce.mtu)
        });
        let too_soon = self.retry.round_trip.smoothed() / 2;
        let recovery = self.loss.begin(self.sequence.una());
        if !suits || !recovery.has_room_for(answer.data.len()) {
            return;
        }
        self.sequence.execute_to(psn.next());
        recovery.board.executed(psn.next());
        let arrived = recovery.board.arrived(psn, psn.next(), nic.now, too_soon);
        if arrived.packets > 0 {
            recovery.keep_answer(psn, answer);
        }
        self.note_arrived(roce, nic, &arrived);
    }

    /// Whether an answer lies so far beyond those that came that it counts as lost. Each number that is kept is one
    /// that a forger may hit, and a peer seldom loses so many in a row.
    fn is_far(&self, psn: ExtendedPsn) -> bool {
        let kept = self.loss.known().and_then(Recovery::last_answer);
        psn - kept.unwrap_or(self.sequence.una()).min(psn) > ANSWERS_REACH
    }

    /// The peer has executed more than can be completed: the answer to something before is late or lost.
    #[cold]
    pub(super) fn note_overtaken(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        let executed = self.sequence.executed().min(self.sequence.next());
        let una = self.sequence.una();
        if executed <= una {
            return;
        }
        let too_soon = self.retry.round_trip.smoothed() / 2;
        let recovery = self.loss.begin(una);
        let from = recovery.walked.max(una);
        recovery.walked = executed.max(from);
        recovery.board.executed(executed);
        let at = self.queue.partition_point(|request| request.end() <= from);
        let mut arrived = Arrived::default();
        for request in self.queue.iter_from(at) {
            if request.first >= executed {
                break;
            }
            if !request.wqe.op.is_answered() {
                let (first, end) = (request.first.max(una), request.end().min(executed));
                arrived = arrived.and(recovery.board.arrived(first, end, nic.now, too_soon));
            }
        }
        recovery.board.cover(executed);
        recovery.board.overtaken(executed, nic.now);
        self.note_arrived(roce, nic, &arrived);
    }

    /// The peer holds packets that it cannot execute yet.
    #[cold]
    pub(super) fn note_held(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        selective: &SelectiveAck<'_>,
    ) {
        if !self.retry.round_trip.is_known() {
            // It has answered something. To which copy of what is not known, but not to anything older than this.
            let asked_at = self.retry.measured_since();
            let at_most = asked_at.map(|asked_at| nic.now.since(asked_at));
            self.retry.round_trip.assume(at_most);
        }
        let mut arrived = Arrived::default();
        for range in selective.ranges() {
            let Some(first) = self.sequence.una().nearest(range.first) else {
                continue;
            };
            let end = first + range.packets;
            // A peer does not hold what was never sent; and what we have gone back behind is sent again anyway.
            if end > self.sequence.sent() {
                continue;
            }
            let (first, end) = (first.max(self.sequence.una()), end.min(self.sequence.next()));
            if first < end {
                arrived = arrived.and(self.held(roce, nic, first, end));
            }
        }
        self.note_arrived(roce, nic, &arrived);
    }

    fn held(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        first: ExtendedPsn,
        end: ExtendedPsn,
    ) -> Arrived {
        let (now, executed) = (nic.now, self.sequence.executed());
        if let Some(asked_at) = self.retry.take_measured(Some(first), end) {
            self.sample_round_trip(roce, nic, asked_at);
        }
        let too_soon = self.retry.round_trip.smoothed() / 2;
        let recovery = self.loss.begin(self.sequence.una());
        if self.fetches == 0 {
            return recovery.board.arrived(first, end, now, too_soon);
        }
        let mut arrived = Arrived::default();
        let at = self.queue.partition_point(|request| request.end() <= first);
        for request in self.queue.iter_from(at) {
            if request.first >= end {
                break;
            }
            let (from, to) = (request.first.max(first), request.end().min(end));
            if !request.wqe.op.is_answered() {
                arrived = arrived.and(recovery.board.arrived(from, to, now, too_soon));
                continue;
            }
            // The request is held, not the answer. A READ may have been asked for by several.
            let chunk = request.chunk.max(1);
            let skipped = (((from - request.first) as u32).div_ceil(chunk)) * chunk;
            let mut asked = request.first + skipped;
            while asked < to {
                let answered = (asked + chunk).min(request.end());
                if asked >= executed {
                    recovery.board.cover(answered);
                    recovery.board.requested(asked, answered);
                    recovery.board.overtaken(answered, now);
                }
                asked = answered;
            }
        }
        arrived
    }

    /// Packets arrived out of order.
    pub(super) fn note_arrived(&mut self, roce: &RoceContext, nic: &mut NicResources, arrived: &Arrived) {
        if arrived.packets > 0 {
            self.learn(arrived);
            self.progressed(roce, nic, arrived.packets);
        }
    }

    pub(super) fn learn(&mut self, arrived: &Arrived) {
        if !arrived.late.is_zero() {
            self.retry.round_trip.was_reordered(arrived.late);
        } else if arrived.repaired {
            self.retry.round_trip.was_lost();
        }
    }
}
