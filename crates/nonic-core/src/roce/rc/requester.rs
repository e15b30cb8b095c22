//! The requester half of a reliable connection: turns posted work into packets and answers into
//! completions.
//!
//! Read before touching:
//! - Every packet of the send queue has a number in one endless sequence ([`ExtendedPsn`]); its PSN is the low 24
//!   bits. A READ takes the numbers of its response packets. Three marks move along the sequence:
//!   `una` (the oldest packet not yet acknowledged or answered) ≤ `next` (the next to send) ≤ `sent` (one
//!   past the furthest ever sent). Between `una` and `next` is what is under way.
//! - Packets that were lost are sent again before new ones, alone or by going back: `next` returns to where the peer reported a gap
//!   (`recovery`). What arrives late from the first attempt is still taken, and pulls `next` forward.
//! - A READ is asked for in chunks no larger than the window to the peer, so that its answers cannot
//!   overrun our own socket. Chunk borders are fixed per request: a repeated request never spans two, which
//!   is what responders expect of a duplicate.
//! - `executed` is how far the peer reported to have executed. It may lie behind an unanswered READ or atomic, whose
//!   answer is late or lost then (`answers`).
//! - Packets before `written_off` do not count in the window any more: the queue pair stalled with them under
//!   way (`window.rs`). Going back or sending them again makes them count again.
//! - Work completes strictly in order, from the front of the queue.
//! - While nothing is under way, a WRITE or READ may be executed in the memory of a peer on this host, without packets
//!   (`direct`).

use super::direct_progress::DirectProgress;
use super::recovery::Recovery;
use super::round_trip::RoundTrip;
use crate::qp::QpState;
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::departure::GRACE;
use crate::roce::emit::{Batch, Emit};
use crate::roce::extended_psn::ExtendedPsn;
use crate::roce::request_packet::{RequestPacket, packets_of};
use crate::roce::window::{NoRoom, PeerWindow, Share};
use crate::time::Time;
use crate::verbs::memory::Access;
use crate::verbs::work::{SendFlags, SendOp, Status};
use crate::verbs::wqe::SendWqe;
use nonic_wire::Operation;
use std::collections::VecDeque;

/// At the latest, every this many packets of a long message ask for an acknowledgement.
const ACK_REQUEST_INTERVAL: u64 = 16;

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
    /// One past what the peer has executed.
    pub(super) executed: ExtendedPsn,
    /// How many messages are done; 24 bits on the wire.
    pub(super) msn: u32,
    /// Whether the peer's latest acknowledgement counted as many.
    pub(super) peer_counts: bool,
    /// The peer's queue pair was destroyed: nothing is sent any more, and what is not answered soon fails.
    pub(super) peer_gone: bool,
    pub(super) retry_left: u8,
    pub(super) rnr_left: u8,
    /// How often in a row nothing was heard for longer than usual.
    pub(super) silences: u8,
    pub(super) round_trip: RoundTrip,
    pub(crate) timers: RequesterTimers,
    /// The gap that was acted on already, if nothing has been acknowledged since.
    pub(super) rewound_at: Option<ExtendedPsn>,
    /// Where a READ was last asked for again within a chunk: the answer may begin anew there.
    pub(super) restarted_at: Option<ExtendedPsn>,
    /// What is known while packets are missing or came early. Boxed: few queue pairs have one.
    pub(super) recovery: Option<Box<Recovery>>,
    /// Packets before this one are under way but count no more.
    pub(super) written_off: ExtendedPsn,
    /// Until everything before this packet is acknowledged, one packet at a time is under way.
    pub(super) cautious_until: ExtendedPsn,
    /// When the latest packet was sent.
    pub(super) last_sent: Time,
    /// What the peer's window has been told is under way.
    pub(super) share: Share,
    /// A packet whose answer was asked for, and when: its round trip is being measured.
    pub(super) measured: Option<(ExtendedPsn, Time)>,
    /// How far the front request was executed without packets.
    pub(super) direct: DirectProgress,
    /// Whether the latest attempt to do without packets went well.
    pub(super) direct_works: bool,
    /// Bytes that were moved without packets, ever.
    pub(super) direct_bytes: u64,
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

