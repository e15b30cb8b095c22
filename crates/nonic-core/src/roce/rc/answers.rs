//! The requester's handling of the peer's packets: acknowledgements, NAKs and answers to READs and atomics.
//!
//! Packets overtake each other, so an acknowledgement may come before the answer to an earlier READ, and the answers to
//! a READ in any order. The scoreboard notes what came early, and answers are kept; the front of the queue completes
//! when everything before has. Only what does not arrive is requested again (`recovery`).

use super::loss_state::Answer;
use super::requester::{RcRequest, Requester};
use crate::queue_pair::RnrTimer;
use crate::record::QpEvent;
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::departure::GONE;
use crate::roce::emit::Fatal;
use crate::roce::extended_psn::ExtendedPsn;
use crate::roce::segment::Segment;
use crate::time::Time;
use crate::verbs::work::{SendOp, Status};
use nonic_wire::{AethKind, NakCode, Operation, Packet, Psn, SelectiveAck, Syndrome};

impl Requester {
    /// Takes a packet from the peer's responder.
    pub(crate) fn handle(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        let original = packet.headers.atomic_original.to_ne_bytes();
        match packet.headers.bth.opcode.operation() {
            Operation::Acknowledge => self.handle_aeth(roce, nic, packet)?,
            Operation::AtomicAcknowledge => {
                let answer = Answer {
                    data: &original,
                    response: None,
                };
                self.handle_answer(roce, nic, packet.headers.bth.psn, answer)?;
            }
            operation if operation.is_read_response() => {
                let answer = Answer {
                    data: packet.payload,
                    response: Some(operation),
                };
                self.handle_answer(roce, nic, packet.headers.bth.psn, answer)?;
            }
            _ => {}
        }
        if self.loss.known().is_some() {
            self.find_losses(roce, nic);
        }
        Ok(())
    }

    fn handle_aeth(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        let kind = packet.headers.aeth.syndrome.kind();
        if let AethKind::Ack { .. } = kind {
            return self.handle_ack(roce, nic, packet);
        }
        let Some(psn) = self.sequence.find(packet.headers.bth.psn) else {
            if is_gone(packet) && packet.headers.bth.psn == self.sequence.sent().psn() {
                return self.handle_gone(roce, nic, packet, self.sequence.sent());
            }
            self.note_other_psn(roce, nic, packet.headers.bth.psn);
            return Ok(());
        };
        if is_gone(packet) {
            return self.handle_gone(roce, nic, packet, psn);
        }
        if psn < self.sequence.executed() || !self.counts_messages(packet, psn) {
            // It was executed since, or the NAK is forged: a forger does not know how far we are.
            return Ok(());
        }
        // Every other kind is about this packet itself and acknowledges what is before it.
        self.acknowledge(roce, nic, psn)?;
        match kind {
            AethKind::RnrNak { timer } => self.receiver_not_ready(roce, nic, psn, timer),
            AethKind::Nak(NakCode::PsnSequenceError) => {
                self.count_nak(nic);
                nic.record(roce.common.qpn, QpEvent::PeerMissesPacket(psn.psn()));
                self.rewind_once(roce, nic, psn);
                Ok(())
            }
            // The answers to what is before it may be on their way. Then it comes again, or the peer is waited for in vain.
            AethKind::Nak(_) if self.sequence.una() != psn => Ok(()),
            AethKind::Nak(code) => {
                self.count_nak(nic);
                nic.record(roce.common.qpn, QpEvent::PeerRefused(code));
                let status = match code {
                    NakCode::RemoteAccessError => Status::RemoteAccess,
                    NakCode::RemoteOperationalError => Status::RemoteOperation,
                    _ => Status::RemoteInvalidRequest,
                };
                self.fail_front(roce, nic, status);
                Err(Fatal)
            }
            _ => Ok(()),
        }
    }

    /// The peer has executed everything before this packet, and its queue pair was destroyed since. Nothing more is
    /// sent. Answers may still be on their way.
    #[cold]
    fn handle_gone(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
        psn: ExtendedPsn,
    ) -> Result<(), Fatal> {
        if self.retry.is_peer_gone() || !self.counts_messages(packet, psn) {
            return Ok(());
        }
        self.retry.lose_peer();
        self.acknowledge(roce, nic, psn)?;
        self.retry.stop_waiting();
        if !self.sequence.is_settled() {
            self.retry.wait(roce, nic.now, false);
        }
        Ok(())
    }

