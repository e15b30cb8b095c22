//! The responder's queue of answers to its peer: acknowledgements, READ responses and atomics' results, in order.
//!
//! Order matters: a requester takes an acknowledgement behind an unanswered READ as proof that the answer was lost. So
//! there is one queue, and only acknowledgements that directly follow each other are merged.

use super::reorder::Reorder;
use crate::placement::OutboundRead;
use crate::record::{QpEvent, RefusalReason, RequestKind};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::{Batch, Emit};
use crate::roce::segment::packets_for;
use crate::verbs::event::Event;
use crate::verbs::memory::KeyError;
use nonic_wire::{
    Aeth, AethKind, Bth, Headers, HeldRange, ICRC_LEN, NakCode, Opcode, Operation, Packet, Psn, SelectiveAck,
    Syndrome, pad_len,
};
use std::collections::VecDeque;

/// Answers waiting to be sent.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    queue: VecDeque<Reply>,
    /// READs in the queue that were asked for the first time.
    reads: u32,
    /// Answers in the queue that a request asked for: all but acknowledgements and refusals.
    fetched: usize,
    refusals: Refusals,
}

/// How often the peer was refused since the connection was made, for tools that inspect queue pairs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Refusals {
    pub(crate) naks: u32,
    pub(crate) rnr_naks: u32,
}

/// Above this, acknowledgements are dropped rather than queued; the peer asks again. Only a peer that floods
/// us faster than we send gets here.
const MAX_QUEUED: usize = 512;

/// The syndrome for a packet that has not come.
const MISSING: Syndrome = Syndrome::nak(NakCode::PsnSequenceError);

#[derive(Debug)]
enum Reply {
    Aeth {
        psn: Psn,
        aeth: Aeth,
        /// Whether it may wait for something to travel with.
        idle: bool,
    },
    Atomic {
        psn: Psn,
        msn: u32,
        original: u64,
    },
    /// An ATOMIC_WRITE or a FLUSH is done: a READ response without data.
    Done {
        psn: Psn,
        msn: u32,
    },
    Read(ReadReply),
}

/// A READ being answered.
#[derive(Debug)]
pub(crate) struct ReadReply {
    /// The PSN of the next response packet.
    pub(crate) psn: Psn,
    pub(crate) msn: u32,
    pub(crate) memory: OutboundRead,
    /// Whether no packet of it was sent.
    pub(crate) fresh: bool,
    /// Whether it answers a repeated request, which is not one of those the peer may have outstanding.
    pub(crate) repeated: bool,
}

impl ReadReply {
    /// The answer to a READ request that came for the first time.
    pub(crate) fn new(request: &Packet<'_>, msn: u32, memory: OutboundRead) -> Self {
        ReadReply {
            psn: request.headers.bth.psn,
            msn,
            memory,
            fresh: true,
            repeated: false,
        }
    }

    fn operation(&self, mtu: u32) -> Operation {
        match (self.fresh, self.memory.left <= mtu) {
            (true, true) => Operation::ReadResponseOnly,
            (true, false) => Operation::ReadResponseFirst,
            (false, true) => Operation::ReadResponseLast,
            (false, false) => Operation::ReadResponseMiddle,
        }
    }

    fn payload_len(&self, mtu: u32) -> usize {
        self.memory.left.min(mtu) as usize
    }

    /// Whether the packet with `psn` is still to be sent.
    fn will_send(&self, psn: Psn, mtu: u32) -> bool {
        let ahead = psn.distance_from(self.psn);
        ahead >= 0 && (ahead as u32) < packets_for(self.memory.left, mtu)
    }
}

impl Replies {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether nothing but plain acknowledgements waits, and the peer is not waiting for them. Adjacent ones are
    /// merged, so there is at most one.
    pub(crate) fn only_acknowledge(&self) -> bool {
        match (self.queue.front(), self.queue.len()) {
            (None, _) => true,
            (Some(Reply::Aeth { idle, .. }), 1) => *idle,
            _ => false,
        }
    }

    /// How many READs are being answered, repetitions aside.
    pub(crate) fn reads(&self) -> u32 {
        self.reads
    }

    /// How often the peer was refused.
    pub(crate) fn refusals(&self) -> Refusals {
        self.refusals
    }

    pub(crate) fn clear(&mut self) {
        *self = Replies {
            refusals: self.refusals,
            ..Replies::default()
        };
    }

    /// Acknowledges everything up to `psn`.
    pub(crate) fn acknowledge(&mut self, psn: Psn, msn: u32) {
        self.push_ack(psn, msn, true);
    }

    /// The same for a peer that wonders whether something was lost.
    pub(crate) fn acknowledge_at_once(&mut self, psn: Psn, msn: u32) {
        self.push_ack(psn, msn, false);
    }