/// When the requester wants to be woken.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequesterTimers {
    /// The program's timeout: the peer must have answered by then.
    pub(crate) retransmit_at: Option<Time>,
    /// The peer asked for quiet until then.
    pub(crate) quiet_until: Option<Time>,
    /// An answer usually comes before.
    pub(crate) silent_at: Option<Time>,
    /// What was overtaken, or sent again, counts as lost then.
    pub(crate) overdue_at: Option<Time>,
}

impl RequesterTimers {
    /// When losses are to be looked for.
    pub(crate) fn recover_at(&self) -> Option<Time> {
        match (self.silent_at, self.overdue_at) {
            (Some(silent_at), Some(overdue_at)) => Some(silent_at.min(overdue_at)),
            (silent_at, overdue_at) => silent_at.or(overdue_at),
        }
    }

    /// No answer is due.
    pub(super) fn stop_waiting(&mut self) {
        (self.retransmit_at, self.silent_at) = (None, None);
    }
}

impl Requester {
    /// Starts the packet sequence. Called on the way to RTS.
    pub(crate) fn start(&mut self, roce: &RoceContext) {
        let start = ExtendedPsn::starting_at(roce.sq_psn);
        (self.tail, self.una, self.next, self.sent) = (start, start, start, start);
        (self.asked, self.written_off, self.cautious_until) = (start, start, start);
        self.executed = start;
        (self.msn, self.peer_counts, self.peer_gone) = (0, false, false);
        self.troubles = RequesterTroubles::default();
        self.reset_retries(roce);
    }