    /// Whether a NAK of the packet with this number counts as many messages before it as we do. That tells a peer's NAK
    /// from a forged one, whose sender would have to guess twice. It is asked only of a peer that was seen to count:
    /// the rxe of older kernels leaves WRITEs out.
    fn counts_messages(&self, packet: &Packet<'_>, psn: ExtendedPsn) -> bool {
        let begun = self.queue.iter().take_while(|request| request.first < psn);
        let before: u32 = begun.map(|request| request.messages_before(psn)).sum();
        let more = packet.headers.aeth.msn.wrapping_sub(self.msn + before) & 0xff_ffff;
        // A queue pair that is gone may have executed what it cannot answer any more.
        let allowed: u32 = match is_gone(packet) {
            true => self.queue.iter().map(RcRequest::messages).sum(),
            false => 0,
        };
        !self.peer_counts || more <= allowed
    }

    /// Whether the peer still waits for a packet from before the first. What it says it holds is then as good as lost: it will never execute it.
    fn is_before_the_first(&self, roce: &RoceContext, up_to: ExtendedPsn) -> bool {
        up_to < self.sequence.una() && self.is_before_the_first_answer(roce)
    }

    /// Whether the peer has executed nothing yet.
    pub(super) fn is_before_the_first_answer(&self, roce: &RoceContext) -> bool {
        self.sequence.una() == ExtendedPsn::starting_at(roce.sq_psn)
    }

    /// The peer names a packet that was never sent. If it has never executed one of ours, the two sides do not agree on
    /// the first PSN.
    #[cold]
    fn note_other_psn(&self, roce: &RoceContext, nic: &mut NicResources, expected: Psn) {
        if self.is_before_the_first_answer(roce) {
            let first = roce.sq_psn;
            let expected = Some(expected);
            nic.record(roce.common.qpn, QpEvent::PeerExpectsOther { expected, first });
        }
    }

    fn count_nak(&mut self, nic: &mut NicResources) {
        nic.counters.naks_received += 1;
        self.troubles.naks_received = self.troubles.naks_received.wrapping_add(1);
    }

    fn handle_ack(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        let Some(last) = self.sequence.una().nearest(packet.headers.bth.psn) else {
            return Ok(());
        };
        let up_to = last.next();
        if up_to > self.sequence.sent() || self.is_before_the_first(roce, up_to) {
            self.note_other_psn(roce, nic, up_to.psn());
            return Ok(());
        }
        if up_to > self.sequence.una() {
            self.acknowledge(roce, nic, up_to)?;
            if up_to == self.sequence.una() {
                self.peer_counts = packet.headers.aeth.msn == self.msn;
            }
        }
        // A selective one need not say anything new about what was executed.
        if packet.headers.bth.is_selective() {
            if let Some(selective) = SelectiveAck::of(packet) {
                self.note_held(roce, nic, &selective);
            }
        }
        Ok(())
    }

    fn receiver_not_ready(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        psn: ExtendedPsn,
        timer: u8,
    ) -> Result<(), Fatal> {
        nic.counters.rnr_naks_received += 1;
        self.troubles.rnr_naks_received = self.troubles.rnr_naks_received.wrapping_add(1);
        if self.retry.is_quiet() {
            // A duplicate of the one being waited out.
            return Ok(());
        }
        let retries_left = self.retry.rnr_retries(roce);
        nic.record(roce.common.qpn, QpEvent::PeerNotReady { retries_left });
        // Answers to what is before it may be on their way: then it is not this request's turn to fail.
        if self.sequence.una() == psn && !self.retry.use_rnr_retry(roce) {
            self.fail_front(roce, nic, Status::RnrRetryExceeded);
            return Err(Fatal);
        }
        self.rewind_to(roce, nic, psn);
        let quiet = RnrTimer::from_code(timer & 0x1f)
            .expect("masked to five bits")
            .duration();
        self.retry.keep_quiet(nic.now + quiet);
        self.loss.be_cautious_until(psn.next());
        Ok(())
    }