    fn push_ack(&mut self, psn: Psn, msn: u32, may_wait: bool) {
        let aeth = Aeth {
            syndrome: Syndrome::ack(),
            msn,
        };
        // A gap that was filled meanwhile need not be reported.
        let filled = |reply: &mut Reply| {
            matches!(reply, Reply::Aeth { psn: missing, aeth, .. }
            if aeth.syndrome == MISSING && !missing.is_after(psn))
        };
        if self.queue.back_mut().is_some_and(filled) {
            self.queue.pop_back();
        }
        let full = self.queue.len() >= MAX_QUEUED;
        match self.queue.back_mut() {
            Some(Reply::Aeth {
                psn: last,
                aeth: waiting,
                idle,
            }) if matches!(waiting.syndrome.kind(), AethKind::Ack { .. }) => {
                *last = psn;
                *waiting = aeth;
                *idle &= may_wait;
            }
            _ if full => {}
            _ => self.queue.push_back(Reply::Aeth {
                psn,
                aeth,
                idle: may_wait,
            }),
        }
    }

    /// Refuses the packet with `psn` for good.
    pub(crate) fn refuse(&mut self, psn: Psn, msn: u32, syndrome: Syndrome) {
        self.queue.push_back(Reply::Aeth {
            psn,
            aeth: Aeth { syndrome, msn },
            idle: false,
        });
    }

    /// Tells that the packet with `psn` is missing.
    pub(crate) fn report_missing(&mut self, psn: Psn, msn: u32) {
        self.defer(psn, msn, MISSING);
    }

    /// Refuses the packet with `psn` for now: it is missing, or it came too early for a receive.
    pub(crate) fn defer(&mut self, psn: Psn, msn: u32, syndrome: Syndrome) {
        let said = matches!(
            self.queue.back(),
            Some(Reply::Aeth { psn: last, aeth, .. }) if *last == psn && aeth.syndrome == syndrome
        );
        if !said && self.queue.len() < MAX_QUEUED {
            self.refuse(psn, msn, syndrome);
        }
    }

    pub(crate) fn atomic(&mut self, psn: Psn, msn: u32, original: u64) {
        self.fetched += 1;
        self.queue.push_back(Reply::Atomic { psn, msn, original });
    }

    pub(crate) fn done(&mut self, psn: Psn, msn: u32) {
        self.fetched += 1;
        self.queue.push_back(Reply::Done { psn, msn });
    }

    /// Whether the queue is longer than even an ill-behaved peer should make it.
    pub(crate) fn is_overrun(&self) -> bool {
        self.queue.len() >= MAX_QUEUED
    }

    pub(crate) fn read(&mut self, reply: ReadReply) {
        self.reads += u32::from(!reply.repeated);
        self.fetched += 1;
        self.queue.push_back(Reply::Read(reply));
    }

    /// Whether the answer with `psn` is waiting already, so that a duplicate request adds nothing.
    pub(crate) fn will_answer(&self, psn: Psn, mtu: u32) -> bool {
        self.queue.iter().any(|reply| match reply {
            Reply::Aeth { .. } => false,
            Reply::Atomic { psn: waiting, .. } | Reply::Done { psn: waiting, .. } => *waiting == psn,
            Reply::Read(read) => read.will_send(psn, mtu),
        })
    }

    /// Whether as many READs, atomics and the like are to be answered as a well-behaved peer can ask for. What else is queued does not
    /// count: a network that loses much makes us report many missing packets at once, and the peer cannot help it.
    pub(crate) fn is_full(&self, roce: &RoceContext) -> bool {
        self.fetched >= 2 * usize::from(roce.common.max_dest_rd_atomic) + 4
    }

    /// Writes the next packet, if there is one and it fits the batch. Acknowledgements say what is `held`.
    pub(crate) fn emit(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        held: Option<&Reorder>,
        batch: &Batch,
        out: &mut [u8],
    ) -> Emit {
        loop {
            if let Some(emitted) = self.emit_front(roce, nic, held, batch, out) {
                return emitted;
            }
            // A repeated READ whose key was revoked since: no fresh violation (the requester may have long
            // had its answer, and have asked for the revocation itself), so it is dropped, not refused.
            self.pop_front();
        }
    }

