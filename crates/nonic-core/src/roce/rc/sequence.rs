//! Where a requester stands in the sequence of its packets.
//!
//! Every packet of the send queue has a number in one endless sequence ([`ExtendedPsn`]); its PSN is the low 24 bits. A READ takes the
//! numbers of its response packets. The marks, in order: `una`, the oldest packet that is not acknowledged or answered; `next`, the next
//! to send; `sent`, one past the furthest that was ever sent; `posted`, one past the last packet of all posted requests. Between `una`
//! and `next` is what is under way. Going back moves `next` to an earlier packet, never before `una`.
//!
//! It knows nothing of requests, timers or windows.

use crate::roce::extended_psn::ExtendedPsn;
use nonic_wire::Psn;

/// The marks of a requester.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct SequenceCursor {
    una: ExtendedPsn,
    next: ExtendedPsn,
    sent: ExtendedPsn,
    posted: ExtendedPsn,
    /// One past the furthest packet that an answer was asked for since the last time that it went back.
    asked: ExtendedPsn,
    /// One past what the peer said it has executed. It may lie behind an unanswered READ or atomic, whose answer is then late or lost.
    executed: ExtendedPsn,
    /// Packets that were sent since one asked for an answer.
    unasked: u32,
}

impl SequenceCursor {
    /// Before the first packet.
    pub(super) fn starting_at(first: ExtendedPsn) -> Self {
        SequenceCursor {
            una: first,
            next: first,
            sent: first,
            posted: first,
            asked: first,
            executed: first,
            unasked: 0,
        }
    }

    /// The oldest packet that is not acknowledged or answered.
    pub(super) fn una(&self) -> ExtendedPsn {
        self.una
    }

    /// The next packet to send.
    pub(super) fn next(&self) -> ExtendedPsn {
        self.next
    }

    /// One past the furthest packet that was ever sent.
    pub(super) fn sent(&self) -> ExtendedPsn {
        self.sent
    }

    /// One past what the peer has executed.
    pub(super) fn executed(&self) -> ExtendedPsn {
        self.executed
    }

    /// Whether nothing is under way, but for what was gone back behind.
    pub(super) fn is_idle(&self) -> bool {
        self.una == self.next
    }

    /// Whether everything that was ever sent is acknowledged or answered.
    pub(super) fn is_settled(&self) -> bool {
        // `sent`, not `next`: packets that were gone back behind are still under way.
        self.una == self.sent
    }

    /// Whether the next packet was sent before.
    pub(super) fn is_repeating(&self) -> bool {
        self.next < self.sent
    }

    /// Whether an answer was asked for that has not come.
    pub(super) fn has_asked(&self) -> bool {
        self.asked > self.una
    }

    /// Whether the peer owes an answer to something that is under way.
    pub(super) fn awaits_answer(&self) -> bool {
        self.next > self.una && self.has_asked()
    }

    /// Whether something is under way to which no answer was asked for.
    pub(super) fn must_ask(&self) -> bool {
        self.next > self.una && !self.has_asked()
    }

    /// The packet that a PSN from the peer means: one that was sent and is not yet done with.
    pub(super) fn find(&self, psn: Psn) -> Option<ExtendedPsn> {
        let psn = self.una.nearest(psn)?;
        (self.una..self.sent).contains(&psn).then_some(psn)
    }

    /// A request of so many packets is posted. Returns the first of them.
    pub(super) fn post(&mut self, packets: u32) -> ExtendedPsn {
        let first = self.posted;
        self.posted += packets;
        first
    }

    /// One more packet is sent. Returns how many were since one asked for an answer.
    pub(super) fn count_unasked(&mut self) -> u32 {
        self.unasked += 1;
        self.unasked
    }

    /// The packet that is being sent, which takes so many numbers, asks for an answer. Returns one past it.
    pub(super) fn ask(&mut self, psns: u32) -> ExtendedPsn {
        self.unasked = 0;
        self.asked = self.next + psns;
        self.asked
    }

    /// A repeated packet that ends here asks for an answer.
    pub(super) fn ask_again(&mut self, end: ExtendedPsn) {
        self.unasked = 0;
        self.asked = self.asked.max(end);
    }

    /// The next packet, which takes so many numbers, was sent.
    pub(super) fn send(&mut self, psns: u32) {
        self.next += psns;
        self.sent = self.sent.max(self.next);
    }

    /// The peer has executed everything before this packet.
    pub(super) fn execute_to(&mut self, up_to: ExtendedPsn) {
        self.executed = self.executed.max(up_to);
    }

    /// Everything before this packet is acknowledged or answered.
    pub(super) fn acknowledge_to(&mut self, una: ExtendedPsn) {
        self.una = self.una.max(una);
    }

    /// Answers of an earlier attempt may have overtaken the repetition: `next` follows `una`. Returns whether it had to.
    pub(super) fn catch_up(&mut self) -> bool {
        let overtaken = self.next < self.una;
        self.next = self.next.max(self.una);
        overtaken
    }

    /// Everything from this packet on is sent again.
    pub(super) fn go_back_to(&mut self, from: ExtendedPsn) {
        debug_assert!(
            self.una <= from && from <= self.next,
            "it goes back to what is under way"
        );
        self.next = from;
        self.asked = self.asked.min(from);
        self.unasked = 0;
    }

    /// Nothing is posted or under way any more.
    pub(super) fn forget(&mut self) {
        (self.posted, self.sent, self.executed) = (self.una, self.una, self.una);
        self.go_back_to(self.una);
    }
}
