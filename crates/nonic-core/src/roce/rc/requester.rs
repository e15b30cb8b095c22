//! The requester half of a reliable connection: turns posted work into packets and answers into
//! completions.
//!
//! Read before touching:
//! - [`SequenceCursor`] says where it stands in the sequence of its packets, [`LossRecovery`] what is known of packets that were lost,
//!   [`RetryPolicy`] how long it waits and how often it tries again. Each keeps its own rules; the requester tells them what happened.
//! - Packets that were lost are sent again before new ones, alone or by going back: `next` returns to where the peer reported a gap
//!   (`recovery`). What arrives late from the first attempt is still taken, and pulls `next` forward.
//! - A READ is asked for in chunks no larger than the window to the peer, so that its answers cannot
//!   overrun our own socket. Chunk borders are fixed per request: a repeated request never spans two, which
//!   is what responders expect of a duplicate.
//! - Work completes strictly in order, from the front of the queue (`answers`).

use super::loss_state::LossRecovery;
use super::retry::{RequesterTimers, RetryPolicy};
use super::sequence::SequenceCursor;
use crate::queue_pair::{QpState, Queued, SendQueue};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::{Batch, Emit};
use crate::roce::extended_psn::ExtendedPsn;
use crate::roce::request_packet::{RequestPacket, packets_of};
use crate::roce::window::{NoRoom, PeerWindow, Share};
use crate::time::Time;
use crate::verbs::memory::Access;
use crate::verbs::work::{SendFlags, SendOp, Status};
use crate::verbs::wqe::SendWqe;
use nonic_wire::Operation;

/// At the latest, every this many packets of a long message ask for an acknowledgement.
const ACK_REQUEST_INTERVAL: u64 = 16;

/// The requester half.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    pub(super) queue: SendQueue<RcRequest>,
    pub(super) sequence: SequenceCursor,
    pub(super) loss: LossRecovery,
    pub(super) retry: RetryPolicy,
    /// Requests under way that are answered each on its own: READs, atomics, ATOMIC_WRITEs and FLUSHes.
    pub(super) fetches: u32,
    /// How many messages are done; 24 bits on the wire.
    pub(super) msn: u32,
    /// Whether the peer's latest acknowledgement counted as many.
    pub(super) peer_counts: bool,
    /// When the latest packet was sent.
    pub(super) last_sent: Time,
    /// What the peer's window has been told is under way.
    pub(super) share: Share,
    /// What went wrong since it was started.
    pub(super) troubles: RequesterTroubles,
}

/// Errors of requests, for tools that inspect queue pairs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequesterTroubles {
    pub(crate) timeouts: u32,
    pub(crate) retransmitted_packets: u32,
    pub(crate) naks_received: u32,
    pub(crate) rnr_naks_received: u32,
}

/// A request with the packets it takes.
#[derive(Debug)]
pub(super) struct RcRequest {
    pub(super) wqe: SendWqe,
    /// Its first packet. A READ takes the numbers of its responses.
    pub(super) first: ExtendedPsn,
    /// How many packets it takes; zero for local operations.
    pub(super) packets: u32,
    /// For READs: how many packets one request asks for, fixed when the first one is sent.
    pub(super) chunk: u32,
}

impl RcRequest {
    /// One past its last packet.
    pub(super) fn end(&self) -> ExtendedPsn {
        self.first + self.packets
    }

    /// How many messages it is to the peer.
    pub(super) fn messages(&self) -> u32 {
        self.messages_before(self.end())
    }

    /// How many messages it is to the peer up to this packet: each part of a READ that is asked for in parts is one.
    pub(super) fn messages_before(&self, psn: ExtendedPsn) -> u32 {
        let packets = (psn.clamp(self.first, self.end()) - self.first) as u32;
        match self.chunk {
            0 => u32::from(packets > 0 && packets == self.packets),
            chunk => packets.div_ceil(chunk),
        }
    }

