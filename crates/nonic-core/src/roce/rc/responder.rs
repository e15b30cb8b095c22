//! The responder half of a reliable connection: executes the peer's requests in PSN order, exactly once.
//!
//! Read before touching:
//! - `expected` is the only PSN that is executed. A later one waits for its turn (`early`). An earlier one is a
//!   duplicate: a SEND or WRITE is acknowledged again, a READ is read again, an atomic is answered from memory (never
//!   executed again), and so are ATOMIC_WRITE and FLUSH.
//! - Nothing changes before everything about a packet has been checked; then bytes are placed; then the answer is
//!   queued; then the completion. The engine sends answers before it publishes completions.
//! - A refusal (NAK) is fatal for the connection, RNR is not.
//! - A peer on this host may have executed requests by itself. The caller that passes on a packet asks about that first
//!   (`direct`).

use super::allowance::Allowance;
use super::gap::Gap;
use super::reach::Reach;
use super::repeats::RepeatBudget;
use super::replies::{ReadReply, Replies};
use crate::placement::WordOperation;
use crate::queue_pair::InboundMessage;
use crate::record::{QpEvent, RefusalReason, RequestKind};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::{Batch, Emit, Fatal};
use crate::roce::extended_psn::ExtendedPsn;
use crate::roce::refusal::Refusal;
use crate::roce::segment::{length_fits, packets_for};
use crate::roce::served::{Served, named_range, range_of};
use crate::roce::xrc::XrcSrq;
use crate::verbs::event::Event;
use crate::verbs::memory::Access;
use crate::verbs::work::{CompletionOpcode, FlushRange, Placement, Status};
use nonic_wire::{NakCode, Operation, Packet, Psn, Syndrome};
use std::collections::VecDeque;
use std::sync::Arc;

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
    pub(super) inbound: InboundMessage,
    /// The latest READs and atomics, for duplicates.
    history: VecDeque<Executed>,
    pub(super) replies: Replies,
    repeats: RepeatBudget,
    /// With XRC: the SRQ that the message in progress, or the latest one, is for.
    srq: Option<Arc<XrcSrq>>,
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
            inbound: InboundMessage::None,
            history: VecDeque::new(),
            replies: Replies::default(),
            repeats: RepeatBudget::default(),
            srq: None,
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
        nic: &mut NicResources<'_>,
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
        nic: &mut NicResources<'_>,
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
    fn handle_out_of_sequence(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
    ) {
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
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        let psn = packet.headers.bth.psn;
        self.refused = false;
        self.kin = packet.headers.bth.is_selective();
        if let Some(reach) = &mut self.reach {
            reach.came_to(nic.now, self.expected, packet);
        }
        let executed = self
            .choose_srq(roce, nic, packet)
            .and_then(|()| self.execute(roce, nic, packet));
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
                self.record_refusal(roce, nic, packet, reason);
                self.report_refusal(roce, nic, code, status);
                Err(Fatal)
            }
        }
    }

    /// Writes down what was refused and why.
    #[cold]
    fn record_refusal(
        &self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
        reason: RefusalReason,
    ) {
        let kind = RequestKind::of(packet.headers.bth.opcode.operation());
        let reason = match (&self.inbound, reason) {
            (InboundMessage::Send(inbound), RefusalReason::ReceiveTooShort { .. }) => {
                let message = inbound.length_with(packet.payload.len());
                RefusalReason::ReceiveTooShort {
                    message: u32::try_from(message).unwrap_or(u32::MAX),
                    receive: u32::try_from(inbound.wqe.target.length()).unwrap_or(u32::MAX),
                }
            }
            (InboundMessage::Send(inbound), RefusalReason::ReceiveKey) => {
                roce.common.record_receive_fault(nic, &inbound.wqe);
                reason
            }
            _ => reason,
        };
        // Of a message in progress, the first packet named the memory.
        let range = match &self.inbound {
            InboundMessage::Write(write) => write.range(),
            _ => named_range(packet, kind),
        };
        let refused = self
            .served(roce)
            .rights(nic)
            .describe(kind, range.as_ref(), reason);
        nic.record(roce.common.qpn, QpEvent::Refused(Box::new(refused)));
    }

    pub(super) fn report_refusal(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        code: NakCode,
        status: Status,
    ) {
        if let Some(inbound) = self.inbound.take_send() {
            let ended = roce.common.received(&inbound.wqe, status, inbound.received());
            self.served(roce).complete_recv(nic, ended);
        } else if code == NakCode::RemoteAccessError {
            nic.events.push_back(Event::QpAccessError(roce.common.qpn));
        } else {
            nic.events.push_back(Event::QpRequestError(roce.common.qpn));
        }
    }

    /// On whose behalf the message in progress is executed: the queue pair's or an SRQ's.
    fn served<'a>(&'a self, roce: &'a RoceContext) -> Served<'a> {
        Served {
            roce,
            srq: self.srq.as_deref(),
        }
    }

    /// With XRC, finds the SRQ that a request names. All packets of a message name the same one.
    fn choose_srq(
        &mut self,
        roce: &RoceContext,
        nic: &NicResources<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let Some(domain) = roce.domain else {
            return Ok(());
        };
        let number = packet.headers.xrc_srqn;
        if self.inbound.is_none() {
            let missing = Refusal::invalid(RefusalReason::NoSharedReceiveQueue);
            self.srq = Some(nic.xrc.find(number, domain).ok_or(missing)?);
        } else if self.srq.as_ref().is_none_or(|srq| srq.number != number) {
            return Err(Refusal::invalid(RefusalReason::Sequence));
        }
        Ok(())
    }

    fn execute(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let operation = packet.headers.bth.opcode.operation();
        self.check_sequence(operation)?;
        if !length_fits(operation, packet.payload.len(), roce.mtu) {
            return Err(Refusal::invalid(RefusalReason::PacketLength {
                payload: packet.payload.len() as u32,
                mtu: roce.mtu,
            }));
        }
        match operation {
            Operation::ReadRequest => self.read(roce, nic, packet)?,
            Operation::CompareSwap | Operation::FetchAdd => self.atomic(roce, nic, packet)?,
            Operation::AtomicWrite => self.atomic_write(roce, nic, packet)?,
            Operation::Flush => self.flush_memory(roce, nic, packet)?,
            operation if operation.is_send() => {
                self.send(roce, nic, packet)?;
                self.executed_packet(packet, operation);
            }
            operation if operation.is_write() => {
                self.write(roce, nic, packet)?;
                self.executed_packet(packet, operation);
            }
            _ => return Err(Refusal::INVALID),
        }
        Ok(())
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

    /// First packets need a message boundary before them, middle and last ones a message in progress.
    fn check_sequence(&self, operation: Operation) -> Result<(), Refusal> {
        let continues = operation.is_middle() || (operation.is_last() && !operation.is_only());
        let fits = match &self.inbound {
            InboundMessage::None => !continues,
            InboundMessage::Send(_) => continues && operation.is_send(),
            InboundMessage::Write(_) => continues && operation.is_write(),
        };
        if fits {
            Ok(())
        } else {
            Err(Refusal::invalid(RefusalReason::Sequence))
        }
    }

    fn send(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let operation = packet.headers.bth.opcode.operation();
        if self.inbound.is_none() {
            let wqe = self.served(roce).take_recv(nic).ok_or(Refusal::NotReady)?;
            self.inbound = InboundMessage::send(wqe);
        }
        let served = Served {
            roce,
            srq: self.srq.as_deref(),
        };
        let InboundMessage::Send(inbound) = &mut self.inbound else {
            return Err(Refusal::INVALID);
        };
        inbound.place(packet.payload)?;
        if !(operation.is_last() || operation.is_only()) {
            return Ok(());
        }
        let invalidated = operation
            .has_invalidate()
            .then_some(packet.headers.invalidate_rkey);
        if let Some(rkey) = invalidated {
            served.rights(nic).invalidate(rkey)?;
        }
        let mut done = roce
            .common
            .received(&inbound.wqe, Status::Success, inbound.received());
        done.completion.invalidated_rkey = invalidated;
        done.completion.immediate = operation.has_immediate().then_some(packet.headers.immediate);
        done.solicited = packet.headers.bth.solicited;
        self.inbound = InboundMessage::None;
        served.complete_recv(nic, done);
        Ok(())
    }

    fn write(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let operation = packet.headers.bth.opcode.operation();
        let ends = operation.is_last() || operation.is_only();
        let served = Served {
            roce,
            srq: self.srq.as_deref(),
        };
        if self.inbound.is_none() {
            self.inbound = InboundMessage::Write(served.rights(nic).write(&range_of(packet))?);
        }
        let InboundMessage::Write(write) = &mut self.inbound else {
            return Err(Refusal::INVALID);
        };
        let mut lost = None;
        let mut take = || {
            let at = write.locate(packet.payload.len(), ends)?;
            let wqe = if operation.has_immediate() {
                Some(served.take_recv(nic).ok_or(Refusal::NotReady)?)
            } else {
                None
            };
            if let Err(refused) = write.place(at, packet.payload) {
                lost = wqe;
                return Err(Refusal::from(refused));
            }
            Ok(wqe)
        };
        let result = take();
        let wqe = match result {
            Ok(wqe) => wqe,
            Err(refusal) => {
                if let Some(wqe) = lost {
                    // The memory vanished under the key: the receive taken for it completes with the error.
                    self.inbound = InboundMessage::send(wqe);
                } else if operation.is_only() {
                    // An Only packet that is not taken leaves no message in progress.
                    self.inbound = InboundMessage::None;
                }
                return Err(refusal);
            }
        };
        if ends {
            let total = write.total;
            self.inbound = InboundMessage::None;
            if let Some(wqe) = wqe {
                let mut done = roce.common.received(&wqe, Status::Success, total);
                done.completion.opcode = CompletionOpcode::RecvWriteWithImmediate;
                done.completion.immediate = Some(packet.headers.immediate);
                done.solicited = packet.headers.bth.solicited;
                served.complete_recv(nic, done);
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let reth = packet.headers.reth;
        if self.replies.reads() >= u32::from(roce.common.max_dest_rd_atomic) {
            return Err(too_many_fetches(roce));
        }
        let rights = self.served(roce).rights(nic);
        rights.permit(Access::REMOTE_READ)?;
        let reply = ReadReply::new(packet, self.next_msn(), rights.read(&range_of(packet))?);
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
        Ok(())
    }

    fn atomic(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let request = packet.headers.atomic;
        if roce.common.max_dest_rd_atomic == 0 || self.replies.is_full(roce) {
            return Err(too_many_fetches(roce));
        }
        let operation = match packet.headers.bth.opcode.operation() {
            Operation::CompareSwap => WordOperation::CompareSwap {
                compare: request.compare,
                swap: request.swap_add,
            },
            _ => WordOperation::FetchAdd(request.swap_add),
        };
        let rights = self.served(roce).rights(nic);
        let original = rights.word(request.va, request.rkey, operation)?;
        self.remember(
            roce,
            Executed::Atomic {
                psn: self.expected.psn(),
                original,
            },
        );
        self.msn = self.next_msn();
        self.replies.atomic(self.expected.psn(), self.msn, original);
        self.expected = self.expected.next();
        Ok(())
    }

    fn atomic_write(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let value = packet.payload.try_into().map_err(|_| Refusal::INVALID)?;
        if roce.common.max_dest_rd_atomic == 0 || self.replies.is_full(roce) {
            return Err(too_many_fetches(roce));
        }
        self.served(roce).rights(nic).store(&range_of(packet), value)?;
        self.done();
        Ok(())
    }

    fn flush_memory(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        if self.replies.is_overrun() {
            // Linux does not count these among those it may have outstanding. As good as lost; it comes again.
            return Ok(());
        }
        let feth = packet.headers.feth;
        let placement = Placement::from_bits(feth.placement).ok_or(Refusal::INVALID)?;
        let extent = match feth.selectivity {
            selectivity if selectivity == FlushRange::Named as u8 => FlushRange::Named,
            selectivity if selectivity == FlushRange::WholeKey as u8 => FlushRange::WholeKey,
            _ => return Err(Refusal::INVALID),
        };
        if roce.common.max_dest_rd_atomic == 0 {
            return Err(too_many_fetches(roce));
        }
        let rights = self.served(roce).rights(nic);
        rights.flush(&range_of(packet), extent, placement)?;
        self.done();
        Ok(())
    }

    /// An operation with a READ response without data was executed.
    fn done(&mut self) {
        self.msn = self.next_msn();
        self.replies.done(self.expected.psn(), self.msn);
        self.expected = self.expected.next();
    }

    fn handle_duplicate(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>, packet: &Packet<'_>) {
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
    pub(crate) fn flush(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        if let Some(inbound) = self.inbound.take_send() {
            let flushed = roce.common.received(&inbound.wqe, Status::Flushed, 0);
            self.served(roce).complete_recv(nic, flushed);
        }
        self.drop_kept(nic);
        self.history = VecDeque::new();
    }

    /// Drops everything, answers included.
    pub(crate) fn forget(&mut self, nic: &mut NicResources<'_>) {
        self.drop_kept(nic);
        self.inbound = InboundMessage::None;
        self.srq = None;
        self.history = VecDeque::new();
        self.replies.clear();
    }
}

/// The peer asks for more answers at a time than it was told it may.
fn too_many_fetches(roce: &RoceContext) -> Refusal {
    Refusal::invalid(RefusalReason::TooManyFetches(roce.common.max_dest_rd_atomic))
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