    /// How many requests are queued.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether a request has not been sent yet, or must be sent again.
    pub(crate) fn has_unsent(&self) -> bool {
        self.cursor < self.queue.len() || self.has_lost()
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
        if self.queue.capacity() == 0 {
            // Programs with very many queue pairs have one request under way on most: the next ones make room for more.
            self.queue.reserve_exact(1);
        }
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
        if self.awaits_a_sign(roce) {
            return Emit::Idle;
        }
        if self.has_lost() && !self.peer_gone {
            return self.resend(roce, nic, batch, out);
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
            if self.peer_gone {
                self.arm_retransmit(roce, nic.now);
                return Emit::Idle;
            }
            if index == 0 && self.waits_for_quiescence(nic, request) {
                return Emit::Idle;
            }
            if index == 0 {
                if let Some(executed) = self.execute_directly(roce, nic) {
                    return executed;
                }
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

    pub(super) fn is_probing(&self, roce: &RoceContext) -> bool {
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
        let must_ask = self.next > self.una && self.asked <= self.una;
        if !must_ask {
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
        let fills_window = self.asked <= self.una && peer.is_filled_by(&self.share, cost, mtu, batch.in_turn);
        self.since_ack_request += 1;
        let ack_request = packet.segment.last
            || fills_window
            || cautious
            || u64::from(self.since_ack_request) >= ack_interval(peer, mtu);

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
            return self.local_fault(roce, nic, self.cursor, Status::LocalProtection);
        };
        if ack_request {
            self.asks(roce, nic.now, packet.psns);
        }
        self.sent_packet(roce, nic, &packet);
        Emit::Packet(length)
    }

    /// The packet that is being sent asks for an answer.
    fn asks(&mut self, roce: &RoceContext, now: Time, psns: u32) {
        self.since_ack_request = 0;
        self.asked = self.next + psns;
        // Karn's rule: of what was sent before we went back, an answer may be to either copy.
        if self.next >= self.sent {
            self.measured.get_or_insert((self.asked, now));
        }
        if self.timers.silent_at.is_none() {
            self.arm_silence(roce, now);
        }
    }

    /// A local key does not permit the access. Requests before this one end first.
    pub(super) fn local_fault(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        at: usize,
        status: Status,
    ) -> Emit {
        if at != 0 {
            return Emit::Idle;
        }
        self.fail_front(roce, nic, status);
        Emit::Failed
    }

    fn sent_packet(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>, packet: &RequestPacket) {
        if self.next < self.sent {
            nic.counters.retransmitted_packets += 1;
            self.troubles.retransmitted_packets = self.troubles.retransmitted_packets.wrapping_add(1);
        }
        let request = &self.queue[self.cursor];
        self.fetches += u32::from(request.wqe.op.is_answered());
        if packet.operation == Operation::ReadRequest {
            self.restarted_at = Some(self.next);
        }
        self.next += packet.psns;
        self.sent = self.sent.max(self.next);
        self.last_sent = nic.now;
        if self.next == request.end() {
            self.cursor += 1;
        }
        if self.timers.retransmit_at.is_none() {
            self.arm_retransmit(roce, nic.now);
        }
        self.count_in_flight(roce, nic);
    }

    /// The front request is done.
    pub(super) fn finish_front(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        if let Some(request) = self.queue.pop_front() {
            roce.common.complete_send(nic, &request.wqe, Status::Success);
            self.msn = (self.msn + 1) & 0xff_ffff;
            self.cursor = self.cursor.saturating_sub(1);
            self.direct = DirectProgress::default();
        }
    }

    /// Ends the front request with an error; the caller flushes the rest.
    pub(super) fn fail_front(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>, status: Status) {
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
        self.executed = self.una;
        self.rewind(roce, nic);
    }

    /// The program's timeout begins.
    pub(super) fn arm_retransmit(&mut self, roce: &RoceContext, now: Time) {
        if self.peer_gone {
            self.arm_grace(roce, now);
            return;
        }
        let timeouts = roce.retry_count.saturating_sub(self.retry_left);
        let patience = roce.timeout.after_timeouts(timeouts);
        self.timers.retransmit_at = patience.map(|patience| now + patience);
        self.timers.silent_at = None;
        if self.asked > self.una {
            self.arm_silence(roce, now);
        }
    }

    /// The peer will not answer: starts the time after which the request fails.
    #[cold]
    fn arm_grace(&mut self, roce: &RoceContext, now: Time) {
        let patience = roce.timeout.after_timeouts(0);
        let retries = patience.map_or(GRACE, |patience| patience * (1 + u32::from(self.retry_left)));
        self.timers.silent_at = None;
        self.timers.retransmit_at.get_or_insert(now + retries.min(GRACE));
    }

    /// An answer was asked for, and is expected from now on.
    fn arm_silence(&mut self, roce: &RoceContext, now: Time) {
        // A peer that did not answer in time has the program's timeout, and nothing else. One that never answered is waited for
        // as long as the program says, if that is for ever.
        let patient = self.round_trip.is_known() || roce.timeout.after_timeouts(0).is_some();
        if !self.is_probing(roce) && patient {
            self.set_silent_at(now + self.round_trip.probe_after());
        }
    }

    /// A peer that is silent until `at` is asked again, unless the program's timeout is shorter.
    pub(super) fn set_silent_at(&mut self, at: Time) {
        let allowed = self.timers.retransmit_at.is_none_or(|timeout| at < timeout);
        self.timers.silent_at = allowed.then_some(at);
    }

    pub(super) fn reset_retries(&mut self, roce: &RoceContext) {
        self.retry_left = roce.retry_count;
        self.rnr_left = roce.rnr_retry;
    }

    /// Tells the peer's window how much is under way.
    pub(super) fn count_in_flight(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        let first = self.una.max(self.written_off);
        let packets = match self.recovery.as_deref() {
            None => self.next - first,
            Some(Recovery { board, .. }) => {
                self.next - first.max(board.end()).min(self.next) + board.under_way(first)
            }
        };
        let in_flight = packets * u64::from(roce.mtu);
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
