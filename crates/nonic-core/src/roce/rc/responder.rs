//! The responder half of a reliable connection: executes the peer's requests in PSN order, exactly once.
//!
//! Read before touching:
//! - `expected` is the only PSN that is executed. A later one waits for its turn (`early`). An earlier one is a
//!   duplicate: a SEND or WRITE is acknowledged again, a READ is read again, an atomic is answered from memory (never
//!   executed again), and so are ATOMIC_WRITE and FLUSH.
//! - What a request does is [`Execution`]'s to know. Its answer is queued; the engine sends answers before it publishes completions.
//! - A refusal (NAK) is fatal for the connection, RNR is not.

use super::allowance::Allowance;
use super::execution::{Execution, Outcome, too_many_fetches};
use super::gap::Gap;
use super::reach::Reach;
use super::repeats::RepeatBudget;
use super::replies::{ReadReply, Replies};
use crate::placement::OutboundRead;
use crate::record::{QpEvent, RefusalReason};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::{Batch, Emit, Fatal};
use crate::roce::extended_psn::ExtendedPsn;
use crate::roce::refusal::Refusal;
use crate::roce::segment::{length_fits, packets_for};
use crate::roce::served::{Served, range_of};
use nonic_wire::{Operation, Packet, Psn, Syndrome};
use std::collections::VecDeque;

/// The responder half.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(super) expected: ExtendedPsn,
    /// Messages executed; 24 bits on the wire.
    pub(super) msn: u32,
    /// Whether the peer runs nonic, by what it sent last.
    pub(super) kin: bool,
    /// A missing receive has been reported and `expected` has not come since.
    pub(super) refused: bool,
    /// Packets from behind `expected` have come.
    pub(super) gap: Option<Box<Gap>>,
    /// How far the peer was seen to reach, if further than every peer may. Boxed: few queue pairs have one.
    pub(super) reach: Option<Box<Reach>>,
    /// How long `expected` may be late.
    pub(super) allowance: Allowance,
    /// How often in a row `expected` came and found no receive.
    pub(super) not_ready: u8,
    pub(super) execution: Execution,
    /// The latest READs and atomics, for duplicates.
    history: VecDeque<Executed>,
    pub(super) replies: Replies,
    repeats: RepeatBudget,
}

#[derive(Debug)]
enum Executed {
    Read {
        first: Psn,
        packets: u32,
        va: u64,
        length: u32,
    },
    Atomic {
        psn: Psn,
        original: u64,
    },
}

impl Responder {
    pub(crate) fn new() -> Self {
        Responder {
            expected: ExtendedPsn::default(),
            msn: 0,
            kin: false,
            refused: false,
            gap: None,
            reach: None,
            allowance: Allowance::default(),
            not_ready: 0,
            execution: Execution::default(),
            history: VecDeque::new(),
            replies: Replies::default(),
            repeats: RepeatBudget::default(),
        }
    }

    /// Starts the sequence. Called on the way to RTR.
    pub(crate) fn start(&mut self, roce: &RoceContext) {
        *self = Responder {
            expected: ExtendedPsn::starting_at(roce.rq_psn),
            ..Responder::new()
        };
    }

    /// The packet that is executed next.
    pub(crate) fn expected(&self) -> Psn {
        self.expected.psn()
    }

    /// Whether no packet was executed yet, not even in part.
    pub(crate) fn has_executed_nothing(&self, roce: &RoceContext) -> bool {
        self.expected == ExtendedPsn::starting_at(roce.rq_psn) && self.execution.is_between_messages()
    }

    /// How many messages were executed, as the peer is told.
    pub(crate) fn msn(&self) -> u32 {
        self.msn
    }

    /// Whether the peer runs nonic, by what it sent last.
    pub(crate) fn has_kin(&self) -> bool {
        self.kin
    }

    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Whether what it owes the peer is plain acknowledgements, if anything.
    pub(crate) fn only_acknowledges(&self) -> bool {
        self.replies.only_acknowledge()
    }

    pub(crate) fn emit(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        batch: &Batch,
        out: &mut [u8],
    ) -> Emit {
        let held = self.gap.as_deref().and_then(Gap::held);
        self.replies.emit(roce, nic, held, batch, out)
    }