    /// Writes a packet of the first reply. `None` if that is a repeated READ that can no longer be answered.
    fn emit_front(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        held: Option<&Reorder>,
        batch: &Batch,
        out: &mut [u8],
    ) -> Option<Emit> {
        let Some(reply) = self.queue.front_mut() else {
            return Some(Emit::Idle);
        };
        let (operation, payload) = match reply {
            Reply::Aeth { aeth, .. } => (Operation::Acknowledge, held_len(held, aeth.syndrome)),
            Reply::Atomic { .. } => (Operation::AtomicAcknowledge, 0),
            Reply::Done { .. } => (Operation::ReadResponseOnly, 0),
            Reply::Read(read) => (read.operation(roce.mtu), read.payload_len(roce.mtu)),
        };
        let opcode = Opcode::new(roce.common.service, operation).expect("every reliable service answers");
        let length = opcode.header_len() + payload + pad_len(payload) + ICRC_LEN;
        if length > batch.max_len {
            return Some(Emit::NotInBatch);
        }
        let acknowledges = |msn| Aeth {
            syndrome: Syndrome::ack(),
            msn,
        };
        let finished = match reply {
            Reply::Aeth { psn, aeth, .. } => {
                count_refusal(nic, &mut self.refusals, aeth.syndrome);
                let mut headers = Headers::new(roce.bth(operation, *psn));
                headers.aeth = *aeth;
                if let (Some(held), true) = (held, payload > 0) {
                    nic.counters.selective_acks_sent += 1;
                    headers.bth.resv7 |= Bth::SELECTIVE;
                    let start = headers.emit(out);
                    SelectiveAck::emit(held.ranges(), &mut out[start..]);
                } else {
                    headers.emit(out);
                }
                true
            }
            Reply::Atomic { psn, msn, original } => {
                let mut headers = Headers::new(roce.bth(operation, *psn));
                headers.aeth = acknowledges(*msn);
                headers.atomic_original = *original;
                headers.emit(out);
                true
            }
            Reply::Done { psn, msn } => {
                let mut headers = Headers::new(roce.bth(operation, *psn));
                headers.aeth = acknowledges(*msn);
                headers.emit(out);
                true
            }
            Reply::Read(read) => match write_read_response(roce, read, operation, out) {
                Some(finished) => finished,
                None if read.repeated => return None,
                None => {
                    let revoked = RefusalReason::Key(KeyError::Revoked);
                    nic.record(roce.common.qpn, QpEvent::Dropped(RequestKind::Read, revoked));
                    nic.events.push_back(Event::QpAccessError(roce.common.qpn));
                    return Some(self.abandon_read());
                }
            },
        };
        if finished {
            self.pop_front();
        }
        Some(Emit::Packet(length))
    }

    /// Takes the first reply, and what counts it.
    fn pop_front(&mut self) -> Option<Reply> {
        let reply = self.queue.pop_front();
        match &reply {
            None | Some(Reply::Aeth { .. }) => {}
            Some(Reply::Atomic { .. } | Reply::Done { .. }) => self.fetched -= 1,
            Some(Reply::Read(read)) => {
                self.fetched -= 1;
                self.reads -= u32::from(!read.repeated);
            }
        }
        reply
    }

    /// The memory being read was revoked under way: refuse the rest and fail.
    fn abandon_read(&mut self) -> Emit {
        let Some(Reply::Read(read)) = self.pop_front() else {
            return Emit::Idle;
        };
        self.clear();
        let syndrome = Syndrome::nak(NakCode::RemoteAccessError);
        self.refuse(read.psn, read.msn, syndrome);
        Emit::Failed
    }
}

/// Writes one response packet and moves on; whether it was the last. `None` if the key no longer permits it.
fn write_read_response(
    roce: &RoceContext,
    read: &mut ReadReply,
    operation: Operation,
    out: &mut [u8],
) -> Option<bool> {
    let payload = read.payload_len(roce.mtu);
    let mut headers = Headers::new(roce.bth(operation, read.psn));
    headers.bth.pad = pad_len(payload) as u8;
    headers.aeth = Aeth {
        syndrome: Syndrome::ack(),
        msn: read.msn,
    };
    let start = headers.emit(out);
    let end = start + payload;
    read.memory.take(&mut out[start..end]).ok()?;
    out[end..end + pad_len(payload)].fill(0);
    read.psn = read.psn.next();
    read.fresh = false;
    Some(read.memory.left == 0)
}

/// How much an acknowledgement takes to say what is held.
fn held_len(held: Option<&Reorder>, syndrome: Syndrome) -> usize {
    match (held, syndrome.kind()) {
        (Some(held), AethKind::Ack { .. }) => held.ranges().count() * HeldRange::LEN,
        _ => 0,
    }
}

fn count_refusal(nic: &mut NicResources, refusals: &mut Refusals, syndrome: Syndrome) {
    match syndrome.kind() {
        AethKind::Nak(_) => {
            nic.counters.naks_sent += 1;
            refusals.naks = refusals.naks.wrapping_add(1);
        }
        AethKind::RnrNak { .. } => {
            nic.counters.rnr_naks_sent += 1;
            refusals.rnr_naks = refusals.rnr_naks.wrapping_add(1);
        }
        _ => {}
    }
}
