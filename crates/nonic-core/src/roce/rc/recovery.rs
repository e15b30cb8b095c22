//! Loss recovery: how the requester of a reliable connection detects lost packets, and sends them again.
//!
//! Read before touching:
//! - **A packet that was overtaken** (the peer holds, has executed or has answered a later one) is lost when it has not arrived within the
//!   reordering window. It alone is sent again; new packets go on meanwhile. Lost packets and those that have arrived no longer
//!   count as bytes under way, which the window to the peer limits. Packets that are sent again do.
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
//! If response packets of a READ are missing, the requester asks for those alone, from the first missing one on, and never beyond the
//! end of the request packet that asked for them first: responders take nothing else for a repetition. Where several are missing of what
//! one request packet asked for, a later one waits until the earlier ones have come: Linux's rxe, once asked for a later part, never
//! answers an earlier one again. A READ that the peer has not executed is asked for as it was.

use super::requester::{Requester, ack_interval, no_room};
use super::scoreboard::Scoreboard;
use crate::queue_pair::QpState;
use crate::record::QpEvent;
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::{Batch, Emit, Fatal};
use crate::roce::extended_psn::ExtendedPsn;
use crate::roce::request_packet::RequestPacket;
use crate::time::Time;
use crate::verbs::work::{SendOp, Status};
use nonic_wire::Operation;

/// While a peer is silent, no more than so many packets at a time are sent to it again.
const SILENT_PACKETS: u32 = 4;

/// A peer that never answered is asked again for as much as a READ may be after so many silences: a quarter of a second.
const SILENCES_BEFORE_A_READ: u8 = 4;

/// A packet that is to be sent again.
struct Repetition {
    /// Where in the queue its request is.
    at: usize,
    first: ExtendedPsn,
    packet: RequestPacket,
    /// Whether nothing else is missing right behind it.
    ends_hole: bool,
}

impl Requester {
    /// Whether enough is under way to a peer that is silent, or to one that has to be treated with caution.
    pub(super) fn awaits_a_sign(&self, roce: &RoceContext) -> bool {
        let enough = if self.is_cautious(roce) {
            self.share.bytes() > 0
        } else {
            self.retry.silences() > 1 && self.share.bytes() >= u64::from(SILENT_PACKETS * roce.mtu)
        };
        enough && !self.loss.provokes()
    }

    /// Sends the first lost packet again that need not wait for others. `None` if there is none.
    #[cold]
    pub(super) fn resend(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        batch: &Batch,
        out: &mut [u8],
    ) -> Option<Emit> {
        let again = self.first_lost(roce.mtu)?;
        Some(self.send_again(roce, nic, again, batch, out))
    }

    fn send_again(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        again: Repetition,
        batch: &Batch,
        out: &mut [u8],
    ) -> Emit {
        let Some(peer) = roce.peer(nic) else {
            return Emit::Idle;
        };
        let cost = again.packet.psns * roce.mtu;
        let must_ask = self.loss.provokes() || !self.sequence.has_asked();
        if must_ask && peer.is_stalled(&self.share) {
            // What was under way counts no more. What asks for an answer does, for as long as a probe does.
            self.loss.write_off(self.sequence.next());
            peer.account(&mut self.share, 0, true);
        }
        if let Some(refused) = no_room(peer, &self.share, cost, batch) {
            return refused;
        }
        if again.packet.wire_len(roce) > batch.max_len {
            return Emit::NotInBatch;
        }
        let unasked = self.sequence.count_unasked();
        let ack_request = again.ends_hole
            || again.packet.segment.last
            || self.retry.silences() > 1
            || self.loss.is_cautious(self.sequence.una())
            || peer.is_filled_by(&self.share, cost, roce.mtu, batch.in_turn)
            || u64::from(unasked) >= ack_interval(peer, roce.mtu);
        let Some(request) = self.queue.get(again.at) else {
            return Emit::Idle;
        };
        let written = again.packet.write(
            roce,
            (&request.wqe, &nic.keys),
            again.first.psn(),
            ack_request,
            out,
        );
        let Ok(length) = written else {
            return self.local_fault(roce, nic, again.at, Status::LocalProtection);
        };
        self.sent_again(roce, nic, &again, ack_request);
        Emit::Packet(length)
    }