    /// Takes a packet from the peer's requester.
    pub(crate) fn handle(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        if packet.headers.bth.psn != self.expected.psn() {
            self.handle_out_of_sequence(roce, nic, packet);
            return Ok(());
        }
        self.handle_next(roce, nic, packet)?;
        if self.gap.is_some() {
            return self.resume(roce, nic);
        }
        Ok(())
    }

    #[cold]
    fn handle_out_of_sequence(&mut self, roce: &RoceContext, nic: &mut NicResources, packet: &Packet<'_>) {
        let psn = packet.headers.bth.psn;
        match u32::try_from(psn.distance_from(self.expected.psn())) {
            Ok(ahead) => self.handle_early(roce, nic, packet, ahead),
            Err(_) => {
                nic.counters.rx_duplicates += 1;
                let unneeded = self.allowance.came_again(nic.now, psn, &nic.reorder.config);
                nic.counters.naks_unneeded += u64::from(unneeded);
                self.handle_duplicate(roce, nic, packet);
            }
        }
    }

    /// Executes the packet that is next in sequence.
    pub(super) fn handle_next(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        let psn = packet.headers.bth.psn;
        self.refused = false;
        self.kin = packet.headers.bth.is_selective();
        if let Some(reach) = &mut self.reach {
            reach.came_to(nic.now, self.expected, packet);
        }
        let chosen = self.execution.choose_srq(roce, nic, packet);
        let executed = chosen.and_then(|()| self.execute(roce, nic, packet));
        match executed {
            Ok(()) => {
                self.not_ready = 0;
                Ok(())
            }
            Err(Refusal::NotReady) => {
                self.refused = true;
                // A peer that comes again and again uses up its retries while our program may only be waiting for a
                // processor: it is asked to stay away longer each time.
                let wait = roce.min_rnr_timer.lengthened(self.not_ready);
                self.not_ready = self.not_ready.saturating_add(1);
                nic.record(roce.common.qpn, QpEvent::NoReceive);
                self.replies.defer(psn, self.msn, Syndrome::rnr(wait.code()));
                Ok(())
            }
            Err(Refusal::Nak(code, status, reason)) => {
                self.replies.refuse(psn, self.msn, Syndrome::nak(code));
                self.execution.record_refusal(roce, nic, packet, reason);
                self.execution.report_refusal(roce, nic, code, status);
                Err(Fatal)
            }
        }
    }

    /// Executes a packet and keeps its answer.
    fn execute(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let operation = packet.headers.bth.opcode.operation();
        self.execution.check_sequence(operation)?;
        if !length_fits(operation, packet.payload.len(), roce.mtu) {
            return Err(Refusal::invalid(RefusalReason::PacketLength {
                payload: packet.payload.len() as u32,
                mtu: roce.mtu,
            }));
        }
        if !self.has_room_for_answer(roce, operation)? {
            return Ok(());
        }
        match self.execution.execute(roce, nic, packet)? {
            Outcome::Placed => self.executed_packet(packet, operation),
            Outcome::Read(memory) => self.answer_read(roce, packet, memory),
            Outcome::Word(original) => self.answer_atomic(roce, original),
            Outcome::Done => self.done(),
        }
        Ok(())
    }

    /// Whether the answer to a request can be kept until it is sent. If not, and the peer is not to blame, the request is
    /// as good as lost; it comes again.
    fn has_room_for_answer(&self, roce: &RoceContext, operation: Operation) -> Result<bool, Refusal> {
        let full = match operation {
            Operation::ReadRequest => self.replies.reads() >= u32::from(roce.common.max_dest_rd_atomic),
            Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicWrite => {
                self.replies.is_full(roce)
            }
            // Linux does not count these among those it may have outstanding.
            Operation::Flush => return Ok(!self.replies.is_overrun()),
            _ => false,
        };
        match full {
            true => Err(too_many_fetches(roce)),
            false => Ok(true),
        }
    }

    fn answer_read(&mut self, roce: &RoceContext, packet: &Packet<'_>, memory: OutboundRead) {
        let reth = packet.headers.reth;
        let reply = ReadReply::new(packet, self.next_msn(), memory);
        let packets = packets_for(reth.dma_len, roce.mtu);
        self.remember(
            roce,
            Executed::Read {
                first: self.expected.psn(),
                packets,
                va: reth.va,
                length: reth.dma_len,
            },
        );
        self.repeats.earn();
        self.msn = reply.msn;
        self.expected += packets;
        self.replies.read(reply);
    }

