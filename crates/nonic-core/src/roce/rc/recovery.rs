//! Loss recovery: how a requester detects lost packets, and sends them again.
//!
//! Read before touching:
//! - **A packet that was overtaken** (the peer holds, has executed or has answered a later one) is lost when it has not arrived within the
//!   reordering window. It alone is sent again; new packets go on meanwhile. Lost packets and those that have arrived do not
//!   count in the window, repetitions do.
//! - **A peer that reports a gap** keeps nothing behind it (rxe, hardware): everything from there on is sent again.
//! - **A peer that is silent** is asked for an answer with one packet (`probe_after`); then, more and more rarely, everything under way
//!   counts as lost, what it held too, and a few packets at a time are sent again until something is heard. It may have dropped
//!   what it held (for want of a receive) without our having heard of that, and old reports of what it held may come late.
//!   One that never answered is sent that one packet, and no more.
//! - **The program's timeout** is another matter: only that uses up retries. When it has passed without any progress, everything is
//!   forgotten that was known of the packets under way, and one packet at a time is tried.
//! - **Going back** means forgetting what is known from there on. A peer without a receive drops what it held, so RNR
//!   goes back too.
//!
//! A READ is asked for again by the rest of the hole, within the request that asked first: responders take nothing else for
//! a repetition. One that the peer has not executed is asked for as it was.

use super::answers::Answer;
use super::requester::{Requester, ack_interval, no_room};
use super::scoreboard::Scoreboard;
use crate::record::QpEvent;
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::{Batch, Emit, Fatal};
use crate::roce::extended_psn::ExtendedPsn;
use crate::roce::request_packet::RequestPacket;
use crate::time::Time;
use crate::verbs::work::{SendOp, Status};
use nonic_wire::Operation;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// While a peer is silent, no more than so many packets at a time are sent to it again.
const SILENT_PACKETS: u32 = 4;

/// A peer that never answered is asked again for as much as a READ may be after so many silences: a quarter of a second.
const SILENCES_BEFORE_A_READ: u8 = 4;

/// Bytes of answers that a queue pair keeps at most. It asks for no more than the window to the peer at a time.
const MAX_KEPT_BYTES: usize = 16 << 20;

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
    provokes: bool,
}

/// An answer that waits for an earlier one.
#[derive(Debug)]
pub(super) struct KeptAnswer {
    pub(super) response: Option<Operation>,
    pub(super) data: Box<[u8]>,
}

/// A packet that is to be sent again.
struct Repetition {
    /// Where in the queue its request is.
    at: usize,
    first: ExtendedPsn,
    packet: RequestPacket,
    /// Whether nothing else is missing right behind it.
    ends_hole: bool,
}

