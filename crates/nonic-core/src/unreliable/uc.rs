//! Receiving on an unreliable connection.
//!
//! Messages arrive whole, in order and at most once, or not at all. A gap drops the message it falls in; the
//! next First or Only packet starts afresh. A dropped SEND gives its receive back to the next one. Anything
//! from before the expected PSN is late or a copy and is dropped too.

use crate::memory::{Access, Key, SgFault};
use crate::qp::{Common, Context};
use crate::rc::{Fatal, MAX_MESSAGE};
use crate::rq::RecvWqe;
use crate::work::{CompletionOpcode, Status};
use nonic_wire::{Operation, Packet, Psn};
use std::sync::Arc;

/// The receiving half.
#[derive(Debug, Default)]
pub(crate) struct UcReceiver {
    expected: Psn,
    inbound: Inbound,
    /// The receive of a message that was dropped half-way.
    spare: Option<RecvWqe>,
}

#[derive(Debug, Default)]
enum Inbound {
    #[default]
    None,
    Send {
        wqe: RecvWqe,
        received: u32,
    },
    Write {
        key: Option<Arc<Key>>,
        va: u64,
        left: u32,
        total: u32,
    },
}

/// Why a packet's message is dropped.
enum Drop {
    Silently,
    /// The receive failed; so does the queue pair.
    Failed(RecvWqe, Status),
}

impl UcReceiver {
    pub(crate) fn start(&mut self, common: &Common) {
        *self = UcReceiver {
            expected: common.rq_psn,
            ..UcReceiver::default()
        };
    }

    pub(crate) fn handle(
        &mut self,
        common: &Common,
        context: &mut Context<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        let psn = packet.headers.bth.psn;
        if psn.is_before(self.expected) {
            context.counters.rx_duplicates += 1;
            return Ok(());
        }
        if psn.is_after(self.expected) {
            context.counters.rx_out_of_sequence += 1;
            self.abandon();
        }
        self.expected = psn.next();
        match self.take(common, context, packet) {
            Ok(()) => Ok(()),
            Err(Drop::Silently) => {
                context.counters.rx_dropped += 1;
                self.abandon();
                Ok(())
            }
            Err(Drop::Failed(wqe, status)) => {
                common.complete_recv(context, common.received(&wqe, status, 0));
                Err(Fatal)
            }
        }
    }

    /// Drops the message in progress, keeping its receive.
    fn abandon(&mut self) {
        if let Inbound::Send { wqe, .. } = std::mem::take(&mut self.inbound) {
            self.spare = Some(wqe);
        }
    }

    fn take(&mut self, common: &Common, context: &mut Context<'_>, packet: &Packet<'_>) -> Result<(), Drop> {
        let operation = packet.headers.bth.opcode.operation();
        let starts = operation.is_first() || operation.is_only();
        if starts {
            self.abandon();
        }
        if !length_fits(operation, packet.payload.len(), common.mtu as usize) {
            return Err(Drop::Silently);
        }
        if operation.is_send() {
            self.take_send(common, context, packet, starts)
        } else if operation.is_write() {
            self.take_write(common, context, packet, starts)
        } else {
            Err(Drop::Silently)
        }
    }

    fn take_send(
        &mut self,
        common: &Common,
        context: &mut Context<'_>,
        packet: &Packet<'_>,
        starts: bool,
    ) -> Result<(), Drop> {
        let operation = packet.headers.bth.opcode.operation();
        if starts {
            let wqe = self.next_recv(common, context)?;
            self.inbound = Inbound::Send { wqe, received: 0 };
        }
        let Inbound::Send { wqe, received } = &mut self.inbound else {
            return Err(Drop::Silently);
        };
        let total = u64::from(*received) + packet.payload.len() as u64;
        if total > u64::from(MAX_MESSAGE) {
            return Err(Drop::Silently);
        }
        if let Err(fault) = wqe.place(*received, packet.payload) {
            let status = match fault {
                SgFault::Length => Status::LocalLength,
                SgFault::Protection => Status::LocalProtection,
            };
            return Err(match std::mem::take(&mut self.inbound) {
                Inbound::Send { wqe, .. } => Drop::Failed(wqe, status),
                _ => Drop::Silently,
            });
        }
        *received = total as u32;
        if operation.is_last() || operation.is_only() {
            let mut done = common.received(wqe, Status::Success, *received);
            done.completion.immediate = operation.has_immediate().then_some(packet.headers.immediate);
            done.solicited = packet.headers.bth.solicited;
            self.inbound = Inbound::None;
            common.complete_recv(context, done);
        }
        Ok(())
    }