    /// For READs: how many responses there are from `index` to the end of its chunk.
    pub(super) fn left_in_chunk(&self, index: u32) -> u32 {
        (self.chunk - index % self.chunk).min(self.packets - index)
    }

    /// Where the answers begin that one request asked for, `psn` among them.
    pub(super) fn chunk_first(&self, psn: ExtendedPsn) -> ExtendedPsn {
        let index = (psn - self.first) as u32;
        self.first + (index - index % self.chunk.max(1))
    }

    /// One past the last of them.
    pub(super) fn chunk_end(&self, psn: ExtendedPsn) -> ExtendedPsn {
        (self.chunk_first(psn) + self.chunk.max(1)).min(self.end())
    }
}

impl Queued for RcRequest {
    fn wqe(&self) -> &SendWqe {
        &self.wqe
    }
}

impl Requester {
    /// Starts the packet sequence. Called on the way to RTS.
    pub(crate) fn start(&mut self, roce: &RoceContext) {
        let first = ExtendedPsn::starting_at(roce.sq_psn);
        self.sequence = SequenceCursor::starting_at(first);
        self.loss.start(first);
        self.retry.start(roce);
        (self.msn, self.peer_counts) = (0, false);
        self.troubles = RequesterTroubles::default();
    }

    /// Whether it has neither sent nor queued anything since it was started.
    #[inline]
    pub(crate) fn has_sent_nothing(&self, roce: &RoceContext) -> bool {
        self.queue.is_empty() && self.sequence.next() == ExtendedPsn::starting_at(roce.sq_psn)
    }

    /// How many requests are queued.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether a request has not been sent yet, or must be sent again.
    pub(crate) fn has_unsent(&self) -> bool {
        self.queue.has_unsent() || self.loss.has_lost()
    }

    /// Where in the queue the request is that a packet under way belongs to.
    pub(super) fn position(&self, psn: ExtendedPsn) -> usize {
        self.queue.partition_point(|request| request.end() <= psn)
    }

    /// What this queue pair has in the peer's window.
    pub(crate) fn share(&mut self) -> &mut Share {
        &mut self.share
    }

