//! The requester half: turns posted work into records, and their answers into completions.
//!
//! Read before touching:
//! - A request is one record, or several if it is long ([`NicConfig::record_piece`](crate::NicConfig)). They are written in order, as
//!   far as the lane has room. Those of a long SEND that is alone name its bytes, which the peer fetches from our memory; if it cannot, they
//!   are written once more, with the bytes. `next` is the number of the next one, `una` that of the oldest which is not answered.
//! - Answers come in the order of the records. So the one that comes next is about `una`, a record of the request at the front of the
//!   queue. Work completes strictly in order, from there.
//! - A record that was not executed takes `next` back to `una`. What was written behind it is ignored by the peer, and its answers
//!   belong to an attempt that is over.
//! - While nothing is under way, a WRITE, READ or atomic may be executed in the memory of the peer, without a record
//!   ([`DirectState`]). It takes no number: the peer need not know of it.

use super::Written;
use super::direct::{DirectProgress, DirectState, LONGEST_RUN, Moved, follows, is_direct};
use super::header::RecordHeader;
use super::patience::{Due, Patience};
use crate::lanes::{LaneId, RecordAnswer, RecordTag};
use crate::queue_pair::{QpState, QueuePairView, Queued, RnrTimer, SendQueue};
use crate::record::QpEvent;
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::Fatal;
use crate::roce::rc::RequesterTroubles;
use crate::roce::request_packet::packets_of;
use crate::roce::segment::Segment;
use crate::time::Time;
use crate::verbs::memory::Access;
use crate::verbs::work::{SendFlags, SendOp, Status};
use crate::verbs::wqe::SendWqe;
use nonic_wire::{NakCode, Psn, Service};

/// Long requests that follow each other are divided into pieces so many times as long as those of one that is alone.
const LONGER_IN_A_ROW: u32 = 4;

/// The requester half.
#[derive(Debug)]
pub(crate) struct RecordRequester {
    lane: LaneId,
    /// Bytes of payload that a record has, unless it is the last of its request, or of a long one that is not alone.
    piece: u32,
    queue: SendQueue<RecordRequest>,
    /// Number of the next record, and of the oldest that is not answered.
    next: Psn,
    una: Psn,
    /// How far it had written before it went back.
    reached: Psn,
    /// Records of the request at the cursor that are written.
    written: u32,
    /// Records of the request at the front that were executed.
    executed: u32,
    /// How often it went back, from a number that an earlier connection did not begin with.
    attempt: u32,
    /// Requests under way that are answered each on its own: READs, atomics, ATOMIC_WRITEs and FLUSHes.
    fetches: u32,
    /// How often the peer was seen to live: records that were executed, and room that it made in the lane.
    signs: u64,
    direct: DirectState,
    patience: Patience,
    /// The peer did not execute a record: until it has executed one, there is one under way at a time. A lane is for all queue pairs, and
    /// what is written to a peer that is not ready is written in vain.
    cautious: bool,
    /// The lane had no room for the next record.
    blocked: bool,
    /// The peer has not said yet that it cannot fetch the bytes of a SEND.
    pulls: bool,
    /// A watch has begun, and its timer is to be set.
    pub(crate) wants_timer: bool,
    troubles: RequesterTroubles,
}

/// A request with the records it takes.
#[derive(Debug)]
struct RecordRequest {
    wqe: SendWqe,
    /// Zero for local operations.
    records: u32,
    /// Bytes of payload that each of them has or names, but for the last.
    piece: u32,
    /// They name their bytes.
    named: bool,
}

impl RecordRequest {
    /// Of records that carry their bytes.
    #[inline(always)]
    fn new(wqe: SendWqe, piece: u32) -> Self {
        let records = packets_of(&wqe, piece);
        RecordRequest {
            wqe,
            records,
            piece,
            named: false,
        }
    }

    /// Makes it records of other pieces, which name their bytes or carry them.
    fn divide(&mut self, piece: u32, named: bool) {
        self.records = packets_of(&self.wqe, piece);
        (self.piece, self.named) = (piece, named);
    }
}

impl Queued for RecordRequest {
    fn wqe(&self) -> &SendWqe {
        &self.wqe
    }
}