    /// Everything before `up_to` was executed by the peer.
    fn acknowledge(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        up_to: ExtendedPsn,
    ) -> Result<(), Fatal> {
        self.sequence.execute_to(up_to);
        let before = self.sequence.una();
        self.advance(roce, nic)?;
        if self.sequence.una() > before {
            self.una_moved(roce, nic, before);
        }
        if self.sequence.una() < self.sequence.executed() {
            self.note_overtaken(roce, nic);
        }
        Ok(())
    }

    /// Completes what can be completed: what the peer has executed and, if it owes an answer, answered.
    fn advance(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Result<(), Fatal> {
        while let Some(request) = self.queue.front() {
            if request.wqe.op.is_answered() {
                let (una, known) = (self.sequence.una(), self.loss.known_mut());
                let Some(kept) = known.and_then(|known| known.take_answer(una)) else {
                    return Ok(());
                };
                self.place(roce, nic, kept.as_answer())?;
            } else if self.sequence.executed() < request.end() {
                self.sequence.acknowledge_to(self.sequence.executed());
                return Ok(());
            } else if self.sequence.una() < request.end() {
                self.sequence.acknowledge_to(request.end());
                self.finish_front(roce, nic);
            } else {
                // A local operation, which waits for its turn to be sent.
                return Ok(());
            }
        }
        Ok(())
    }

    /// A READ response or an atomic's answer, which is not one of a sequence, arrived.
    fn handle_answer(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        psn: Psn,
        answer: Answer<'_>,
    ) -> Result<(), Fatal> {
        let Some(psn) = self.sequence.find(psn) else {
            return Ok(());
        };
        // It also acknowledges every request before it.
        self.acknowledge(roce, nic, psn)?;
        if psn > self.sequence.una() {
            self.keep(roce, nic, psn, answer);
            return Ok(());
        }
        let suits = self
            .queue
            .front()
            .is_some_and(|request| self.suits(request, psn, answer));
        if self.sequence.una() != psn || !suits {
            return Ok(());
        }
        self.place(roce, nic, answer)?;
        self.sequence.execute_to(self.sequence.una());
        self.advance(roce, nic)?;
        self.una_moved(roce, nic, psn);
        Ok(())
    }

    /// Whether it is an answer to what we asked. One that is not is as good as lost.
    pub(super) fn suits(&self, request: &RcRequest, psn: ExtendedPsn, answer: Answer<'_>) -> bool {
        request.wqe.op.is_answered()
            && request.wqe.op.is_atomic() == answer.response.is_none()
            && answer
                .response
                .is_none_or(|operation| self.fits(request, psn, operation))
    }

    /// Whether a READ response of this kind can be the one with this number. It begins where we began to ask: at the border of
    /// a chunk, or where we asked for a part of one again. There, some responders begin anew and others (rxe) go
    /// on. It ends where the chunk does, or such a part.
    fn fits(&self, request: &RcRequest, psn: ExtendedPsn, operation: Operation) -> bool {
        let index = (psn - request.first) as u32;
        // What is not a READ is answered by one packet.
        let chunk = request.chunk.max(1);
        let border = index % chunk == 0;
        let last = index + 1 == request.packets || (index + 1) % chunk == 0;
        let begins = border || self.loss.begins_part(psn);
        let ends = last || self.loss.ends_part(psn);
        match operation {
            Operation::ReadResponseFirst => begins && !last,
            Operation::ReadResponseMiddle => !border && !last,
            Operation::ReadResponseLast => !border && ends,
            _ => begins && ends,
        }
    }

    /// Places the answer to the oldest packet.
    fn place(&mut self, roce: &RoceContext, nic: &mut NicResources, answer: Answer<'_>) -> Result<(), Fatal> {
        let psn = self.sequence.una();
        let Some(request) = self.queue.front() else {
            return Ok(());
        };
        let index = (psn - request.first) as u32;
        let placed = if answer.data.len() != expected_length(request, psn, roce.mtu) {
            Err(Status::BadResponse)
        } else if !request.wqe.op.fetches() {
            Ok(())
        } else {
            let offset = u64::from(index) * u64::from(roce.mtu);
            request
                .wqe
                .payload
                .scatter(&nic.keys, offset, answer.data)
                .map_err(Status::from)
        };
        if let Err(status) = placed {
            self.fail_front(roce, nic, status);
            return Err(Fatal);
        }
        let complete = index + 1 == request.packets;
        let answered = complete || (index + 1).checked_rem(request.chunk) == Some(0);
        // After a rewind, a late answer may come to a request that is not counted any more.
        if answered && psn < self.sequence.next() {
            self.fetches = self.fetches.saturating_sub(1);
        }
        self.sequence.acknowledge_to(psn.next());
        if complete {
            self.finish_front(roce, nic);
        }
        Ok(())
    }

    /// `una` moved on from `before`.
    fn una_moved(&mut self, roce: &RoceContext, nic: &mut NicResources, before: ExtendedPsn) {
        // The peer has executed whatever it was not ready for.
        if self.sequence.executed() > self.sequence.next() {
            self.retry.end_quiet();
        }
        if self.sequence.catch_up() {
            self.queue.go_back_to(0);
        }
        self.loss.forget_gap();
        let una = self.sequence.una();
        let mut packets = una - before;
        let too_soon = self.retry.round_trip.smoothed() / 2;
        if let Some(known) = self.loss.known_mut() {
            let watched = known.board.end().min(una);
            let arrived = known.board.done_before(una, nic.now, too_soon);
            // The others were counted when they arrived.
            packets = (una - watched.max(before)) + arrived.packets;
            self.learn(&arrived);
            if self.loss.end_if_over(una) {
                self.retry.watch_overdue(None);
            }
        }
        self.progressed(roce, nic, packets);
    }

    /// So many packets are known to have arrived that were not before.
    pub(super) fn progressed(&mut self, roce: &RoceContext, nic: &mut NicResources, packets: u64) {
        self.retry.renew(roce);
        self.retry.end_silence();
        if self.sequence.is_idle() || self.retry.is_quiet() {
            self.retry.stop_waiting();
        } else {
            self.retry.wait(roce, nic.now, self.sequence.has_asked());
        }
        let bytes = u32::try_from(packets)
            .unwrap_or(u32::MAX)
            .saturating_mul(roce.mtu);
        let now = nic.now;
        if let Some(peer) = roce.peer(nic) {
            if peer.is_stalled(&self.share) {
                // Others have had the room since: it is not taken back from them.
                self.loss.write_off(self.sequence.next());
            }
            peer.on_progress(now, &mut self.share, bytes, roce.mtu);
        }
        if let Some(asked_at) = self.retry.take_measured(None, self.sequence.una()) {
            self.sample_round_trip(roce, nic, asked_at);
        }
        self.count_in_flight(roce, nic);
        if self.loss.is_cautious(self.sequence.una()) && self.share.bytes() == 0 {
            self.end_caution(roce, nic);
        }
    }

    /// The one packet that was under way was answered. If that was prompt, the peer is not slow: packets were lost, or it was
    /// without a processor for a while.
    fn end_caution(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        let took = nic.now.since(self.last_sent);
        if roce.peer(nic).is_some_and(|peer| took <= peer.prompt()) {
            self.loss.be_cautious_until(self.sequence.una());
        }
    }

    pub(super) fn sample_round_trip(&mut self, roce: &RoceContext, nic: &mut NicResources, asked_at: Time) {
        let (now, took) = (nic.now, nic.now.since(asked_at));
        self.retry.round_trip.sample(took);
        if let Some(peer) = roce.peer(nic) {
            peer.on_round_trip(now, took);
        }
    }
}

/// Whether the packet says that the peer's queue pair was destroyed.
fn is_gone(packet: &Packet<'_>) -> bool {
    packet.headers.bth.is_selective() && packet.headers.aeth.syndrome == Syndrome::nak(GONE)
}

/// How many bytes the answer with this number must have.
pub(super) fn expected_length(request: &RcRequest, psn: ExtendedPsn, mtu: u32) -> usize {
    match request.wqe.op {
        op if op.is_atomic() => 8,
        SendOp::Read(_) => {
            let index = (psn - request.first) as u32;
            Segment::of(request.wqe.length, index, mtu).length as usize
        }
        // The answer to an ATOMIC_WRITE or a FLUSH is an empty READ response.
        _ => 0,
    }
}
