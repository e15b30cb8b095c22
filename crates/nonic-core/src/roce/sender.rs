//! The sending half of both unreliable services.

use crate::queue_pair::{QpState, SendQueue};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::{Batch, Emit, Hop};
use crate::roce::request_packet::RequestPacket;
use crate::verbs::memory::Access;
use crate::verbs::work::Status;
use crate::verbs::wqe::SendWqe;
use nonic_wire::{Flow, Psn, ROCE_PORT};

/// Sends packets without waiting for answers.
#[derive(Debug, Default)]
pub(crate) struct UnreliableSender {
    queue: SendQueue<SendWqe>,
    next_psn: Psn,
    /// Packets of the front request already sent.
    index: u32,
}

impl UnreliableSender {
    /// Starts the sequence. Called on the way to RTS.
    pub(crate) fn start(&mut self, roce: &RoceContext) {
        self.next_psn = roce.sq_psn;
        self.index = 0;
    }

    /// The next packet to send.
    pub(crate) fn next_psn(&self) -> Psn {
        self.next_psn
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no request is half sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.index == 0
    }

    pub(crate) fn post(&mut self, wqe: SendWqe) {
        self.queue.push(wqe);
    }

    /// Writes the next packet, if there is one and it fits the batch; and where it goes.
    pub(crate) fn emit(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        batch: &Batch,
        out: &mut [u8],
    ) -> (Emit, Hop) {
        if !roce.common.state.requests() || (roce.common.state == QpState::Sqd && self.index == 0) {
            return (Emit::Idle, roce.hop());
        }
        while let Some(wqe) = self.queue.front() {
            if !wqe.op.is_local() {
                let hop = hop(roce, nic, wqe);
                return (self.emit_packet(roce, nic, batch, hop, out), hop);
            }
            if let Some(Err(status)) = self.queue.run_local(&roce.common, nic) {
                self.queue.complete_front(&roce.common, nic, status);
                return (Emit::Failed, roce.hop());
            }
        }
        (Emit::Idle, roce.hop())
    }

    fn emit_packet(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        batch: &Batch,
        hop: Hop,
        out: &mut [u8],
    ) -> Emit {
        let Some(wqe) = self.queue.front() else {
            return Emit::Idle;
        };
        let packet = RequestPacket::of_message(wqe, self.index, roce.mtu);
        let elsewhere = batch.hop.is_some_and(|joined| joined != hop);
        if elsewhere || packet.wire_len(roce) > batch.max_len {
            return Emit::NotInBatch;
        }
        let checked = if self.index == 0 {
            wqe.payload.check(Access::empty())
        } else {
            Ok(())
        };
        let written = checked.and_then(|()| packet.write(roce, wqe, self.next_psn, false, out));
        let Ok(length) = written else {
            self.end_front(roce, nic, Status::LocalProtection);
            return Emit::Failed;
        };
        self.next_psn = self.next_psn.next();
        self.index += 1;
        if packet.segment.last {
            self.end_front(roce, nic, Status::Success);
        }
        Emit::Packet(length)
    }

    fn end_front(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>, status: Status) {
        self.index = 0;
        self.queue.complete_front(&roce.common, nic, status);
    }

    /// Ends every queued request as flushed.
    pub(crate) fn flush(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        self.index = 0;
        self.queue.flush(&roce.common, nic);
    }

    /// Drops everything without completions.
    pub(crate) fn forget(&mut self) {
        *self = UnreliableSender::default();
    }
}

/// Where a request goes: a datagram's own destination, or the connected peer.
fn hop(roce: &RoceContext, nic: &NicResources<'_>, wqe: &SendWqe) -> Hop {
    let Some(destination) = &wqe.destination else {
        return roce.hop();
    };
    // Posting checked the index; an address that went away since leaves the last known one.
    let Some(own) = nic.endpoints.get(usize::from(destination.gid_index)) else {
        return Hop {
            dest_qpn: destination.qpn,
            ..roce.hop()
        };
    };
    Hop {
        flow: Flow {
            src: own.ip,
            dst: destination.ip,
            src_port: own.port,
            dst_port: ROCE_PORT,
        },
        dest_qpn: destination.qpn,
        gid_index: destination.gid_index,
    }
}