    fn answer_atomic(&mut self, roce: &RoceContext, original: u64) {
        let psn = self.expected.psn();
        self.remember(roce, Executed::Atomic { psn, original });
        self.msn = self.next_msn();
        self.replies.atomic(psn, self.msn, original);
        self.expected = self.expected.next();
    }

    /// One packet of a SEND or WRITE was executed.
    fn executed_packet(&mut self, packet: &Packet<'_>, operation: Operation) {
        self.expected = self.expected.next();
        if operation.is_last() || operation.is_only() {
            self.msn = (self.msn + 1) & 0xff_ffff;
        }
        if packet.headers.bth.ack_request {
            self.replies.acknowledge(packet.headers.bth.psn, self.msn);
        }
    }

    /// An operation with a READ response without data was executed.
    fn done(&mut self) {
        self.msn = self.next_msn();
        self.replies.done(self.expected.psn(), self.msn);
        self.expected = self.expected.next();
    }

    fn handle_duplicate(&mut self, roce: &RoceContext, nic: &mut NicResources, packet: &Packet<'_>) {
        let psn = packet.headers.bth.psn;
        let operation = packet.headers.bth.opcode.operation();
        if operation.is_send() || operation.is_write() {
            // Our acknowledgement may have been lost; say again how far we are.
            if packet.headers.bth.ack_request || operation.is_last() || operation.is_only() {
                self.replies.acknowledge(self.expected.psn().prev(), self.msn);
            }
            return;
        }
        if self.replies.is_full(roce) || self.replies.will_answer(psn, roce.mtu) {
            return;
        }
        if matches!(operation, Operation::AtomicWrite | Operation::Flush) {
            // Like everything before `expected` it was executed, and its answer says no more than that.
            self.replies.done(psn, self.msn);
            return;
        }
        let mtu = roce.mtu;
        match self.history.iter().find(|executed| executed.covers(psn)) {
            Some(Executed::Atomic { original, .. }) if operation.is_atomic() => {
                self.replies.atomic(psn, self.msn, *original);
            }
            Some(executed @ Executed::Read { .. })
                if operation == Operation::ReadRequest && executed.permits(packet, mtu) =>
            {
                // The memory is read again, with its key as it stands now. One that was revoked meanwhile
                // is not a fresh violation: the requester will time out.
                let domain = roce.domain;
                let srq = domain.and_then(|domain| nic.xrc.find(packet.headers.xrc_srqn, domain));
                let served = Served {
                    roce,
                    srq: srq.as_deref(),
                };
                if !self.repeats.take(nic.now) {
                    return;
                }
                if let Ok(memory) = served.rights(nic).read(&range_of(packet)) {
                    self.replies.read(ReadReply {
                        repeated: true,
                        ..ReadReply::new(packet, self.msn, memory)
                    });
                }
            }
            _ => {}
        }
    }

    fn remember(&mut self, roce: &RoceContext, executed: Executed) {
        while self.history.len() >= usize::from(roce.common.max_dest_rd_atomic) {
            self.history.pop_front();
        }
        self.history.push_back(executed);
    }

    fn next_msn(&self) -> u32 {
        (self.msn + 1) & 0xff_ffff
    }

    /// Ends the receive in progress as flushed, on the way to the error state.
    pub(crate) fn flush(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        self.execution.flush(roce, nic);
        self.drop_kept(nic);
        self.history = VecDeque::new();
    }

    /// Drops everything, answers included.
    pub(crate) fn forget(&mut self, nic: &mut NicResources) {
        self.drop_kept(nic);
        self.execution = Execution::default();
        self.history = VecDeque::new();
        self.replies.clear();
    }
}

impl Executed {
    fn covers(&self, psn: Psn) -> bool {
        match self {
            Executed::Atomic { psn: executed, .. } => *executed == psn,
            Executed::Read { first, packets, .. } => {
                let into = psn.distance_from(*first);
                into >= 0 && (into as u32) < *packets
            }
        }
    }

    /// Whether a repeated READ request asks for nothing but the rest of the original.
    fn permits(&self, packet: &Packet<'_>, mtu: u32) -> bool {
        let Executed::Read {
            first, va, length, ..
        } = self
        else {
            return false;
        };
        let reth = packet.headers.reth;
        let into = packet.headers.bth.psn.distance_from(*first).max(0) as u64 * u64::from(mtu);
        reth.va == va.wrapping_add(into) && into + u64::from(reth.dma_len) <= u64::from(*length)
    }
}
