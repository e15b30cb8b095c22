//! What queue pairs of every transport have in common: identity, queues, rights, and how their work requests complete.

use super::state::QpState;
use crate::resources::{NicResources, Pending, Received};
use crate::verbs::cq::CompletionQueue;
use crate::verbs::memory::{Access, PdId};
use crate::verbs::rq::{ReceiveQueue, RecvWqe};
use crate::verbs::work::{Completion, CompletionOpcode, SendFlags, SendOp, Status};
use crate::verbs::wqe::SendWqe;
use nonic_wire::{Qpn, Service};
use std::sync::Arc;

/// Queue sizes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct QpCapacity {
    /// Send-queue requests outstanding.
    pub max_send_wr: u32,
    /// Receives outstanding; ignored with an SRQ.
    pub max_recv_wr: u32,
    /// Gather elements of a send.
    pub max_send_sge: u32,
    /// Scatter elements of a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
}

impl Default for QpCapacity {
    fn default() -> Self {
        QpCapacity {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 512,
        }
    }
}

/// The part of a queue pair that no transport is needed for.
#[derive(Debug)]
pub(crate) struct QpContext {
    pub(crate) qpn: Qpn,
    pub(crate) service: Service,
    pub(crate) state: QpState,
    pub(crate) pd: PdId,
    pub(crate) send_cq: Arc<CompletionQueue>,
    pub(crate) recv_cq: Arc<CompletionQueue>,
    pub(crate) rq: Arc<ReceiveQueue>,
    pub(crate) capacity: QpCapacity,
    pub(crate) signal_all: bool,
    pub(crate) access: Access,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
}

impl QpContext {
    /// Carries out a request that concerns this NIC alone.
    pub(crate) fn run_local(&self, nic: &NicResources<'_>, op: SendOp) -> Result<(), Status> {
        let keys = nic.keys;
        match op {
            SendOp::LocalInvalidate(rkey) => keys
                .invalidate(rkey, self.pd, self.qpn)
                .map_err(|_| Status::LocalQpOperation),
            SendOp::BindWindow(bind) => keys
                .bind_window(&bind, self.pd, self.qpn)
                .map_err(|_| Status::WindowBind),
            _ => Ok(()),
        }
    }

    /// Ends a send-queue request.
    pub(crate) fn complete_send(&self, nic: &mut NicResources<'_>, wqe: &SendWqe, status: Status) {
        let signaled = self.signal_all || wqe.flags.contains(SendFlags::SIGNALED);
        if status == Status::Success && !signaled {
            return;
        }
        let byte_len = match wqe.op {
            SendOp::Read(_) => wqe.length,
            op if op.is_atomic() => 8,
            _ => 0,
        };
        let completion = self.completion(wqe.wr_id, status, wqe.op.completion_opcode(), byte_len);
        nic.outbox.push(Pending {
            cq: Arc::clone(&self.send_cq),
            completion,
            wakes: status != Status::Success,
        });
    }

    /// Ends a receive.
    pub(crate) fn complete_recv(&self, nic: &mut NicResources<'_>, received: Received) {
        nic.complete_recv(&self.recv_cq, received);
    }

    /// A receive's completion, to be refined by the caller.
    pub(crate) fn received(&self, wqe: &RecvWqe, status: Status, byte_len: u32) -> Received {
        let completion = self.completion(wqe.wr_id, status, CompletionOpcode::Recv, byte_len);
        Received {
            completion,
            solicited: false,
        }
    }

    /// Takes the next receive, reporting the SRQ's limit.
    pub(crate) fn take_recv(&self, nic: &mut NicResources<'_>) -> Option<RecvWqe> {
        nic.take_recv(&self.rq)
    }

    fn completion(&self, wr_id: u64, status: Status, opcode: CompletionOpcode, byte_len: u32) -> Completion {
        Completion {
            wr_id,
            status,
            opcode,
            byte_len,
            immediate: None,
            invalidated_rkey: None,
            qpn: self.qpn,
            src_qp: Qpn::new(0),
            grh: false,
            ipv4: false,
        }
    }
}