    fn take_write(
        &mut self,
        common: &Common,
        context: &mut Context<'_>,
        packet: &Packet<'_>,
        starts: bool,
    ) -> Result<(), Drop> {
        let operation = packet.headers.bth.opcode.operation();
        let ends = operation.is_last() || operation.is_only();
        if starts {
            self.inbound = begin_write(common, context, packet)?;
        }
        let Inbound::Write { key, va, left, total } = &mut self.inbound else {
            return Err(Drop::Silently);
        };
        let length = packet.payload.len() as u32;
        if (ends && length != *left) || (!ends && length >= *left) {
            return Err(Drop::Silently);
        }
        if let (Some(key), false) = (key, packet.payload.is_empty()) {
            let at = key
                .check(*va, u64::from(length), Access::REMOTE_WRITE)
                .map_err(|_| Drop::Silently)?;
            key.region()
                .write(at, packet.payload)
                .map_err(|_| Drop::Silently)?;
        }
        *va = va.wrapping_add(u64::from(length));
        *left -= length;
        let total = *total;
        if ends {
            self.inbound = Inbound::None;
            if operation.has_immediate() {
                let wqe = self.next_recv(common, context)?;
                let mut done = common.received(&wqe, Status::Success, total);
                done.completion.opcode = CompletionOpcode::RecvWriteWithImmediate;
                done.completion.immediate = Some(packet.headers.immediate);
                done.solicited = packet.headers.bth.solicited;
                common.complete_recv(context, done);
            }
        }
        Ok(())
    }

    fn next_recv(&mut self, common: &Common, context: &mut Context<'_>) -> Result<RecvWqe, Drop> {
        self.spare
            .take()
            .or_else(|| common.take_recv(context))
            .ok_or(Drop::Silently)
    }

    /// Ends the receive in progress as flushed.
    pub(crate) fn flush(&mut self, common: &Common, context: &mut Context<'_>) {
        self.abandon();
        if let Some(wqe) = self.spare.take() {
            common.complete_recv(context, common.received(&wqe, Status::Flushed, 0));
        }
    }

    pub(crate) fn forget(&mut self) {
        *self = UcReceiver::default();
    }
}

fn begin_write(common: &Common, context: &mut Context<'_>, packet: &Packet<'_>) -> Result<Inbound, Drop> {
    let reth = packet.headers.reth;
    if !common.access.contains(Access::REMOTE_WRITE) || reth.dma_len > MAX_MESSAGE {
        return Err(Drop::Silently);
    }
    let key = if reth.dma_len == 0 {
        None
    } else {
        let key = context
            .keys
            .find(reth.rkey, common.pd, common.qpn)
            .map_err(|_| Drop::Silently)?;
        key.check(reth.va, u64::from(reth.dma_len), Access::REMOTE_WRITE)
            .map_err(|_| Drop::Silently)?;
        Some(key)
    };
    Ok(Inbound::Write {
        key,
        va: reth.va,
        left: reth.dma_len,
        total: reth.dma_len,
    })
}

fn length_fits(operation: Operation, length: usize, mtu: usize) -> bool {
    if operation.is_first() || operation.is_middle() {
        length == mtu
    } else if operation.is_last() {
        (1..=mtu).contains(&length)
    } else {
        length <= mtu
    }
}
