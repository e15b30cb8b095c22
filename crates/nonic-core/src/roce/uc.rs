//! The receiving half of an unreliable connection.
//!
//! Messages arrive whole, in order and at most once, or not at all. A gap drops the message it falls in; the
//! next First or Only packet starts afresh. A dropped SEND gives its receive back to the next one. Anything
//! from before the expected PSN is late or a copy and is dropped too.

use crate::placement::Refused;
use crate::queue_pair::{InboundMessage, Misplaced};
use crate::record::{QpEvent, RefusalReason, RequestKind};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::Fatal;
use crate::roce::segment::length_fits;
use crate::roce::served::{Served, named_range, range_of};
use crate::verbs::rq::RecvWqe;
use crate::verbs::work::{CompletionOpcode, Status};
use nonic_wire::{Packet, Psn};

/// The receiving half.
#[derive(Debug, Default)]
pub(crate) struct UcReceiver {
    expected: Psn,
    inbound: InboundMessage,
    /// The receive of a message that was dropped half-way.
    spare: Option<RecvWqe>,
}

/// Why a packet's message is dropped.
enum Drop {
    /// It is wrong, or there is no receive for it. The peer is not told.
    Silently(RefusalReason),
    /// The receive failed; so does the queue pair.
    Failed(RecvWqe, Status),
}

impl From<Refused> for Drop {
    fn from(refused: Refused) -> Self {
        Drop::Silently(refused.into())
    }
}

impl UcReceiver {
    pub(crate) fn start(&mut self, roce: &RoceContext) {
        *self = UcReceiver {
            expected: roce.rq_psn,
            ..UcReceiver::default()
        };
    }

    /// The packet that the next message may begin with.
    pub(crate) fn expected(&self) -> Psn {
        self.expected
    }

    pub(crate) fn handle(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        let psn = packet.headers.bth.psn;
        if psn.is_before(self.expected) {
            nic.counters.rx_duplicates += 1;
            return Ok(());
        }
        if psn.is_after(self.expected) {
            nic.counters.rx_out_of_sequence += 1;
            self.abandon();
        }
        self.expected = psn.next();
        match self.take(roce, nic, packet) {
            Ok(()) => Ok(()),
            Err(Drop::Silently(reason)) => {
                nic.counters.rx_dropped += 1;
                self.record_dropped(roce, nic, packet, reason);
                self.abandon();
                Ok(())
            }
            Err(Drop::Failed(wqe, status)) => {
                roce.common
                    .complete_recv(nic, roce.common.received(&wqe, status, 0));
                Err(Fatal)
            }
        }
    }

    /// Writes down what was dropped. A packet behind one that was lost belongs to a message that is gone: that is no news.
    #[cold]
    fn record_dropped(
        &self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
        reason: RefusalReason,
    ) {
        let kind = RequestKind::of(packet.headers.bth.opcode.operation());
        if let RefusalReason::Key(_) | RefusalReason::Operation = reason {
            let served = Served { roce, srq: None };
            let range = named_range(packet, kind);
            let refused = served.rights(nic).describe(kind, range.as_ref(), reason);
            nic.record(roce.common.qpn, QpEvent::Dropped(kind, refused.reason));
        } else if reason != RefusalReason::Sequence {
            nic.record(roce.common.qpn, QpEvent::Dropped(kind, reason));
        }
    }

    /// Drops the message in progress, keeping its receive.
    fn abandon(&mut self) {
        if let Some(inbound) = self.inbound.take_send() {
            self.spare = Some(inbound.wqe);
        }
    }

    fn take(&mut self, roce: &RoceContext, nic: &mut NicResources, packet: &Packet<'_>) -> Result<(), Drop> {
        let operation = packet.headers.bth.opcode.operation();
        let starts = operation.is_first() || operation.is_only();
        if starts {
            self.abandon();
        }
        if !length_fits(operation, packet.payload.len(), roce.mtu) {
            return Err(Drop::Silently(RefusalReason::PacketLength {
                payload: packet.payload.len() as u32,
                mtu: roce.mtu,
            }));
        }
        if operation.is_send() {
            self.take_send(roce, nic, packet, starts)
        } else if operation.is_write() {
            self.take_write(roce, nic, packet, starts)
        } else {
            Err(Drop::Silently(RefusalReason::Malformed))
        }
    }

    fn take_send(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
        starts: bool,
    ) -> Result<(), Drop> {
        let operation = packet.headers.bth.opcode.operation();
        if starts {
            let wqe = self.next_recv(roce, nic)?;
            self.inbound = InboundMessage::send(wqe);
        }
        let InboundMessage::Send(inbound) = &mut self.inbound else {
            return Err(Drop::Silently(RefusalReason::Sequence));
        };
        match inbound.place(&nic.keys, packet.payload) {
            Ok(()) => {}
            Err(Misplaced::TooLong) => return Err(Drop::Silently(RefusalReason::Length)),
            Err(Misplaced::Receive(fault)) => {
                let length = inbound.length_with(packet.payload.len());
                roce.common.record_misplaced(nic, fault, length, &inbound.wqe);
                return Err(match self.inbound.take_send() {
                    Some(inbound) => Drop::Failed(inbound.wqe, fault.into()),
                    None => Drop::Silently(RefusalReason::Sequence),
                });
            }
        }
        if operation.is_last() || operation.is_only() {
            let mut done = roce
                .common
                .received(&inbound.wqe, Status::Success, inbound.received());
            done.completion.immediate = operation.has_immediate().then_some(packet.headers.immediate);
            done.solicited = packet.headers.bth.solicited;
            self.inbound = InboundMessage::None;
            roce.common.complete_recv(nic, done);
        }
        Ok(())
    }

    fn take_write(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
        starts: bool,
    ) -> Result<(), Drop> {
        let operation = packet.headers.bth.opcode.operation();
        let ends = operation.is_last() || operation.is_only();
        if starts {
            let served = Served { roce, srq: None };
            let write = served.rights(nic).write(&range_of(packet))?;
            self.inbound = InboundMessage::Write(write);
        }
        let InboundMessage::Write(write) = &mut self.inbound else {
            return Err(Drop::Silently(RefusalReason::Sequence));
        };
        let at = write.locate(packet.payload.len(), ends)?;
        write.place(at, packet.payload)?;
        let total = write.total;
        if ends {
            self.inbound = InboundMessage::None;
            if operation.has_immediate() {
                let wqe = self.next_recv(roce, nic)?;
                let mut done = roce.common.received(&wqe, Status::Success, total);
                done.completion.opcode = CompletionOpcode::RecvWriteWithImmediate;
                done.completion.immediate = Some(packet.headers.immediate);
                done.solicited = packet.headers.bth.solicited;
                roce.common.complete_recv(nic, done);
            }
        }
        Ok(())
    }

    fn next_recv(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Result<RecvWqe, Drop> {
        self.spare
            .take()
            .or_else(|| roce.common.take_recv(nic))
            .ok_or(Drop::Silently(RefusalReason::NoReceive))
    }

    /// Ends the receive in progress as flushed.
    pub(crate) fn flush(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        self.abandon();
        if let Some(wqe) = self.spare.take() {
            roce.common
                .complete_recv(nic, roce.common.received(&wqe, Status::Flushed, 0));
        }
    }

    pub(crate) fn forget(&mut self) {
        *self = UcReceiver::default();
    }
}
