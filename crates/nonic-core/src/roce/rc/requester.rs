//! The requester half of a reliable connection: turns posted work into packets and answers into
//! completions.
//!
//! Read before touching:
//! - Every packet of the send queue has a number in one endless sequence ([`ExtendedPsn`]); its PSN is the low 24
//!   bits. A READ takes the numbers of its response packets. Three marks move along the sequence:
//!   `una` (the oldest packet not yet acknowledged or answered) ≤ `next` (the next to send) ≤ `sent` (one
//!   past the furthest ever sent). Between `una` and `next` is what is under way.
//! - Loss recovery is go-back-N: `next` returns to `una`. What arrives late from the first attempt is still
//!   taken, and pulls `next` forward.
//! - A READ is asked for in chunks no larger than the window to the peer, so that its answers cannot
//!   overrun our own socket. Chunk borders are fixed per request: a repeated request never spans two, which
//!   is what responders expect of a duplicate.
//! - An acknowledgement for a packet behind an unanswered READ or atomic means that the answer was lost.
//! - Packets before `written_off` do not count in the window any more: the queue pair stalled with them under
//!   way (`window.rs`). Going back makes everything count again.
//! - Work completes strictly in order, from the front of the queue.
//! - While nothing is under way, a WRITE or READ may be executed in the memory of a peer on this host, without packets
//!   (`direct`).

use super::direct_progress::DirectProgress;
use crate::qp::{QpState, RnrTimer};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::{Batch, Emit, Fatal};
use crate::roce::extended_psn::ExtendedPsn;
use crate::roce::request_packet::{RequestPacket, packets_of};
use crate::roce::segment::Segment;
use crate::roce::window::{NoRoom, Share};
use crate::time::Time;
use crate::verbs::memory::{Access, SgFault};
use crate::verbs::work::{SendFlags, SendOp, Status};
use crate::verbs::wqe::SendWqe;
use nonic_wire::{AethKind, NakCode, Operation, Packet, Psn};
use std::collections::VecDeque;

/// `rnr_retry` of 7 means: for ever.
const RNR_RETRY_INFINITE: u8 = 7;

/// At the latest, every this many packets of a long message ask for an acknowledgement.
const ACK_REQUEST_INTERVAL: u32 = 16;

/// The requester half.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    pub(super) queue: VecDeque<RcRequest>,
    /// The first packet of the next request to be posted.
    tail: ExtendedPsn,
    pub(super) una: ExtendedPsn,
    pub(super) next: ExtendedPsn,
    pub(super) sent: ExtendedPsn,
    /// Index in the queue of the request that `next` lies in.
    pub(super) cursor: usize,
    /// Requests under way that are answered each on its own: READs, atomics, ATOMIC_WRITEs and FLUSHes.
    pub(super) fetches: u32,
    pub(super) since_ack_request: u32,
    /// One past the furthest packet that an answer was asked for since the last rewind.
    pub(super) asked: ExtendedPsn,
    retry_left: u8,
    rnr_left: u8,
    pub(crate) timers: RequesterTimers,
    /// The value of `una` for which a reported gap was already acted on.
    pub(super) rewound_at: Option<ExtendedPsn>,
    /// Where a READ was last asked for again within a chunk: the answer may begin anew there.
    restarted_at: Option<ExtendedPsn>,
    /// Packets before this one are under way but count no more.
    written_off: ExtendedPsn,
    /// Until everything before this packet is acknowledged, one packet at a time is under way.
    cautious_until: ExtendedPsn,
    /// What the peer's window has been told is under way.
    share: Share,
    /// A packet whose answer was asked for, and when: its round trip is being measured.
    measured: Option<(ExtendedPsn, Time)>,
    /// How far the front request was executed without packets.
    pub(super) direct: DirectProgress,
    /// Whether the latest attempt to do without packets went well.
    pub(super) direct_works: bool,
}

/// A request with the packets it takes.
#[derive(Debug)]
pub(super) struct RcRequest {
    pub(super) wqe: SendWqe,
    /// Its first packet. A READ takes the numbers of its responses.
    pub(super) first: ExtendedPsn,
    /// How many packets it takes; zero for local operations.
    packets: u32,
    /// For READs: how many packets one request asks for, fixed when the first one is sent.
    chunk: u32,
}

impl RcRequest {
    /// One past its last packet.
    pub(super) fn end(&self) -> ExtendedPsn {
        self.first + self.packets
    }

    /// For READs: how many responses there are from `index` to the end of its chunk.
    fn left_in_chunk(&self, index: u32) -> u32 {
        (self.chunk - index % self.chunk).min(self.packets - index)
    }
}

