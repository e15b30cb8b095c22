//! The requesting half of an iWARP queue pair: turns posted work into segments of the outgoing stream, and answers into
//! completions.
//!
//! Read before touching:
//! - Requests leave in the order they were posted, each whole. `cursor` is the request that is being written; those before it are
//!   written, and wait for the stream to take their bytes or for an answer.
//! - A SEND or WRITE completes when TCP has taken its last byte (RFC 5040 §5.5): `end` is where it ends in the stream. A READ or
//!   atomic completes when it is answered. Work completes strictly in order, from the front of the queue.
//! - Answers come in the order of the requests, so an answer is for the oldest of `outstanding`. A READ does not tell the peer a
//!   local key: its sink is a number that means nothing anywhere else, and every response is compared with it. That also lets its
//!   bytes go to several places.

use super::frame::Frame;
use super::outstanding::{Answer, Outstanding};
use crate::direct::LocalBytes;
use crate::queue_pair::{QpContext, Queued, SendQueue};
use crate::resources::NicResources;
use crate::verbs::memory::{Access, Keys};
use crate::verbs::work::{RemoteAddress, SendFlags, SendOp, Status};
use crate::verbs::wqe::SendWqe;
use nonic_wire::iwarp::{AtomicRequest, DdpHeader, Header, ReadRequest, SendKind, Tagged};
use std::collections::VecDeque;

/// The requesting half. What becomes of answers is in `answers`.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) queue: SendQueue<Request>,
    /// Number of the front request in the sequence of all that were posted.
    pub(super) front: u64,
    /// Bytes of the current request that are written.
    offset: u32,
    /// It is a WRITE_WITH_IMM whose WRITE is written.
    immediate_due: bool,
    /// The latest message was a WRITE without an immediate: the peer would take one right behind it for its own.
    follows_write: bool,
    pub(super) outstanding: VecDeque<Outstanding>,
    /// Message number of the next SEND or immediate.
    send_msn: u32,
    /// Message number of the next READ or atomic.
    read_msn: u32,
    /// Message number that the next answer to an atomic must have.
    pub(super) atomic_msn: u32,
    /// What the next READ calls its sink.
    sink: u32,
    /// READs and atomics that may be unanswered.
    ord: u16,
}

/// A posted request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) wqe: SendWqe,
    /// Where it ends in the outgoing stream, once it is written.
    end: Option<u64>,
    pub(super) answered: bool,
}

/// What became of an attempt to write a segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Written {
    /// There is nothing to write before something else happens.
    Idle,
    /// The next segment does not fit.
    NoRoom,
    /// A segment was written that its message does not end with.
    Segment,
    /// A segment was written that ends a message.
    Last,
    /// A local operation was executed; there may be more to write.
    Local,
    /// The request that is being written cannot be carried out.
    Failed(Status),
}

