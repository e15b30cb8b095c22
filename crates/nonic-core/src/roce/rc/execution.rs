//! Executes requests of the peer of a reliable connection, whatever carried them: takes receives, places bytes, reads memory and
//! changes words.
//!
//! Nothing changes before everything about a request has been checked. Then bytes are placed, then a receive completes.
//!
//! It knows no order and no repetition, and answers nobody: a request that it is given is executed. Which request is next, and what the
//! peer hears, is the responder's to know: [`Responder`](super::Responder) for packets,
//! [`RecordResponder`](crate::roce::local::RecordResponder) for records.

use crate::direct::{Direct, DirectOperation};
use crate::placement::{OutboundRead, WordOperation};
use crate::queue_pair::{InboundMessage, InboundSend};
use crate::record::{QpEvent, RefusalReason, RequestKind};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::local::direct_request;
use crate::roce::refusal::Refusal;
use crate::roce::served::{Served, named_range, range_of};
use crate::roce::xrc::XrcSrq;
use crate::verbs::event::Event;
use crate::verbs::memory::Access;
use crate::verbs::work::{CompletionOpcode, FlushRange, Placement, RemoteAddress, Status};
use nonic_wire::{NakCode, Operation, Packet};
use std::sync::Arc;

/// The message that is arriving, and on whose behalf it is executed.
#[derive(Debug, Default)]
pub(crate) struct Execution {
    inbound: InboundMessage,
    /// With XRC: the SRQ that the message in progress, or the latest one, is for.
    srq: Option<Arc<XrcSrq>>,
}

/// What became of a request that was executed.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Bytes of a SEND or WRITE were placed.
    Placed,
    /// These bytes are to be sent to the peer.
    Read(OutboundRead),
    /// A word was changed; what it was before.
    Word(u64),
    /// An ATOMIC_WRITE or FLUSH was carried out.
    Done,
}