impl Recovery {
    pub(super) fn new(una: ExtendedPsn) -> Self {
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

    /// Whether a part of a READ that was asked for again begins with this number.
    pub(super) fn begins_part(&self, psn: ExtendedPsn) -> bool {
        self.begins.contains(&psn)
    }

    /// Whether one ends with this number.
    pub(super) fn ends_part(&self, psn: ExtendedPsn) -> bool {
        self.ends.contains(&psn.next())
    }

    /// A part of a READ is asked for again. What lies before `una` was answered.
    fn note_asked_again(&mut self, una: ExtendedPsn, first: ExtendedPsn, end: ExtendedPsn) {
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

impl Requester {
    /// Whether enough is under way to a peer that is silent, or to one that has to be treated with caution.
    pub(super) fn awaits_a_sign(&self, roce: &RoceContext) -> bool {
        let enough = if self.is_cautious(roce) {
            self.share.bytes() > 0
        } else {
            self.silences > 1 && self.share.bytes() >= u64::from(SILENT_PACKETS * roce.mtu)
        };
        enough && !self.provokes()
    }

    /// Whether the next repetition is to provoke an answer.
    fn provokes(&self) -> bool {
        matches!(&self.recovery, Some(recovery) if recovery.provokes)
    }

    /// Whether lost packets are to be sent again.
    pub(super) fn has_lost(&self) -> bool {
        matches!(&self.recovery, Some(recovery) if recovery.board.has_lost())
    }

    /// Sends the first lost packet again.
    #[cold]
    pub(super) fn resend(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        batch: &Batch,
        out: &mut [u8],
    ) -> Emit {
        let (Some(again), Some(peer)) = (self.first_lost(roce.mtu), roce.peer(nic)) else {
            return Emit::Idle;
        };
        let cost = again.packet.psns * roce.mtu;
        let must_ask = self.provokes() || self.asked <= self.una;
        if must_ask && peer.is_stalled(&self.share) {
            // What was under way counts no more. What asks for an answer does, for as long as a probe does.
            self.write_off();
            peer.account(&mut self.share, 0, true);
        }
        if let Some(refused) = no_room(peer, &self.share, cost, batch) {
            return refused;
        }
        if again.packet.wire_len(roce) > batch.max_len {
            return Emit::NotInBatch;
        }
        self.since_ack_request += 1;
        let ack_request = again.ends_hole
            || again.packet.segment.last
            || self.silences > 1
            || self.una < self.cautious_until
            || peer.is_filled_by(&self.share, cost, roce.mtu, batch.in_turn)
            || u64::from(self.since_ack_request) >= ack_interval(peer, roce.mtu);
        let wqe = &self.queue[again.at].wqe;
        let Ok(length) = again.packet.write(roce, wqe, again.first.psn(), ack_request, out) else {
            return self.local_fault(roce, nic, again.at, Status::LocalProtection);
        };
        self.sent_again(roce, nic, &again, ack_request);
        Emit::Packet(length)
    }

    /// The first lost packet, if there is one.
    fn first_lost(&self, mtu: u32) -> Option<Repetition> {
        let (first, end) = self.recovery.as_deref()?.board.first_lost()?;
        let at = self.position(first);
        let request = self.queue.get(at)?;
        let index = (first - request.first) as u32;
        let packet = if matches!(request.wqe.op, SendOp::Read(_)) {
            let hole = u32::try_from(end - first).unwrap_or(u32::MAX);
            let count = request.left_in_chunk(index).min(hole);
            RequestPacket::of_read(&request.wqe, index, count, mtu)
        } else {
            RequestPacket::of_message(&request.wqe, index, mtu)
        };
        Some(Repetition {
            at,
            first,
            ends_hole: first + packet.psns == end,
            packet,
        })
    }

    fn sent_again(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        again: &Repetition,
        ack_request: bool,
    ) {
        let (first, end) = (again.first, again.first + again.packet.psns);
        if let Some(recovery) = self.recovery.as_deref_mut() {
            recovery.provokes = false;
            recovery.board.sent_again(again.packet.psns, nic.now, self.sent);
            if again.packet.operation == Operation::ReadRequest {
                recovery.note_asked_again(self.una, first, end);
            }
        }
        nic.counters.retransmitted_packets += 1;
        self.troubles.retransmitted_packets = self.troubles.retransmitted_packets.wrapping_add(1);
        self.last_sent = nic.now;
        if ack_request {
            self.since_ack_request = 0;
            self.asked = self.asked.max(end);
        }
        // Karn's rule: an answer that covers it may be to either copy.
        self.measured = self.measured.filter(|(psn, _)| *psn <= first);
        if self.timers.retransmit_at.is_none() {
            self.arm_retransmit(roce, nic.now);
        }
        self.watch_overdue();
        self.count_in_flight(roce, nic);
    }

    /// Nothing that is under way counts any more, and until it is done with, one packet at a time is sent.
    pub(super) fn write_off(&mut self) {
        (self.written_off, self.cautious_until) = (self.next, self.next);
        if let Some(recovery) = self.recovery.as_deref_mut() {
            recovery.board.write_off();
        }
    }

    /// Looks whether something that was overtaken stayed away for too long.
    #[cold]
    pub(super) fn find_losses(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        let (window, patience) = self.waits();
        let Some(recovery) = self.recovery.as_deref_mut() else {
            return;
        };
        let lost = recovery.board.find_lost(nic.now, window, patience);
        self.report_lost(roce, nic, lost);
        self.watch_overdue();
        self.count_in_flight(roce, nic);
    }

    /// Sets the timer for the next packet that may turn out lost.
    fn watch_overdue(&mut self) {
        let (window, patience) = self.waits();
        let recovery = self.recovery.as_deref();
        self.timers.overdue_at = recovery.and_then(|recovery| recovery.board.next_due(window, patience));
    }

    /// How long to wait for a packet that was overtaken, and for one that was sent again. To a peer that is silent, nothing is sent
    /// for want of patience: that has a timer of its own, which grows.
    fn waits(&self) -> (Duration, Option<Duration>) {
        let patience = (self.silences < 2).then(|| self.round_trip.probe_after());
        (self.round_trip.reordering_window(), patience)
    }

    /// Tells the window to the peer that so many packets were lost.
    fn report_lost(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>, packets: u64) {
        if let (true, Some(peer)) = (packets > 0, roce.peer(nic)) {
            peer.on_lost(packets * u64::from(roce.mtu));
        }
    }

    /// The peer has reported a gap: goes back to it, unless that was done already. It is reported
    /// once, further reports are copies.
    pub(super) fn rewind_once(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>, gap: ExtendedPsn) {
        if self.rewound_at == Some(gap) {
            return;
        }
        self.rewound_at = Some(gap);
        if let Some(peer) = roce.peer(nic) {
            peer.on_loss(&self.share, roce.mtu);
        }
        self.rewind_to(roce, nic, gap);
    }

    /// Sends everything from `from` on again. What is before it is under way still.
    pub(super) fn rewind_to(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>, from: ExtendedPsn) {
        if from > self.next {
            return;
        }
        if from <= self.una {
            return self.rewind(roce, nic);
        }
        self.next = from;
        self.cursor = self.position(from);
        self.fetches = self.fetches_before(from);
        if let Some(recovery) = self.recovery.as_deref_mut() {
            recovery.forget_from(from);
        }
        self.forget_attempt(roce, nic);
    }

    /// Goes back to the oldest packet.
    pub(super) fn rewind(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        self.next = self.una;
        self.cursor = 0;
        self.fetches = 0;
        self.recovery = None;
        self.timers.overdue_at = None;
        self.forget_attempt(roce, nic);
    }

    fn forget_attempt(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        self.since_ack_request = 0;
        self.asked = self.asked.min(self.next);
        (self.written_off, self.cautious_until) = (self.una, self.una);
        self.measured = None;
        self.silences = 0;
        self.count_in_flight(roce, nic);
    }

    /// How many requests before `to` have answers outstanding.
    fn fetches_before(&self, to: ExtendedPsn) -> u32 {
        let mut outstanding = 0;
        for request in &self.queue {
            if request.first >= to {
                break;
            }
            if request.wqe.op.is_answered() {
                let chunk = request.chunk.max(1);
                let done = (self.una.max(request.first) - request.first) as u32 / chunk;
                let asked = ((to.min(request.end()) - request.first) as u32).div_ceil(chunk);
                outstanding += asked - done.min(asked);
            }
        }
        outstanding
    }

    /// Something is due.
    pub(crate) fn handle_timeout(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
    ) -> Result<(), Fatal> {
        let now = nic.now;
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if is_due(self.timers.quiet_until) {
            self.timers.quiet_until = None;
        }
        if is_due(self.timers.retransmit_at) {
            return self.time_out(roce, nic);
        }
        if is_due(self.timers.overdue_at) {
            self.find_losses(roce, nic);
        }
        if is_due(self.timers.silent_at) {
            self.on_silence(roce, nic);
        }
        Ok(())
    }

    /// The peer did not answer within the program's timeout.
    fn time_out(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) -> Result<(), Fatal> {
        self.timers.stop_waiting();
        if self.peer_gone {
            nic.record(roce.common.qpn, QpEvent::PeerGone);
            self.fail_front(roce, nic, Status::RetryExceeded);
            return Err(Fatal);
        }
        nic.counters.timeouts += 1;
        let timed_out = QpEvent::TimedOut {
            retries_left: self.retry_left,
            answered: self.round_trip.is_known() || self.una != ExtendedPsn::starting_at(roce.sq_psn),
        };
        nic.record(roce.common.qpn, timed_out);
        self.troubles.timeouts = self.troubles.timeouts.wrapping_add(1);
        if self.retry_left == 0 {
            self.fail_front(roce, nic, Status::RetryExceeded);
            return Err(Fatal);
        }
        self.rewound_at = None;
        let repeated = self.is_probing(roce);
        self.retry_left -= 1;
        if let (false, Some(peer)) = (repeated, roce.peer(nic)) {
            peer.on_timeout(&self.share, roce.mtu);
        }
        self.rewind(roce, nic);
        Ok(())
    }

    /// Nothing was heard for longer than answers take. First an answer is provoked; if none comes, everything counts as lost.
    fn on_silence(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        self.timers.silent_at = None;
        if self.una == self.next || self.timers.quiet_until.is_some() {
            return;
        }
        let wait = self.round_trip.retransmit_after(self.silences);
        self.silences = self.silences.saturating_add(1);
        nic.record(roce.common.qpn, QpEvent::Silence);
        if self.silences == 1 || !self.round_trip.is_known() {
            self.provoke(nic.now);
        } else {
            let (una, next) = (self.una, self.next);
            let recovery = self.recovery.get_or_insert_with(|| Box::new(Recovery::new(una)));
            recovery.board.distrust(self.executed.max(una));
            let lost = recovery.board.lose_all(next, nic.now);
            recovery.provokes = true;
            // The peer may have lost its report of a gap too.
            self.rewound_at = None;
            self.report_lost(roce, nic, lost);
        }
        self.count_in_flight(roce, nic);
        self.set_silent_at(nic.now + wait);
    }

    /// Sends one packet again to hear how far the peer is.
    fn provoke(&mut self, now: Time) {
        let una = self.una;
        let Some((first, end)) = self.provoking_packet() else {
            return;
        };
        let recovery = self.recovery.get_or_insert_with(|| Box::new(Recovery::new(una)));
        recovery.provokes = true;
        if recovery.board.has_lost() {
            return;
        }
        recovery.board.lose(first, end, now);
        if recovery.board.is_complete() {
            // The peer held everything, and yet it does not go on.
            recovery.board.distrust(self.executed.max(una));
            recovery.board.lose(first, end, now);
        }
    }

    /// The last one, because whatever is missing shows then; but READs are to be answered from the oldest on. If that did not help,
    /// the oldest: a peer by the book says once that it lacks it, and what it said may be lost.
    fn provoking_packet(&self) -> Option<(ExtendedPsn, ExtendedPsn)> {
        let (una, next) = (self.una, self.next);
        let last = next.prev();
        let newest = self.queue.get(self.position(last))?;
        let oldest = self.queue.get(self.position(una))?;
        if self.silences == 1 && !newest.wqe.op.is_answered() {
            return Some((last, next));
        }
        let (request, first) = if self.silences > 1 || oldest.wqe.op.is_answered() {
            (oldest, una)
        } else {
            (newest, newest.chunk_first(last))
        };
        match request.wqe.op {
            SendOp::Read(_) if !self.round_trip.is_known() && self.silences < SILENCES_BEFORE_A_READ => None,
            op if op.is_answered() => Some((first, request.chunk_end(first).min(next))),
            _ => Some((first, first.next())),
        }
    }
}