/// When the requester wants to be woken.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequesterTimers {
    /// The peer must have answered by then.
    pub(crate) retransmit_at: Option<Time>,
    /// The peer asked for quiet until then.
    pub(crate) quiet_until: Option<Time>,
}

impl Requester {
    /// Starts the packet sequence. Called on the way to RTS.
    pub(crate) fn start(&mut self, roce: &RoceContext) {
        let start = ExtendedPsn::starting_at(roce.sq_psn);
        (self.tail, self.una, self.next, self.sent) = (start, start, start, start);
        (self.asked, self.written_off, self.cautious_until) = (start, start, start);
        self.reset_retries(roce);
    }

    /// How many requests are queued.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether a request has not been sent yet, or must be sent again.
    pub(crate) fn has_unsent(&self) -> bool {
        self.cursor < self.queue.len()
    }

    /// What this queue pair has in the peer's window.
    pub(crate) fn share(&mut self) -> &mut Share {
        &mut self.share
    }

    /// Whether the peer was asked to answer something that it has not answered yet.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.next > self.una && self.asked > self.una
    }

    /// The same in bytes.
    pub(crate) fn counted(&self) -> u64 {
        self.share.bytes()
    }

    /// Whether nothing is under way and no request is half sent.
    pub(crate) fn is_drained(&self) -> bool {
        // `sent`, not `next`: what was taken back to be repeated is still under way.
        self.una == self.sent
            && self.queue.front().is_none_or(|request| request.first == self.una)
            && !self.direct.is_begun()
    }

    pub(crate) fn post(&mut self, roce: &RoceContext, wqe: SendWqe) {
        let request = RcRequest {
            packets: packets_of(&wqe, roce.mtu),
            wqe,
            first: self.tail,
            chunk: 0,
        };
        self.tail = request.end();
        self.queue.push_back(request);
    }

    /// Writes the next packet, if there is one and it fits the batch.
    pub(crate) fn emit(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        batch: &Batch,
        out: &mut [u8],
    ) -> Emit {
        if self.timers.quiet_until.is_some() || !roce.common.state.requests() {
            return Emit::Idle;
        }
        if self.is_cautious(roce) && self.share.bytes() > 0 {
            return Emit::Idle;
        }
        loop {
            let Some(request) = self.queue.get(self.cursor) else {
                return Emit::Idle;
            };
            if request.packets == 0 {
                match self.run_local(roce, nic) {
                    Emit::Packet(_) => continue,
                    other => return other,
                }
            }
            let index = (self.next - request.first) as u32;
            if index == 0 && !self.may_start(roce, request) {
                return Emit::Idle;
            }
            if request.wqe.op.is_answered() && self.fetches >= u32::from(roce.common.max_rd_atomic) {
                return Emit::Idle;
            }
            if index == 0 && self.waits_for_quiescence(nic, request) {
                return Emit::Idle;
            }
            if index == 0
                && let Some(bytes) = self.execute_directly(roce, nic)
            {
                return Emit::Direct(bytes);
            }
            return self.emit_packet(roce, nic, index, batch, out);
        }
    }

    /// A peer that did not answer in time is asked with one packet at a time until it does, one that was not
    /// ready until it is, and one that answers slowly until it has caught up. Otherwise a connection to a
    /// process that is gone or slow would keep the window to its host from all the others.
    pub(super) fn is_cautious(&self, roce: &RoceContext) -> bool {
        self.is_probing(roce) || self.una < self.cautious_until
    }

    fn is_probing(&self, roce: &RoceContext) -> bool {
        self.retry_left < roce.retry_count
    }

    fn may_start(&self, roce: &RoceContext, request: &RcRequest) -> bool {
        let fenced = request.wqe.flags.contains(SendFlags::FENCE) && self.fetches > 0;
        let begun = self.next < self.sent || (self.cursor == 0 && self.direct.is_begun());
        let draining = roce.common.state == QpState::Sqd && !begun;
        !fenced && !draining
    }

    /// Runs the local operation at the cursor, once everything before it is complete.
    fn run_local(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) -> Emit {
        if self.cursor != 0 || roce.common.state == QpState::Sqd {
            return Emit::Idle;
        }
        let Some(request) = self.queue.pop_front() else {
            return Emit::Idle;
        };
        match roce.common.run_local(nic, request.wqe.op) {
            Ok(()) => {
                roce.common.complete_send(nic, &request.wqe, Status::Success);
                Emit::Packet(0)
            }
            Err(status) => {
                roce.common.complete_send(nic, &request.wqe, status);
                Emit::Failed
            }
        }
    }

    fn emit_packet(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        index: u32,
        batch: &Batch,
        out: &mut [u8],
    ) -> Emit {
        let cautious = self.is_cautious(roce);
        let mtu = roce.mtu;
        let Some(peer) = roce.peer(nic) else {
            return Emit::Idle;
        };
        let request = &mut self.queue[self.cursor];
        let packet = if matches!(request.wqe.op, SendOp::Read(_)) {
            if request.chunk == 0 {
                request.chunk = (peer.largest_read() / mtu).clamp(1, request.packets);
            }
            RequestPacket::of_read(&request.wqe, index, request.left_in_chunk(index), mtu)
        } else {
            RequestPacket::of_message(&request.wqe, index, mtu)
        };
        let cost = packet.psns * mtu;
        // Other queue pairs may fill the window in the middle of our message, or it may shrink. If no answer
        // to anything under way was asked for, none would ever come to open it again: ask with one packet
        // more instead of waiting for a timeout.
        let must_ask = self.next > self.una && self.asked <= self.una;
        if !peer.admits(&self.share, cost, batch.in_turn) && !must_ask {
            return match peer.refusal(&self.share) {
                NoRoom::Stalled => Emit::Idle,
                NoRoom::FairShare => Emit::FairShare(cost),
                NoRoom::Full => Emit::Window(cost),
            };
        }
        if packet.wire_len(roce) > batch.max_len {
            return Emit::NotInBatch;
        }
        let fills_window = peer.is_filled_by(&self.share, cost, mtu, batch.in_turn);
        let interval = (peer.part() / mtu / 4).clamp(1, ACK_REQUEST_INTERVAL);
        self.since_ack_request += 1;
        let ack_request =
            packet.segment.last || fills_window || self.since_ack_request >= interval || cautious;

        let psn = self.next.psn();
        let needed = if request.wqe.op.fetches() {
            Access::LOCAL_WRITE
        } else {
            Access::empty()
        };
        let checked = if index == 0 {
            request.wqe.payload.check(needed)
        } else {
            Ok(())
        };
        let written = checked.and_then(|()| packet.write(roce, &request.wqe, psn, ack_request, out));
        let Ok(length) = written else {
            return self.local_fault(roce, nic, Status::LocalProtection);
        };
        if ack_request {
            self.since_ack_request = 0;
            self.asked = self.next + packet.psns;
            self.measured.get_or_insert((self.asked, nic.now));
        }
        self.sent_packet(roce, nic, &packet);
        Emit::Packet(length)
    }

    /// A local key does not permit the access. Requests before this one end first.
    fn local_fault(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>, status: Status) -> Emit {
        if self.cursor != 0 {
            return Emit::Idle;
        }
        self.fail_front(roce, nic, status);
        Emit::Failed
    }

    fn sent_packet(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>, packet: &RequestPacket) {
        if self.next < self.sent {
            nic.counters.retransmitted_packets += 1;
        }
        let request = &self.queue[self.cursor];
        self.fetches += u32::from(request.wqe.op.is_answered());
        if packet.operation == Operation::ReadRequest {
            self.restarted_at = Some(self.next);
        }
        self.next += packet.psns;
        self.sent = self.sent.max(self.next);
        if self.next == request.end() {
            self.cursor += 1;
        }
        if self.timers.retransmit_at.is_none() {
            self.arm_retransmit(roce, nic.now);
        }
        self.count_in_flight(roce, nic);
    }

    /// Takes a packet from the peer's responder.
    pub(crate) fn handle(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        let Some(psn) = self.find(packet.headers.bth.psn) else {
            return Ok(());
        };
        match packet.headers.bth.opcode.operation() {
            Operation::Acknowledge => self.handle_aeth(roce, nic, psn, packet),
            Operation::AtomicAcknowledge => {
                let original = packet.headers.atomic_original.to_ne_bytes();
                self.handle_fetched(roce, nic, psn, &original, None)
            }
            operation if operation.is_read_response() => {
                self.handle_fetched(roce, nic, psn, packet.payload, Some(operation))
            }
            _ => Ok(()),
        }
    }

    /// The packet that a PSN from the peer means: one that was sent and is not yet done with.
    fn find(&self, psn: Psn) -> Option<ExtendedPsn> {
        let psn = self.una.nearest(psn)?;
        (self.una..self.sent).contains(&psn).then_some(psn)
    }

    fn handle_aeth(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        psn: ExtendedPsn,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        let kind = packet.headers.aeth.syndrome.kind();
        if let AethKind::Ack { .. } = kind {
            self.acknowledge(roce, nic, psn.next());
            return Ok(());
        }
        // Every other kind is about this packet itself and acknowledges what is before it.
        self.acknowledge(roce, nic, psn);
        if self.una != psn {
            return Ok(());
        }
        match kind {
            AethKind::RnrNak { timer } => self.receiver_not_ready(roce, nic, timer),
            AethKind::Nak(NakCode::PsnSequenceError) => {
                nic.counters.naks_received += 1;
                self.rewind_once(roce, nic);
                Ok(())
            }
            AethKind::Nak(code) => {
                nic.counters.naks_received += 1;
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

    fn receiver_not_ready(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        timer: u8,
    ) -> Result<(), Fatal> {
        nic.counters.rnr_naks_received += 1;
        if self.timers.quiet_until.is_some() {
            // A duplicate of the one being waited out.
            return Ok(());
        }
        if roce.rnr_retry != RNR_RETRY_INFINITE {
            if self.rnr_left == 0 {
                self.fail_front(roce, nic, Status::RnrRetryExceeded);
                return Err(Fatal);
            }
            self.rnr_left -= 1;
        }
        self.rewind(roce, nic);
        let quiet = RnrTimer::from_code(timer & 0x1f)
            .expect("masked to five bits")
            .duration();
        self.timers = RequesterTimers {
            retransmit_at: None,
            quiet_until: Some(nic.now + quiet),
        };
        self.cautious_until = self.una.next();
        Ok(())
    }

    /// Everything before `up_to` was executed by the peer.
    fn acknowledge(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>, up_to: ExtendedPsn) {
        let before = self.una;
        let mut answer_lost = false;
        while self.una < up_to {
            let Some(request) = self.queue.front() else { break };
            if request.wqe.op.is_answered() {
                answer_lost = true;
                break;
            }
            if up_to < request.end() {
                self.una = up_to;
                break;
            }
            self.una = request.end();
            self.finish_front(roce, nic);
        }
        if self.una > before {
            self.progressed(roce, nic, before);
        }
        if answer_lost {
            self.rewind_once(roce, nic);
        }
    }

    /// A READ response or an atomic's answer, which is not one of a sequence, arrived. The former also answers
    /// ATOMIC_WRITEs and FLUSHes.
    fn handle_fetched(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        psn: ExtendedPsn,
        data: &[u8],
        response: Option<Operation>,
    ) -> Result<(), Fatal> {
        // It also acknowledges every request before it.
        self.acknowledge(roce, nic, psn);
        let Some(request) = self.queue.front() else {
            return Ok(());
        };
        let atomic = response.is_none();
        if self.una != psn || !request.wqe.op.is_answered() || request.wqe.op.is_atomic() != atomic {
            return Ok(());
        }
        // One out of place is no answer to what we asked: as good as lost.
        if response.is_some_and(|operation| !self.fits(request, psn, operation)) {
            return Ok(());
        }
        let index = (psn - request.first) as u32;
        let segment = Segment::of(request.wqe.length, index, roce.mtu);
        let expected = match request.wqe.op {
            _ if atomic => 8,
            SendOp::Read(_) => segment.length as usize,
            // The answer to an ATOMIC_WRITE or a FLUSH is an empty READ response.
            _ => 0,
        };
        let placed = if data.len() != expected {
            Err(Status::BadResponse)
        } else if !request.wqe.op.fetches() {
            Ok(())
        } else {
            request
                .wqe
                .payload
                .scatter(segment.offset, data)
                .map_err(|fault| match fault {
                    SgFault::Protection => Status::LocalProtection,
                    SgFault::Length => Status::LocalLength,
                })
        };
        if let Err(status) = placed {
            self.fail_front(roce, nic, status);
            return Err(Fatal);
        }
        let complete = index + 1 == request.packets;
        let answered = complete || (index + 1).is_multiple_of(request.chunk);
        // After a rewind, a late answer may come to a request that is not counted any more.
        if answered && psn < self.next {
            self.fetches = self.fetches.saturating_sub(1);
        }
        self.una = psn.next();
        if complete {
            self.finish_front(roce, nic);
        }
        self.progressed(roce, nic, psn);
        Ok(())
    }

    /// Whether a READ response of this kind can be the one with this number. It begins where we began to ask: at the border of
    /// a chunk, or where we last asked for the rest of one. There, some responders begin anew and others (rxe) go
    /// on. It ends where the chunk does.
    fn fits(&self, request: &RcRequest, psn: ExtendedPsn, operation: Operation) -> bool {
        let index = (psn - request.first) as u32;
        // What is not a READ is answered by one packet.
        let chunk = request.chunk.max(1);
        let border = index.is_multiple_of(chunk);
        let ends = index + 1 == request.packets || (index + 1).is_multiple_of(chunk);
        let begun_here = border || self.restarted_at == Some(psn);
        match operation {
            Operation::ReadResponseFirst => begun_here && !ends,
            Operation::ReadResponseMiddle => !border && !ends,
            Operation::ReadResponseLast => !border && ends,
            _ => begun_here && ends,
        }
    }

    /// The front request is done.
    pub(super) fn finish_front(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        if let Some(request) = self.queue.pop_front() {
            roce.common.complete_send(nic, &request.wqe, Status::Success);
            self.cursor = self.cursor.saturating_sub(1);
            self.direct = DirectProgress::default();
        }
    }

    /// `una` moved on from `before`.
    fn progressed(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>, before: ExtendedPsn) {
        if self.next < self.una {
            // Answers of an earlier attempt overtook the repetition.
            self.next = self.una;
            self.cursor = 0;
        }
        self.reset_retries(roce);
        self.rewound_at = None;
        // Whatever the peer was not ready for, it has executed since.
        self.timers.quiet_until = None;
        if self.una == self.next {
            self.timers.retransmit_at = None;
        } else {
            self.arm_retransmit(roce, nic.now);
        }
        let bytes = u32::try_from(self.una - before)
            .unwrap_or(u32::MAX)
            .saturating_mul(roce.mtu);
        let now = nic.now;
        if let Some(peer) = roce.peer(nic) {
            if peer.is_stalled(&self.share) {
                // Others have had the room since: it is not taken back from them.
                (self.written_off, self.cautious_until) = (self.next, self.next);
            }
            peer.on_progress(now, &mut self.share, bytes, roce.mtu);
            if let Some((_, asked_at)) = self.measured.take_if(|(psn, _)| *psn <= self.una) {
                peer.on_round_trip(now.since(asked_at));
            }
        }
        self.count_in_flight(roce, nic);
    }

    /// Goes back to the oldest unacknowledged packet, unless that was done already: the responder reports a
    /// gap once, further reports are copies.
    fn rewind_once(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        if self.rewound_at == Some(self.una) {
            return;
        }
        self.rewound_at = Some(self.una);
        if let Some(peer) = roce.peer(nic) {
            peer.on_loss(&self.share, roce.mtu);
        }
        self.rewind(roce, nic);
    }

    fn rewind(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        self.next = self.una;
        self.cursor = 0;
        self.fetches = 0;
        self.since_ack_request = 0;
        self.asked = self.una;
        (self.written_off, self.cautious_until) = (self.una, self.una);
        self.measured = None;
        self.count_in_flight(roce, nic);
    }

    /// The peer did not answer in time.
    pub(crate) fn handle_timeout(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
    ) -> Result<(), Fatal> {
        if self.timers.quiet_until.is_some_and(|until| until <= nic.now) {
            self.timers.quiet_until = None;
        }
        if self.timers.retransmit_at.is_none_or(|at| at > nic.now) {
            return Ok(());
        }
        self.timers.retransmit_at = None;
        nic.counters.timeouts += 1;
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

    /// Ends the front request with an error; the caller flushes the rest.
    fn fail_front(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>, status: Status) {
        if let Some(request) = self.queue.pop_front() {
            roce.common.complete_send(nic, &request.wqe, status);
        }
    }

    /// Ends every queued request as flushed.
    pub(crate) fn flush(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        while let Some(request) = self.queue.pop_front() {
            roce.common.complete_send(nic, &request.wqe, Status::Flushed);
        }
        self.forget(roce, nic);
    }

    /// Drops everything without completions.
    pub(crate) fn forget(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        self.queue = VecDeque::new();
        self.timers = RequesterTimers::default();
        self.tail = self.una;
        self.sent = self.una;
        self.rewound_at = None;
        self.direct = DirectProgress::default();
        self.direct_works = false;
        self.rewind(roce, nic);
    }

    fn arm_retransmit(&mut self, roce: &RoceContext, now: Time) {
        let timeouts = roce.retry_count.saturating_sub(self.retry_left);
        let patience = roce.timeout.after_timeouts(timeouts);
        self.timers.retransmit_at = patience.map(|patience| now + patience);
    }

    pub(super) fn reset_retries(&mut self, roce: &RoceContext) {
        self.retry_left = roce.retry_count;
        self.rnr_left = roce.rnr_retry;
    }

    /// Tells the peer's window how much is under way.
    fn count_in_flight(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        let first = self.una.max(self.written_off);
        let in_flight = (self.next - first) * u64::from(roce.mtu);
        let cautious = self.is_cautious(roce);
        if let Some(peer) = roce.peer(nic) {
            peer.account(&mut self.share, in_flight, cautious);
        }
    }
}