impl Execution {
    /// Whether no message is half executed.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.inbound.is_none()
    }

    /// Executes a request whose place in its message was checked ([`Execution::check_sequence`]).
    pub(crate) fn execute(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
    ) -> Result<Outcome, Refusal> {
        let operation = packet.headers.bth.opcode.operation();
        if operation.is_send() {
            self.send(roce, nic, packet)?;
            return Ok(Outcome::Placed);
        }
        if operation.is_write() {
            self.write(roce, nic, packet)?;
            return Ok(Outcome::Placed);
        }
        if roce.common.max_dest_rd_atomic == 0 {
            return Err(too_many_fetches(roce));
        }
        match operation {
            Operation::ReadRequest => self.read(roce, nic, packet).map(Outcome::Read),
            Operation::CompareSwap | Operation::FetchAdd => self.word(roce, nic, packet).map(Outcome::Word),
            Operation::AtomicWrite => self.store(roce, nic, packet).map(|()| Outcome::Done),
            Operation::Flush => self.flush_memory(roce, nic, packet).map(|()| Outcome::Done),
            _ => Err(Refusal::INVALID),
        }
    }

    /// First packets need a message boundary before them, middle and last ones a message in progress.
    pub(crate) fn check_sequence(&self, operation: Operation) -> Result<(), Refusal> {
        let continues = operation.is_middle() || (operation.is_last() && !operation.is_only());
        let fits = match &self.inbound {
            InboundMessage::None => !continues,
            // A receive was taken for a SEND whose bytes could not be fetched: it comes again, with them.
            InboundMessage::Send(inbound) if inbound.is_untouched() => !continues && operation.is_send(),
            InboundMessage::Send(_) => continues && operation.is_send(),
            InboundMessage::Write(_) => continues && operation.is_write(),
        };
        if fits {
            Ok(())
        } else {
            Err(Refusal::invalid(RefusalReason::Sequence))
        }
    }

    /// With XRC, finds the SRQ that a request names. All packets of a message name the same one.
    pub(crate) fn choose_srq(
        &mut self,
        roce: &RoceContext,
        nic: &NicResources,
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

    /// On whose behalf the message in progress is executed: the queue pair's or an SRQ's.
    fn served<'a>(&'a self, roce: &'a RoceContext) -> Served<'a> {
        Served {
            roce,
            srq: self.srq.as_deref(),
        }
    }

    fn send(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let operation = packet.headers.bth.opcode.operation();
        let served = Served {
            roce,
            srq: self.srq.as_deref(),
        };
        if operation.is_only() {
            let mut inbound = match self.inbound.take_send() {
                Some(untouched) => untouched,
                None => InboundSend::new(served.take_recv(nic).ok_or(Refusal::NotReady)?),
            };
            let placed = place_send(served, nic, packet, &mut inbound);
            if placed.is_err() {
                // The receive completes with the error.
                self.inbound = InboundMessage::Send(inbound);
            }
            return placed;
        }
        if self.inbound.is_none() {
            let wqe = served.take_recv(nic).ok_or(Refusal::NotReady)?;
            self.inbound = InboundMessage::send(wqe);
        }
        let InboundMessage::Send(inbound) = &mut self.inbound else {
            return Err(Refusal::INVALID);
        };
        place_send(served, nic, packet, inbound)?;
        if operation.is_last() {
            self.inbound = InboundMessage::None;
        }
        Ok(())
    }

    /// Executes a SEND whose bytes are in the memory of the peer: fetches them to where the receive wants them. `false` if they cannot be
    /// reached there: nothing has happened then but that a receive may have been taken, for when the SEND comes again.
    pub(crate) fn pull(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
    ) -> Result<bool, Refusal> {
        let served = Served {
            roce,
            srq: self.srq.as_deref(),
        };
        if self.inbound.is_none() {
            let wqe = served.take_recv(nic).ok_or(Refusal::NotReady)?;
            self.inbound = InboundMessage::send(wqe);
        }
        let InboundMessage::Send(inbound) = &mut self.inbound else {
            return Err(Refusal::INVALID);
        };
        let range = range_of(packet);
        let bytes = inbound.room_for(&nic.keys, range.length)?;
        let remote = RemoteAddress {
            va: range.va,
            rkey: range.rkey,
        };
        let request = direct_request(roce, DirectOperation::Pull, remote, bytes);
        let direct = nic.direct.as_deref_mut();
        if direct.is_none_or(|direct| direct.execute(&request) == Direct::Refused) {
            return Ok(false);
        }
        nic.counters.direct_bytes += u64::from(range.length);
        inbound.filled(range.length);
        end_send(served, nic, packet, inbound)?;
        let operation = packet.headers.bth.opcode.operation();
        if operation.is_last() || operation.is_only() {
            self.inbound = InboundMessage::None;
        }
        Ok(true)
    }

    fn write(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
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
        &self,
        roce: &RoceContext,
        nic: &NicResources,
        packet: &Packet<'_>,
    ) -> Result<OutboundRead, Refusal> {
        let rights = self.served(roce).rights(nic);
        rights.permit(Access::REMOTE_READ)?;
        Ok(rights.read(&range_of(packet))?)
    }

    fn word(&self, roce: &RoceContext, nic: &NicResources, packet: &Packet<'_>) -> Result<u64, Refusal> {
        let request = packet.headers.atomic;
        let operation = match packet.headers.bth.opcode.operation() {
            Operation::CompareSwap => WordOperation::CompareSwap {
                compare: request.compare,
                swap: request.swap_add,
            },
            _ => WordOperation::FetchAdd(request.swap_add),
        };
        let rights = self.served(roce).rights(nic);
        Ok(rights.word(request.va, request.rkey, operation)?)
    }

    fn store(&self, roce: &RoceContext, nic: &NicResources, packet: &Packet<'_>) -> Result<(), Refusal> {
        let value = packet.payload.try_into().map_err(|_| Refusal::INVALID)?;
        Ok(self.served(roce).rights(nic).store(&range_of(packet), value)?)
    }

    fn flush_memory(
        &self,
        roce: &RoceContext,
        nic: &NicResources,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let feth = packet.headers.feth;
        let placement = Placement::from_bits(feth.placement).ok_or(Refusal::INVALID)?;
        let extent = match feth.selectivity {
            selectivity if selectivity == FlushRange::Named as u8 => FlushRange::Named,
            selectivity if selectivity == FlushRange::WholeKey as u8 => FlushRange::WholeKey,
            _ => return Err(Refusal::INVALID),
        };
        let rights = self.served(roce).rights(nic);
        Ok(rights.flush(&range_of(packet), extent, placement)?)
    }

    /// Writes down what was refused and why.
    #[cold]
    pub(crate) fn record_refusal(
        &self,
        roce: &RoceContext,
        nic: &mut NicResources,
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

    /// Tells the program that its peer's request was refused: by the receive that was taken for it, or by an event.
    pub(crate) fn report_refusal(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
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

    /// Ends the receive in progress as flushed, on the way to the error state.
    pub(crate) fn flush(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        if let Some(inbound) = self.inbound.take_send() {
            let flushed = roce.common.received(&inbound.wqe, Status::Flushed, 0);
            self.served(roce).complete_recv(nic, flushed);
        }
    }
}

/// The peer asks for more answers at a time than it was told it may.
pub(super) fn too_many_fetches(roce: &RoceContext) -> Refusal {
    Refusal::invalid(RefusalReason::TooManyFetches(roce.common.max_dest_rd_atomic))
}

/// Places bytes of a SEND, and completes the receive with the last ones.
#[inline]
fn place_send(
    served: Served<'_>,
    nic: &mut NicResources,
    packet: &Packet<'_>,
    inbound: &mut InboundSend,
) -> Result<(), Refusal> {
    inbound.place(&nic.keys, packet.payload)?;
    end_send(served, nic, packet, inbound)
}

/// The bytes of a packet of a SEND were placed: completes the receive if they were the last.
#[inline]
fn end_send(
    served: Served<'_>,
    nic: &mut NicResources,
    packet: &Packet<'_>,
    inbound: &InboundSend,
) -> Result<(), Refusal> {
    let operation = packet.headers.bth.opcode.operation();
    if !(operation.is_last() || operation.is_only()) {
        return Ok(());
    }
    let invalidated = operation
        .has_invalidate()
        .then_some(packet.headers.invalidate_rkey);
    if let Some(rkey) = invalidated {
        served.rights(nic).invalidate(rkey)?;
    }
    let common = &served.roce.common;
    let mut done = common.received(&inbound.wqe, Status::Success, inbound.received());
    done.completion.invalidated_rkey = invalidated;
    done.completion.immediate = operation.has_immediate().then_some(packet.headers.immediate);
    done.solicited = packet.headers.bth.solicited;
    served.complete_recv(nic, done);
    Ok(())
}