    /// The first lost packet that need not wait for others, if there is one.
    fn first_lost(&self, mtu: u32) -> Option<Repetition> {
        let board = &self.loss.known()?.board;
        let (first, end) = board
            .lost()
            .find(|(first, _)| !self.follows_a_hole(board, *first))?;
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

    /// Whether this is a response to a READ, and an earlier one to the same request packet is missing.
    fn follows_a_hole(&self, board: &Scoreboard, psn: ExtendedPsn) -> bool {
        self.queue.get(self.position(psn)).is_some_and(|request| {
            matches!(request.wqe.op, SendOp::Read(_)) && board.misses_any(request.chunk_first(psn), psn)
        })
    }

    fn sent_again(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        again: &Repetition,
        ack_request: bool,
    ) {
        let (first, end) = (again.first, again.first + again.packet.psns);
        let (una, sent) = (self.sequence.una(), self.sequence.sent());
        if let Some(known) = self.loss.known_mut() {
            known.provokes = false;
            known.board.sent_again(first, again.packet.psns, nic.now, sent);
            if again.packet.operation == Operation::ReadRequest {
                known.note_asked_again(una, first, end);
            }
        }
        self.count_repetition(nic);
        self.last_sent = nic.now;
        if ack_request {
            self.sequence.ask_again(end);
        }
        self.retry.forget_measured_after(first);
        self.retry
            .ensure_waiting(roce, nic.now, self.sequence.has_asked());
        self.watch_overdue();
        self.count_in_flight(roce, nic);
    }

    /// Looks whether something that was overtaken stayed away for too long.
    #[cold]
    pub(super) fn find_losses(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        let (window, patience) = self.retry.reordering_waits();
        let Some(known) = self.loss.known_mut() else {
            return;
        };
        let lost = known.board.find_lost(nic.now, window, patience);
        self.report_lost(roce, nic, lost);
        self.watch_overdue();
        self.count_in_flight(roce, nic);
    }

    /// Sets the timer for the next packet that may turn out lost.
    fn watch_overdue(&mut self) {
        let (window, patience) = self.retry.reordering_waits();
        let known = self.loss.known();
        let due = known.and_then(|known| known.board.next_due(window, patience));
        self.retry.watch_overdue(due);
    }

    /// Tells the window to the peer that so many packets were lost.
    fn report_lost(&mut self, roce: &RoceContext, nic: &mut NicResources, packets: u64) {
        if let (true, Some(peer)) = (packets > 0, roce.peer(nic)) {
            peer.on_lost(packets * u64::from(roce.mtu));
        }
    }

    /// The peer has reported a gap: goes back to it, unless that was done already. It is reported
    /// once, further reports are copies.
    pub(super) fn rewind_once(&mut self, roce: &RoceContext, nic: &mut NicResources, gap: ExtendedPsn) {
        if !self.loss.is_new_gap(gap) {
            return;
        }
        if let Some(peer) = roce.peer(nic) {
            peer.on_loss(&self.share, roce.mtu);
        }
        self.rewind_to(roce, nic, gap);
    }

    /// Sends everything from `from` on again. What is before it is under way still.
    pub(super) fn rewind_to(&mut self, roce: &RoceContext, nic: &mut NicResources, from: ExtendedPsn) {
        if from > self.sequence.next() {
            return;
        }
        if from <= self.sequence.una() {
            return self.rewind(roce, nic);
        }
        self.queue.go_back_to(self.position(from));
        self.fetches = self.fetches_before(from);
        self.go_back_to(roce, nic, from);
    }

    /// Goes back to the oldest packet.
    pub(super) fn rewind(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        self.queue.go_back_to(0);
        self.fetches = 0;
        self.retry.watch_overdue(None);
        self.go_back_to(roce, nic, self.sequence.una());
    }

    fn go_back_to(&mut self, roce: &RoceContext, nic: &mut NicResources, from: ExtendedPsn) {
        self.sequence.go_back_to(from);
        self.loss.go_back_to(from, self.sequence.una());
        self.retry.forget_measured();
        self.retry.end_silence();
        self.count_in_flight(roce, nic);
    }

    /// How many requests before `to` have answers outstanding.
    fn fetches_before(&self, to: ExtendedPsn) -> u32 {
        let una = self.sequence.una();
        let mut outstanding = 0;
        for request in self.queue.iter() {
            if request.first >= to {
                break;
            }
            if request.wqe.op.is_answered() {
                let chunk = request.chunk.max(1);
                let done = (una.max(request.first) - request.first) as u32 / chunk;
                let asked = ((to.min(request.end()) - request.first) as u32).div_ceil(chunk);
                outstanding += asked - done.min(asked);
            }
        }
        outstanding
    }

    /// Something is due.
    pub(crate) fn handle_timeout(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Result<(), Fatal> {
        let due = self.retry.take_due(nic.now);
        if due.timeout {
            return self.time_out(roce, nic);
        }
        if due.overdue {
            self.find_losses(roce, nic);
        }
        if due.silence {
            self.on_silence(roce, nic);
        }
        Ok(())
    }

    /// The peer did not answer within the program's timeout.
    fn time_out(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Result<(), Fatal> {
        self.retry.stop_waiting();
        if self.retry.is_peer_gone() {
            if roce.common.state == QpState::Sqd && self.is_drained() {
                // No request is begun, and none will be before the program goes back to RTS.
                return Ok(());
            }
            nic.record(roce.common.qpn, QpEvent::PeerGone);
            self.fail_front(roce, nic, Status::RetryExceeded);
            return Err(Fatal);
        }
        nic.counters.timeouts += 1;
        let timed_out = QpEvent::TimedOut {
            retries_left: self.retry.retries_left(),
            answered: self.retry.round_trip.is_known() || !self.is_before_the_first_answer(roce),
        };
        nic.record(roce.common.qpn, timed_out);
        self.troubles.timeouts = self.troubles.timeouts.wrapping_add(1);
        let repeated = self.retry.is_probing(roce);
        if !self.retry.use_retry() {
            self.fail_front(roce, nic, Status::RetryExceeded);
            return Err(Fatal);
        }
        self.loss.forget_gap();
        if let (false, Some(peer)) = (repeated, roce.peer(nic)) {
            peer.on_timeout(&self.share, roce.mtu);
        }
        self.rewind(roce, nic);
        Ok(())
    }

    /// Nothing was heard for longer than answers take. First an answer is provoked; if none comes, everything counts as lost.
    fn on_silence(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        self.retry.stop_expecting();
        if self.sequence.is_idle() || self.retry.is_quiet() {
            return;
        }
        let wait = self.retry.count_silence();
        nic.record(roce.common.qpn, QpEvent::Silence);
        if self.retry.silences() == 1 || !self.retry.round_trip.is_known() {
            self.provoke(nic.now, roce.mtu);
        } else {
            let (una, next) = (self.sequence.una(), self.sequence.next());
            let known = self.loss.begin(una);
            known.board.distrust(self.sequence.executed().max(una));
            let lost = known.board.lose_all(next, nic.now);
            known.provokes = true;
            // The peer may have lost its report of a gap too.
            self.loss.forget_gap();
            self.report_lost(roce, nic, lost);
        }
        self.count_in_flight(roce, nic);
        self.retry.expect_by(nic.now + wait);
    }

    /// Sends one packet again to hear how far the peer is.
    fn provoke(&mut self, now: Time, mtu: u32) {
        let una = self.sequence.una();
        let Some((first, end)) = self.provoking_packet() else {
            return;
        };
        let is_sent_anyway = self.first_lost(mtu).is_some();
        let known = self.loss.begin(una);
        known.provokes = true;
        if is_sent_anyway {
            return;
        }
        known.board.lose(first, end, now);
        if known.board.is_complete() {
            // The peer held everything, and yet it does not go on.
            known.board.distrust(self.sequence.executed().max(una));
            known.board.lose(first, end, now);
        }
    }

    /// The last one, because whatever is missing shows then; but READs are to be answered from the oldest on. If that did not help,
    /// the oldest: a peer by the book says once that it lacks it, and what it said may be lost.
    fn provoking_packet(&self) -> Option<(ExtendedPsn, ExtendedPsn)> {
        let (una, next) = (self.sequence.una(), self.sequence.next());
        let last = next.prev();
        let newest = self.queue.get(self.position(last))?;
        let oldest = self.queue.get(self.position(una))?;
        if self.retry.silences() == 1 && !newest.wqe.op.is_answered() {
            return Some((last, next));
        }
        let (request, first) = if self.retry.silences() > 1 || oldest.wqe.op.is_answered() {
            (oldest, una)
        } else {
            (newest, newest.chunk_first(last))
        };
        match request.wqe.op {
            SendOp::Read(_)
                if !self.retry.round_trip.is_known() && self.retry.silences() < SILENCES_BEFORE_A_READ =>
            {
                None
            }
            op if op.is_answered() => Some((first, request.chunk_end(first).min(next))),
            _ => Some((first, first.next())),
        }
    }
}