impl RecordRequester {
    /// For a connection to a peer that this lane leads to.
    pub(crate) fn new(roce: &RoceContext, lane: LaneId, piece: u32) -> Self {
        RecordRequester {
            lane,
            piece: piece.max(1),
            queue: SendQueue::default(),
            next: roce.sq_psn,
            una: roce.sq_psn,
            reached: roce.sq_psn,
            written: 0,
            executed: 0,
            attempt: roce.sq_psn.value(),
            fetches: 0,
            signs: 0,
            direct: DirectState::default(),
            patience: Patience::new(roce),
            cautious: false,
            blocked: false,
            pulls: true,
            wants_timer: false,
            troubles: RequesterTroubles::default(),
        }
    }

    pub(crate) fn lane(&self) -> LaneId {
        self.lane
    }

    /// How many requests are queued.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether a request has not been written yet, or must be written again.
    pub(crate) fn has_unsent(&self) -> bool {
        self.queue.has_unsent()
    }

    /// Whether records are under way.
    fn awaits_answer(&self) -> bool {
        self.next != self.una
    }

    /// Whether nothing is under way and no request is half done.
    pub(crate) fn is_drained(&self) -> bool {
        self.next == self.una && !self.is_repeating() && self.executed == 0 && !self.direct.front.is_begun()
    }

    /// Whether the next record was written before.
    fn is_repeating(&self) -> bool {
        self.next != self.reached
    }

    /// When it wants to be woken: because of the program's timeout, and at the end of a pause.
    pub(crate) fn due_at(&self) -> Option<Time> {
        self.patience.due_at()
    }

    /// See [`RecordRequester::due_at`].
    pub(crate) fn quiet_until(&self) -> Option<Time> {
        self.patience.quiet_until()
    }

    /// Queues a request.
    #[inline(always)]
    pub(crate) fn post(&mut self, wqe: SendWqe) {
        self.queue.push(RecordRequest::new(wqe, self.piece));
    }

    /// Whether everything is written but the request that was posted last.
    #[inline]
    pub(crate) fn has_one_unwritten(&self) -> bool {
        self.queue.cursor() + 1 == self.queue.len() && self.written == 0
    }