    /// Whether the peer was asked to answer something that it has not answered yet.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.sequence.awaits_answer()
    }

    /// The same in bytes.
    pub(crate) fn counted(&self) -> u64 {
        self.share.bytes()
    }

    /// Whether nothing is under way and no request is half sent.
    pub(crate) fn is_drained(&self) -> bool {
        let una = self.sequence.una();
        self.sequence.is_settled() && self.queue.front().is_none_or(|request| request.first == una)
    }

    /// When it wants to be woken.
    pub(crate) fn timers(&self) -> &RequesterTimers {
        self.retry.timers()
    }

    pub(crate) fn post(&mut self, roce: &RoceContext, wqe: SendWqe) {
        let packets = packets_of(&wqe, roce.mtu);
        self.queue.push(RcRequest {
            wqe,
            first: self.sequence.post(packets),
            packets,
            chunk: 0,
        });
    }

    /// Writes the next packet, if there is one and it fits the batch.
    pub(crate) fn emit(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        batch: &Batch,
        out: &mut [u8],
    ) -> Emit {
        if self.retry.is_quiet() || !roce.common.state.requests() {
            return Emit::Idle;
        }
        if self.awaits_a_sign(roce) {
            return Emit::Idle;
        }
        if self.loss.has_lost() && !self.retry.is_peer_gone() {
            if let Some(resent) = self.resend(roce, nic, batch, out) {
                return resent;
            }
        }
        loop {
            let Some(request) = self.queue.current() else {
                return Emit::Idle;
            };
            if request.packets == 0 {
                match self.run_local(roce, nic) {
                    Emit::Packet(_) => continue,
                    other => return other,
                }
            }
            let index = (self.sequence.next() - request.first) as u32;
            if index == 0 && !self.may_start(roce, request) {
                return Emit::Idle;
            }
            if request.wqe.op.is_answered() && self.fetches >= u32::from(roce.common.max_rd_atomic) {
                return Emit::Idle;
            }
            if self.retry.is_peer_gone() {
                self.retry.wait(roce, nic.now, false);
                return Emit::Idle;
            }
            return self.emit_packet(roce, nic, index, batch, out);
        }
    }

    /// A peer that did not answer in time is asked with one packet at a time until it does, one that was not
    /// ready until it is, and one that answers slowly until it has caught up. Otherwise a connection to a
    /// process that is gone or slow would keep the window to its host from all the others.
    pub(super) fn is_cautious(&self, roce: &RoceContext) -> bool {
        self.retry.is_probing(roce) || self.loss.is_cautious(self.sequence.una())
    }

    fn may_start(&self, roce: &RoceContext, request: &RcRequest) -> bool {
        let fenced = request.wqe.flags.contains(SendFlags::FENCE) && self.fetches > 0;
        let draining = roce.common.state == QpState::Sqd && !self.sequence.is_repeating();
        !fenced && !draining
    }

    /// Runs the local operation at the cursor, once everything before it is complete.
    fn run_local(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Emit {
        if roce.common.state == QpState::Sqd {
            return Emit::Idle;
        }
        match self.queue.run_local(&roce.common, nic) {
            None => Emit::Idle,
            Some(Ok(())) => Emit::Packet(0),
            Some(Err(status)) => {
                self.fail_front(roce, nic, status);
                Emit::Failed
            }
        }
    }

    fn emit_packet(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        index: u32,
        batch: &Batch,
        out: &mut [u8],
    ) -> Emit {
        let cautious = self.is_cautious(roce);
        let mtu = roce.mtu;
        let Some(peer) = roce.peer(nic) else {
            return Emit::Idle;
        };
        let Some(request) = self.queue.current_mut() else {
            return Emit::Idle;
        };
        let packet = if matches!(request.wqe.op, SendOp::Read(_)) {
            if request.chunk == 0 {
                let largest = peer.largest_read(roce.common.max_rd_atomic) / u64::from(mtu);
                request.chunk = largest.clamp(1, u64::from(request.packets)) as u32;
            }
            RequestPacket::of_read(&request.wqe, index, request.left_in_chunk(index), mtu)
        } else {
            RequestPacket::of_message(&request.wqe, index, mtu)
        };
        let cost = packet.psns * mtu;
        // Other queue pairs may fill the window in the middle of our message, or it may shrink. If no answer
        // to anything under way was asked for, none would ever come to open it again: ask with one packet
        // more instead of waiting for a timeout.
        if !self.sequence.must_ask() {
            if let Some(refused) = no_room(peer, &self.share, cost, batch) {
                return refused;
            }
        }
        if packet.wire_len(roce) > batch.max_len {
            return Emit::NotInBatch;
        }
        // An answer must open the window again. If one that was asked for is on its way, that will do. Asking for
        // another, for the few packets that the last answer made room for, would lead to an answer for every few
        // packets from then on.
        let fills_window =
            !self.sequence.has_asked() && peer.is_filled_by(&self.share, cost, mtu, batch.in_turn);
        let unasked = self.sequence.count_unasked();
        let ack_request =
            packet.segment.last || fills_window || cautious || u64::from(unasked) >= ack_interval(peer, mtu);

        let psn = self.sequence.next().psn();
        let needed = if request.wqe.op.fetches() {
            Access::LOCAL_WRITE
        } else {
            Access::empty()
        };
        let checked = if index == 0 {
            request.wqe.payload.check(&nic.keys, needed)
        } else {
            Ok(())
        };
        let written =
            checked.and_then(|()| packet.write(roce, (&request.wqe, &nic.keys), psn, ack_request, out));
        let Ok(length) = written else {
            return self.local_fault(roce, nic, self.queue.cursor(), Status::LocalProtection);
        };
        if ack_request {
            self.asks(roce, nic.now, packet.psns);
        }
        self.sent_packet(roce, nic, &packet);
        Emit::Packet(length)
    }

    /// The packet that is being sent asks for an answer.
    fn asks(&mut self, roce: &RoceContext, now: Time, psns: u32) {
        // Karn's rule: of what was sent before we went back, an answer may be to either copy.
        let measurable = !self.sequence.is_repeating();
        let asked = self.sequence.ask(psns);
        if measurable {
            self.retry.measure(asked, now);
        }
        self.retry.ensure_expecting(roce, now);
    }

    /// A local key does not permit the access. Requests before this one end first.
    pub(super) fn local_fault(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        at: usize,
        status: Status,
    ) -> Emit {
        if at != 0 {
            return Emit::Idle;
        }
        self.fail_front(roce, nic, status);
        Emit::Failed
    }

    fn sent_packet(&mut self, roce: &RoceContext, nic: &mut NicResources, packet: &RequestPacket) {
        if self.sequence.is_repeating() {
            self.count_repetition(nic);
        }
        if packet.operation == Operation::ReadRequest {
            self.loss.note_read(self.sequence.next());
        }
        self.sequence.send(packet.psns);
        self.last_sent = nic.now;
        if let Some(request) = self.queue.current() {
            self.fetches += u32::from(request.wqe.op.is_answered());
            if self.sequence.next() == request.end() {
                self.queue.advance();
            }
        }
        self.retry
            .ensure_waiting(roce, nic.now, self.sequence.has_asked());
        self.count_in_flight(roce, nic);
    }

    pub(super) fn count_repetition(&mut self, nic: &mut NicResources) {
        nic.counters.retransmitted_packets += 1;
        self.troubles.retransmitted_packets = self.troubles.retransmitted_packets.wrapping_add(1);
    }

    /// The front request is done.
    pub(super) fn finish_front(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        let messages = self.queue.front().map_or(0, RcRequest::messages);
        if self.queue.complete_front(&roce.common, nic, Status::Success) {
            self.msn = (self.msn + messages) & 0xff_ffff;
        }
    }

    /// Ends the front request with an error; the caller flushes the rest.
    pub(super) fn fail_front(&mut self, roce: &RoceContext, nic: &mut NicResources, status: Status) {
        self.queue.complete_front(&roce.common, nic, status);
    }

    /// Ends every queued request as flushed.
    pub(crate) fn flush(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        self.queue.flush(&roce.common, nic);
        self.forget(roce, nic);
    }

    /// Drops everything without completions.
    pub(crate) fn forget(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        self.queue.clear();
        self.retry.stop();
        self.loss.forget_gap();
        self.sequence.forget();
        self.rewind(roce, nic);
    }

    /// Tells the peer's window how much is under way.
    pub(super) fn count_in_flight(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        let in_flight = self.loss.counted(&self.sequence) * u64::from(roce.mtu);
        let cautious = self.is_cautious(roce);
        if let Some(peer) = roce.peer(nic) {
            peer.account(&mut self.share, in_flight, cautious);
        }
    }
}

/// What to wait for, if the window to the peer has no room for `cost` bytes more.
pub(super) fn no_room(peer: &PeerWindow, share: &Share, cost: u32, batch: &Batch) -> Option<Emit> {
    if peer.admits(share, cost, batch.in_turn) {
        return None;
    }
    Some(match peer.refusal(share) {
        NoRoom::Stalled => Emit::Idle,
        NoRoom::FairShare => Emit::FairShare(cost),
        NoRoom::Full => Emit::Window(cost),
    })
}

/// Every so many packets ask for an acknowledgement: several times in what one queue pair may have under way.
pub(super) fn ack_interval(peer: &PeerWindow, mtu: u32) -> u64 {
    (peer.part() / u64::from(mtu) / 4).clamp(1, ACK_REQUEST_INTERVAL)
}