impl Requester {
    /// For a stream whose peer answers `ord` READs and atomics at a time. `sink` is where the names of sinks begin.
    pub(super) fn new(ord: u16, sink: u32) -> Self {
        Requester {
            queue: SendQueue::default(),
            front: 0,
            offset: 0,
            immediate_due: false,
            follows_write: false,
            outstanding: VecDeque::new(),
            send_msn: 1,
            read_msn: 1,
            atomic_msn: 1,
            sink,
            ord,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether a request is to be written, whether or not it has to wait.
    pub(super) fn has_unwritten(&self) -> bool {
        self.queue.has_unsent()
    }

    /// Whether a message is half written. WRITE and immediate of one request count as one.
    pub(super) fn is_within_message(&self) -> bool {
        self.offset > 0 || self.immediate_due
    }

    /// Whether the peer owes an answer.
    pub(super) fn awaits_answer(&self) -> bool {
        !self.outstanding.is_empty()
    }

    pub(super) fn post(&mut self, wqe: SendWqe) {
        self.queue.push(Request {
            wqe,
            end: None,
            answered: false,
        });
    }

    /// Writes the READ of no bytes that tells the peer that this side is ready. It takes a message number like any other.
    pub(super) fn write_rtr_read(&mut self, frame: &mut impl Frame) -> Written {
        self.write_read(None, 0, RemoteAddress::default(), frame)
    }

    /// What to return in place of the first segment of a request, if it cannot start.
    fn keeps_from_starting(&self, keys: &Keys, request: &Request) -> Option<Written> {
        if !self.may_start(&request.wqe) {
            return Some(Written::Idle);
        }
        let needed = match request.wqe.op.fetches() {
            true => Access::LOCAL_WRITE,
            false => Access::empty(),
        };
        request
            .wqe
            .payload
            .check(keys, needed)
            .is_err()
            .then_some(match self.queue.cursor() {
                0 => Written::Failed(Status::LocalProtection),
                // Requests before this one end first.
                _ => Written::Idle,
            })
    }

    /// Writes the next segment.
    pub(super) fn write(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        frame: &mut impl Frame,
    ) -> Written {
        let Some(request) = self.queue.current() else {
            return Written::Idle;
        };
        let op = request.wqe.op;
        if op.is_local() {
            return self.run_local(common, nic);
        }
        if !self.is_within_message() {
            if let Some(instead) = self.keeps_from_starting(&nic.keys, request) {
                return instead;
            }
        }
        let length = request.wqe.length;
        let number = Some(self.current());
        let written = match op {
            SendOp::Send | SendOp::SendWithInvalidate(_) => self.write_send(&nic.keys, op, frame),
            SendOp::Write(remote) => self.write_write(&nic.keys, remote, frame),
            // Without bytes the immediate goes alone, as RFC 7306 §6 allows, unless it would be taken for that of another WRITE.
            SendOp::WriteWithImmediate(_, immediate)
                if self.immediate_due || (length == 0 && !self.follows_write) =>
            {
                self.write_immediate(immediate, frame)
            }
            SendOp::WriteWithImmediate(remote, _) => match self.write_write(&nic.keys, remote, frame) {
                Written::Last => {
                    self.immediate_due = true;
                    Written::Segment
                }
                other => other,
            },
            SendOp::Read(remote) => self.write_read(number, length, remote, frame),
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } => {
                let request =
                    AtomicRequest::compare_swap(self.read_msn, remote.rkey, remote.va, compare, swap);
                self.write_atomic(number, request, frame)
            }
            SendOp::FetchAdd { remote, add } => {
                let request = AtomicRequest::fetch_add(self.read_msn, remote.rkey, remote.va, add);
                self.write_atomic(number, request, frame)
            }
            // Posting refuses everything else.
            _ => Written::Failed(Status::LocalQpOperation),
        };
        if let (
            Written::Last,
            SendOp::Send | SendOp::SendWithInvalidate(_) | SendOp::WriteWithImmediate(..),
        ) = (written, op)
        {
            self.send_msn = self.send_msn.wrapping_add(1);
        }
        written
    }

    /// The last segment of a message was written: the request ends here in the stream.
    pub(super) fn finish_message(&mut self, end: u64) {
        if let Some(request) = self.queue.current_mut() {
            self.follows_write = matches!(request.wqe.op, SendOp::Write(_));
            request.end = Some(end);
            self.queue.advance();
        }
        self.offset = 0;
        self.immediate_due = false;
    }

    fn may_start(&self, wqe: &SendWqe) -> bool {
        let fenced = wqe.flags.contains(SendFlags::FENCE) && self.awaits_answer();
        let full = wqe.op.fetches() && self.outstanding.len() >= usize::from(self.ord);
        !fenced && !full
    }

    /// Runs the local operation at the cursor, once everything before it is complete.
    fn run_local(&mut self, common: &QpContext, nic: &mut NicResources) -> Written {
        match self.queue.run_local(common, nic) {
            None => Written::Idle,
            Some(Ok(())) => {
                self.front += 1;
                Written::Local
            }
            Some(Err(status)) => Written::Failed(status),
        }
    }

    fn write_send(&mut self, keys: &Keys, op: SendOp, frame: &mut impl Frame) -> Written {
        let wqe = &self.being_written().wqe;
        let kind = SendKind {
            solicited: wqe.flags.contains(SendFlags::SOLICITED),
            invalidate_stag: match op {
                SendOp::SendWithInvalidate(rkey) => Some(rkey),
                _ => None,
            },
        };
        let (length, last) = self.cut(frame.max_ulpdu(), DdpHeader::UNTAGGED_LEN);
        let header = Header::Send {
            kind,
            msn: self.send_msn,
            mo: self.offset,
            last,
        };
        self.write_payload(keys, &header, (length, last), frame)
    }

    fn write_write(&mut self, keys: &Keys, remote: RemoteAddress, frame: &mut impl Frame) -> Written {
        let (length, last) = self.cut(frame.max_ulpdu(), DdpHeader::TAGGED_LEN);
        let header = Header::Write(Tagged {
            last,
            stag: remote.rkey,
            to: remote.va.wrapping_add(u64::from(self.offset)),
        });
        self.write_payload(keys, &header, (length, last), frame)
    }

    /// The request whose segments are being written.
    fn being_written(&self) -> &Request {
        self.queue.current().expect("a segment is written of a request")
    }

    /// How many bytes of the request's payload the next segment carries, and whether they are the last.
    fn cut(&self, max_ulpdu: usize, header: usize) -> (u32, bool) {
        let left = self.being_written().wqe.length - self.offset;
        let room = max_ulpdu.saturating_sub(header).max(1);
        let length = (left as usize).min(room) as u32;
        (length, length == left)
    }

    fn write_payload(
        &mut self,
        keys: &Keys,
        header: &Header,
        (length, last): (u32, bool),
        frame: &mut impl Frame,
    ) -> Written {
        if !frame.begin(header, length as usize) {
            return Written::NoRoom;
        }
        let payload = LocalBytes {
            memory: self.being_written().wqe.payload.memory(keys),
            offset: u64::from(self.offset),
            length,
        };
        if frame.payload(payload).is_err() {
            return Written::Failed(Status::LocalProtection);
        }
        self.offset += length;
        if last { Written::Last } else { Written::Segment }
    }

    fn write_immediate(&mut self, immediate: u32, frame: &mut impl Frame) -> Written {
        let header = Header::Immediate {
            solicited: self.being_written().wqe.flags.contains(SendFlags::SOLICITED),
            msn: self.send_msn,
            // Verbs have 32 bits, the wire 64: they go first, as hardware has it.
            data: u64::from(immediate) << 32,
        };
        if frame.begin(&header, 0) {
            Written::Last
        } else {
            Written::NoRoom
        }
    }

    fn write_read(
        &mut self,
        number: Option<u64>,
        length: u32,
        remote: RemoteAddress,
        frame: &mut impl Frame,
    ) -> Written {
        let header = Header::ReadRequest {
            msn: self.read_msn,
            request: ReadRequest {
                sink_stag: self.sink,
                sink_to: 0,
                size: length,
                source_stag: remote.rkey,
                source_to: remote.va,
            },
        };
        if !frame.begin(&header, 0) {
            return Written::NoRoom;
        }
        let answer = Answer::Read {
            sink: self.sink,
            received: 0,
            length,
        };
        // Zero has a meaning of its own to hardware.
        self.sink = self.sink.wrapping_add(SINK_STEP).max(1);
        self.await_answer(number, answer)
    }

    fn write_atomic(
        &mut self,
        number: Option<u64>,
        request: AtomicRequest,
        frame: &mut impl Frame,
    ) -> Written {
        let header = Header::AtomicRequest {
            msn: self.read_msn,
            request,
        };
        if !frame.begin(&header, 0) {
            return Written::NoRoom;
        }
        let request_id = request.request_id;
        self.await_answer(number, Answer::Atomic { request_id })
    }

    fn await_answer(&mut self, number: Option<u64>, answer: Answer) -> Written {
        let msn = self.read_msn;
        self.outstanding.push_back(Outstanding { number, answer, msn });
        self.read_msn = msn.wrapping_add(1);
        Written::Last
    }

    /// The stream has taken everything before `taken`: completes what is done, in order.
    pub(super) fn complete(&mut self, common: &QpContext, nic: &mut NicResources, taken: u64) {
        while self.queue.front().is_some_and(|request| request.is_done(taken)) {
            self.complete_front(common, nic, Status::Success);
        }
    }

    fn complete_front(&mut self, common: &QpContext, nic: &mut NicResources, status: Status) {
        self.front += u64::from(self.queue.complete_front(common, nic, status));
    }

    /// The request that is being written.
    pub(super) fn current(&self) -> u64 {
        self.front + self.queue.cursor() as u64
    }

    /// Ends every request: those that are done with success, `failed` with its status, all others as flushed.
    pub(super) fn flush(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        taken: u64,
        failed: Option<(u64, Status)>,
    ) {
        self.complete(common, nic, taken);
        while !self.queue.is_empty() {
            let status = match failed {
                Some((number, status)) if number == self.front => status,
                _ => Status::Flushed,
            };
            self.complete_front(common, nic, status);
        }
        self.outstanding.clear();
        (self.offset, self.immediate_due) = (0, false);
    }
}

impl Queued for Request {
    fn wqe(&self) -> &SendWqe {
        &self.wqe
    }
}

impl Request {
    fn is_done(&self, taken: u64) -> bool {
        if self.wqe.op.fetches() {
            // Whoever has the answer had the request.
            self.answered
        } else {
            self.end.is_some_and(|end| end <= taken)
        }
    }
}

/// Between the names of two sinks: an odd number, so that all come before one does again.
const SINK_STEP: u32 = 0x9e37_79b1;