    /// Writes the next record, or executes a piece of the next request in the memory of the peer.
    pub(crate) fn write(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Written {
        if self.patience.is_quiet() || !roce.common.state.requests() {
            return Written::Idle;
        }
        if self.cautious && self.awaits_answer() {
            return Written::Idle;
        }
        loop {
            let Some(request) = self.queue.current() else {
                return Written::Idle;
            };
            if request.records == 0 {
                match self.run_local(roce, nic) {
                    None => continue,
                    Some(instead) => return instead,
                }
            }
            if self.written == 0 && !self.may_start(roce, request) {
                return Written::Idle;
            }
            if self.patience.is_gone() {
                self.patience.wait_for_the_last(roce, nic.now);
                self.wants_timer = true;
                return Written::Idle;
            }
            if self.written == 0 {
                if self.waits_for_quiescence(nic, request) {
                    return Written::Idle;
                }
                if is_direct(request.wqe.op) {
                    if let Some(executed) = self.execute_directly(roce, nic) {
                        return executed;
                    }
                } else if request.wqe.length >= nic.pull_worth {
                    self.choose_who_copies(roce, nic);
                }
            }
            return self.write_record(roce, nic);
        }
    }

    fn may_start(&self, roce: &RoceContext, request: &RecordRequest) -> bool {
        let RecordRequest { wqe, .. } = request;
        let fenced = wqe.flags.contains(SendFlags::FENCE) && self.fetches > 0;
        let full = wqe.op.is_answered() && self.fetches >= u32::from(roce.common.max_rd_atomic);
        let begun = self.is_repeating() || (self.queue.cursor() == 0 && self.direct.front.is_begun());
        let draining = roce.common.state == QpState::Sqd && !begun;
        !fenced && !full && !draining
    }

    /// Runs the local operation at the cursor, once everything before it is complete. `None` if it is done.
    fn run_local(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Option<Written> {
        if roce.common.state == QpState::Sqd {
            return Some(Written::Idle);
        }
        match self.queue.run_local(&roce.common, nic) {
            None => Some(Written::Idle),
            Some(Ok(())) => None,
            Some(Err(status)) => Some(self.fail(roce, nic, status)),
        }
    }

    /// While that works, a long request waits until it can be executed in the memory of the peer: it is faster afterwards by more
    /// than waiting takes.
    fn waits_for_quiescence(&self, nic: &NicResources, request: &RecordRequest) -> bool {
        self.direct.works
            && self.queue.cursor() > 0
            && !self.is_repeating()
            && request.wqe.length >= nic.direct_worth
            && matches!(request.wqe.op, SendOp::Write(_) | SendOp::Read(_))
    }

    /// Whether WRITEs and READs are executed here, in the memory of the peer: then they may wait for each other.
    #[inline]
    pub(crate) fn executes_by_itself(&self) -> bool {
        self.direct.works
    }

    /// Whether a request that is about to be queued has nothing before it and may begin.
    pub(crate) fn is_alone(&self, roce: &RoceContext) -> bool {
        let hindered = self.patience.is_quiet() || self.patience.is_gone();
        self.queue.is_empty() && self.is_drained() && roce.common.state == QpState::Rts && !hindered
    }

    /// Executes such a request in the memory of the peer. `None` if it is to be queued after all: what was done of it, or that it was
    /// refused, is remembered of the front of the queue, which it then is.
    #[inline]
    pub(crate) fn execute_alone(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        wqe: &SendWqe,
    ) -> Option<Result<(), Fatal>> {
        let status = match self.direct.execute(roce, nic, wqe)? {
            Moved::Piece(_) => return None,
            Moved::All(_) => Status::Success,
            Moved::Lost(status) => status,
        };
        self.signs += 1;
        self.patience.progressed(roce);
        self.direct.front = DirectProgress::default();
        roce.common.complete_send(nic, wqe, status);
        Some(match status {
            Status::Success => Ok(()),
            _ => Err(Fatal),
        })
    }

    /// How many requests at the front may be executed together; less than two is none.
    fn run_length(&self, roce: &RoceContext, nic: &NicResources) -> usize {
        if self.queue.len() < 2 || roce.common.state != QpState::Rts || !self.direct.is_at_beginning() {
            return 0;
        }
        let Some(RecordRequest { wqe: front, .. }) = self.queue.front() else {
            return 0;
        };
        let mut bytes = 0;
        let joins = |RecordRequest { wqe, .. }: &&RecordRequest| {
            bytes += u64::from(wqe.length);
            follows(front, wqe) && bytes <= u64::from(nic.direct_piece)
        };
        self.queue.iter().take(LONGEST_RUN).take_while(joins).count()
    }

    /// Executes what comes next in the memory of the peer, if nothing is under way.
    fn execute_directly(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Option<Written> {
        let quiescent = self.queue.cursor() == 0 && self.next == self.una && !self.is_repeating();
        let request = self.queue.front().filter(|_| quiescent)?;
        let run = self.run_length(roce, nic);
        if run > 1 {
            let wqes = self.queue.iter().take(run).map(Queued::wqe);
            let (executed, bytes) = self.direct.execute_run(roce, nic, wqes);
            if executed > 0 {
                self.signs += 1;
                self.patience.progressed(roce);
                (0..executed).for_each(|_| self.finish_front(roce, nic));
                return Some(Written::Direct(bytes));
            }
        }
        match self.direct.execute(roce, nic, &request.wqe)? {
            Moved::Piece(bytes) => Some(Written::Direct(bytes)),
            Moved::All(bytes) => {
                self.signs += 1;
                self.patience.progressed(roce);
                self.finish_front(roce, nic);
                Some(Written::Direct(bytes))
            }
            Moved::Lost(status) => Some(self.fail(roce, nic, status)),
        }
    }

    /// A long request begins that is no WRITE or READ: whether its records carry its bytes or name them, and how many.
    fn choose_who_copies(&mut self, roce: &RoceContext, nic: &NicResources) {
        // The pieces of both are divided at the same places.
        let most = nic.direct_piece - nic.direct_piece % self.piece;
        let able = self.pulls && most > 0 && nic.direct.is_some() && roce.common.service == Service::Rc;
        // Of several, one processor copies the next in while the other copies the one before it out: that is faster. Of one that is
        // alone, they do so with its pieces.
        let alone = self.next == self.una && self.has_one_unwritten();
        let pulls = able && alone;
        let own = match alone {
            true => self.piece,
            false => self.piece * LONGER_IN_A_ROW,
        };
        if let Some(request) = self.queue.current_mut() {
            let wqe = &request.wqe;
            let named = pulls && wqe.op.is_send() && wqe.payload.named(&nic.keys, 0, wqe.length).is_some();
            request.divide(if named { most } else { own }, named);
        }
    }

    fn write_record(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Written {
        let Some(RecordRequest {
            wqe,
            records,
            piece,
            named,
        }) = self.queue.current()
        else {
            return Written::Idle;
        };
        let part = Segment::of(wqe.length, self.written, *piece);
        // What a READ asks for is written behind the request.
        let (payload, answer) = match wqe.op {
            SendOp::Read(_) => (0, part.length as usize),
            op if op.is_atomic() || *named => (0, 0),
            _ => (part.length as usize, 0),
        };
        // Of a request that is one record, copying its bytes checks all of them.
        let fetches = wqe.op.fetches();
        if self.written == 0 && (fetches || *records > 1 || *named) {
            let needed = match fetches {
                true => Access::LOCAL_WRITE,
                false => Access::empty(),
            };
            if wqe.payload.check(&nic.keys, needed).is_err() {
                return self.local_fault(roce, nic);
            }
        }
        let mut header = RecordHeader::of(roce, wqe, &part, self.next);
        if *named {
            match wqe.payload.named(&nic.keys, part.offset, part.length) {
                Some(bytes) => header.name(bytes, part.length),
                None => return self.local_fault(roce, nic),
            }
        }
        let begin = header.length();
        let length = begin + payload;
        let Some(lanes) = nic.lanes.as_deref_mut() else {
            return Written::Idle;
        };
        let Some(room) = lanes.room(self.lane, length + answer) else {
            self.blocked = true;
            self.wants_timer |= self.patience.written(roce, nic.now);
            return Written::Full;
        };
        self.blocked = false;
        header.emit(room);
        if payload > 0
            && wqe
                .payload
                .gather(&nic.keys, part.offset, &mut room[begin..length])
                .is_err()
        {
            return self.local_fault(roce, nic);
        }
        let tag = RecordTag {
            qpn: roce.common.qpn,
            attempt: self.attempt,
        };
        lanes.publish(self.lane, length, tag);
        self.advance(roce, nic);
        Written::Record(length)
    }

    /// A record was written.
    fn advance(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        let Some(request) = self.queue.current() else {
            return;
        };
        self.fetches += u32::from(self.written == 0 && request.wqe.op.is_answered());
        self.written += 1;
        if self.written == request.records {
            self.written = 0;
            self.queue.advance();
        }
        match self.is_repeating() {
            true => {
                nic.counters.retransmitted_packets += 1;
                self.troubles.retransmitted_packets = self.troubles.retransmitted_packets.wrapping_add(1);
            }
            false => self.reached = self.reached.next(),
        }
        self.next = self.next.next();
        self.wants_timer |= self.patience.written(roce, nic.now);
    }

    /// The peer has answered records of others: it lives, and the lane may have room again.
    #[cold]
    pub(crate) fn unblock(&mut self) {
        self.blocked = false;
        self.signs += 1;
    }

    /// A local key does not permit the access. Requests before this one end first.
    #[cold]
    fn local_fault(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Written {
        match self.queue.cursor() {
            0 => self.fail(roce, nic, Status::LocalProtection),
            _ => Written::Idle,
        }
    }

    /// Takes the answer to the oldest record of an attempt.
    pub(crate) fn handle_answer(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        attempt: u32,
        answer: RecordAnswer,
        bytes: &[u8],
    ) -> Result<(), Fatal> {
        if attempt != self.attempt || self.next == self.una {
            return Ok(());
        }
        match answer {
            RecordAnswer::Executed | RecordAnswer::Fetched(_) => self.executed(roce, nic, answer, bytes),
            RecordAnswer::NotReady(timer) => self.receiver_not_ready(roce, nic, timer),
            RecordAnswer::Refused(code) => self.refused(roce, nic, code),
            RecordAnswer::Ignored => {
                self.ignored(roce, nic);
                Ok(())
            }
            RecordAnswer::Unexpected => {
                // Of a peer that has executed nothing yet, it says that the two do not agree on the first number.
                if self.una == roce.sq_psn {
                    let (expected, first) = (None, roce.sq_psn);
                    nic.record(roce.common.qpn, QpEvent::PeerExpectsOther { expected, first });
                }
                self.ignored(roce, nic);
                Ok(())
            }
            RecordAnswer::Gone => {
                self.lose_peer(roce, nic);
                Ok(())
            }
            RecordAnswer::Unreadable => {
                self.unreadable(roce, nic);
                Ok(())
            }
        }
    }

    /// The oldest record was executed.
    fn executed(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        answer: RecordAnswer,
        bytes: &[u8],
    ) -> Result<(), Fatal> {
        self.una = self.una.next();
        self.cautious = false;
        self.signs += 1;
        self.patience.progressed(roce);
        let Some(RecordRequest { wqe, records, .. }) = self.queue.front() else {
            return Ok(());
        };
        let placed = match (wqe.op, answer) {
            (SendOp::Read(_), RecordAnswer::Executed) => {
                let offset = u64::from(self.executed) * u64::from(self.piece);
                let length = (u64::from(wqe.length) - offset).min(u64::from(self.piece)) as usize;
                match bytes.get(..length) {
                    Some(data) => wqe.payload.scatter(&nic.keys, offset, data).map_err(Status::from),
                    None => Err(Status::BadResponse),
                }
            }
            (op, RecordAnswer::Fetched(word)) if op.is_atomic() => wqe
                .payload
                .scatter(&nic.keys, 0, &word.to_ne_bytes())
                .map_err(Status::from),
            (op, RecordAnswer::Executed) if !op.is_atomic() => Ok(()),
            _ => Err(Status::BadResponse),
        };
        self.executed += 1;
        let (complete, answered) = (self.executed == *records, wqe.op.is_answered());
        if let Err(status) = placed {
            self.fail(roce, nic, status);
            return Err(Fatal);
        }
        if complete {
            self.executed = 0;
            self.fetches -= u32::from(answered);
            self.finish_front(roce, nic);
        }
        Ok(())
    }

    #[cold]
    fn receiver_not_ready(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        timer: u8,
    ) -> Result<(), Fatal> {
        nic.counters.rnr_naks_received += 1;
        self.troubles.rnr_naks_received = self.troubles.rnr_naks_received.wrapping_add(1);
        let retries_left = self.patience.rnr_retries(roce);
        nic.record(roce.common.qpn, QpEvent::PeerNotReady { retries_left });
        let timer = RnrTimer::from_code(timer & 0x1f).expect("masked to five bits");
        if !self.patience.not_ready(roce, nic.now, timer) {
            self.fail(roce, nic, Status::RnrRetryExceeded);
            return Err(Fatal);
        }
        self.go_back();
        Ok(())
    }

    #[cold]
    fn refused(&mut self, roce: &RoceContext, nic: &mut NicResources, code: NakCode) -> Result<(), Fatal> {
        nic.counters.naks_received += 1;
        self.troubles.naks_received = self.troubles.naks_received.wrapping_add(1);
        nic.record(roce.common.qpn, QpEvent::PeerRefused(code));
        let status = match code {
            NakCode::RemoteAccessError => Status::RemoteAccess,
            NakCode::RemoteOperationalError => Status::RemoteOperation,
            _ => Status::RemoteInvalidRequest,
        };
        self.fail(roce, nic, status);
        Err(Fatal)
    }

    /// The peer did not execute the oldest record, and does not say how long it will not.
    #[cold]
    fn ignored(&mut self, roce: &RoceContext, nic: &NicResources) {
        self.go_back();
        self.patience.ignored(roce, nic.now);
    }

    /// The peer cannot fetch the bytes that the oldest record names: it and what follows is written again, with the bytes.
    #[cold]
    fn unreadable(&mut self, roce: &RoceContext, nic: &NicResources) {
        self.pulls = false;
        match self.queue.get_mut(0) {
            Some(front) if front.named => {
                self.executed *= front.piece / self.piece;
                front.divide(self.piece, false);
                self.go_back();
            }
            // It names none.
            _ => self.ignored(roce, nic),
        }
    }

    /// The oldest record was not executed, and so none behind it was: they are written again.
    #[cold]
    fn go_back(&mut self) {
        self.cautious = true;
        // It does not wait for room while it pauses.
        self.blocked = false;
        self.attempt = self.attempt.wrapping_add(1);
        self.next = self.una;
        self.queue.go_back_to(0);
        self.written = self.executed;
        let half_fetched = |request: &RecordRequest| self.executed > 0 && request.wqe.op.is_answered();
        self.fetches = u32::from(self.queue.front().is_some_and(half_fetched));
    }

    /// The peer's queue pair was destroyed, or its process has ended. What it has not executed, it never will.
    #[cold]
    pub(crate) fn lose_peer(&mut self, roce: &RoceContext, nic: &NicResources) {
        if self.patience.is_gone() {
            return;
        }
        self.go_back();
        self.patience.stop();
        self.patience.lose_peer(roce, nic.now);
    }

    /// Runs what is due.
    pub(crate) fn handle_timeout(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Result<(), Fatal> {
        if roce.common.state == QpState::Sqd && self.is_drained() {
            // No request is begun, and none will be before the program goes back to RTS. Until then, the peer owes nothing.
            self.patience.stop();
            return Ok(());
        }
        // Others may have filled the lane, and the peer may not look at it.
        let under_way = self.awaits_answer() || self.blocked;
        let due = self.patience.handle_timeout(roce, nic.now, self.signs, under_way);
        if due == Due::Nothing {
            return Ok(());
        }
        if self.queue.is_empty() {
            // A peer that is gone owes nothing.
            self.patience.stop();
            return Ok(());
        }
        let event = match self.patience.is_gone() {
            true => QpEvent::PeerGone,
            false => {
                nic.counters.timeouts += 1;
                self.troubles.timeouts = self.troubles.timeouts.wrapping_add(1);
                QpEvent::TimedOut {
                    retries_left: self.patience.retries_left(),
                    answered: self.signs > 0,
                }
            }
        };
        nic.record(roce.common.qpn, event);
        if due == Due::GivenUp {
            self.fail(roce, nic, Status::RetryExceeded);
            return Err(Fatal);
        }
        Ok(())
    }

    fn finish_front(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        if self.queue.complete_front(&roce.common, nic, Status::Success) {
            self.direct.front = DirectProgress::default();
        }
    }

    /// Ends the request at the front with an error; the caller flushes the rest.
    fn fail(&mut self, roce: &RoceContext, nic: &mut NicResources, status: Status) -> Written {
        self.queue.complete_front(&roce.common, nic, status);
        Written::Failed
    }

    /// Ends every queued request as flushed.
    pub(crate) fn flush(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        self.queue.flush(&roce.common, nic);
        self.attempt = self.attempt.wrapping_add(1);
        (self.next, self.reached) = (self.una, self.una);
        (self.written, self.executed, self.fetches) = (0, 0, 0);
        self.direct.front = DirectProgress::default();
        (self.cautious, self.blocked) = (false, false);
        self.patience.stop();
    }

    /// Adds what it is at; sequence numbers mean something once it `sends`.
    pub(crate) fn show(&self, view: &mut QueuePairView, sends: bool) {
        view.sequence.next = sends.then_some(self.next);
        view.sequence.unacknowledged = sends.then_some(self.una);
        view.window_bytes = None;
        view.retries_left = self.patience.retries_left();
        view.rnr_retries_left = self.patience.rnr_retries_left();
        view.lane = true;
        view.direct = self.direct.works;
        view.traffic.direct_bytes = self.direct.bytes;
        view.troubles.timeouts = self.troubles.timeouts;
        view.troubles.retransmitted_packets = self.troubles.retransmitted_packets;
        view.troubles.naks_received = self.troubles.naks_received;
        view.troubles.rnr_naks_received = self.troubles.rnr_naks_received;
    }
}
