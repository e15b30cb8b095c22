//! The part of a queue pair that every transport shares: identity, queues, rights, and how its work requests complete.

use super::state::QpState;
use super::traffic::Traffic;
use crate::record::{FailedRequest, KeyExtent, LocalFault, QpEvent, RefusalReason, RequestKind};
use crate::resources::{NicResources, Received};
use crate::verbs::cq::CompletionQueue;
use crate::verbs::memory::{Access, KeyError, PdId, SgFault};
use crate::verbs::rq::{Receives, RecvWqe};
use crate::verbs::work::{Completion, CompletionOpcode, SendFlags, SendOp, SendRequest, Status};
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
    pub(crate) rq: Receives,
    pub(crate) capacity: QpCapacity,
    pub(crate) signal_all: bool,
    pub(crate) access: Access,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) traffic: Traffic,
}

impl QpContext {
    /// Carries out a request that concerns this NIC alone.
    pub(crate) fn run_local(&self, nic: &mut NicResources, op: SendOp) -> Result<(), Status> {
        let keys = &nic.keys;
        let (result, status, (lkey, addr, length)) = match op {
            SendOp::LocalInvalidate(rkey) => (
                keys.invalidate(rkey, self.pd, self.qpn),
                Status::LocalQpOperation,
                (rkey, 0, 0),
            ),
            SendOp::BindWindow(bind) => (
                keys.bind_window(&bind, self.pd, self.qpn),
                Status::WindowBind,
                (bind.lkey, bind.va, bind.length),
            ),
            _ => return Ok(()),
        };
        result.map_err(|error| {
            self.record_local_fault(nic, (lkey, addr, length), error);
            status
        })
    }

    /// Writes down that a key of this side does not permit what a work request needs.
    #[cold]
    fn record_local_fault(&self, nic: &mut NicResources, named: (u32, u64, u64), error: KeyError) {
        let (lkey, addr, length) = named;
        let fault = LocalFault {
            lkey,
            addr,
            length,
            error: nic.keys.refine(lkey, error),
            key: nic.keys.look_up(lkey).as_deref().map(KeyExtent::of),
        };
        nic.record(self.qpn, QpEvent::LocalFault(Box::new(fault)));
    }

    /// Writes down why a request of the send queue failed.
    #[cold]
    fn record_failed_send(&self, nic: &mut NicResources, wqe: &SendWqe, status: Status) {
        if status == Status::Flushed {
            return;
        }
        let needed = match wqe.op.fetches() {
            true => Access::LOCAL_WRITE,
            false => Access::empty(),
        };
        if let (Status::LocalProtection, Some((named, error))) =
            (status, wqe.payload.fault(&nic.keys, needed))
        {
            self.record_local_fault(nic, named, error);
        }
        let failed = FailedRequest {
            wr_id: wqe.wr_id,
            opcode: wqe.op.completion_opcode(),
            status,
            length: u64::from(wqe.length),
            remote: FailedRequest::remote_of(wqe.op),
        };
        nic.record(self.qpn, QpEvent::Failed(Box::new(failed)));
    }

    /// Writes down why a message of this length could not be placed in its receive.
    #[cold]
    pub(crate) fn record_misplaced(
        &self,
        nic: &mut NicResources,
        fault: SgFault,
        message: u64,
        wqe: &RecvWqe,
    ) {
        match fault {
            SgFault::Length => self.record_short_receive(nic, message, wqe),
            SgFault::Protection => self.record_receive_fault(nic, wqe),
        }
    }

    /// Writes down that a message is longer than its receive.
    fn record_short_receive(&self, nic: &mut NicResources, message: u64, wqe: &RecvWqe) {
        let short = RefusalReason::ReceiveTooShort {
            message: u32::try_from(message).unwrap_or(u32::MAX),
            receive: u32::try_from(wqe.target.length()).unwrap_or(u32::MAX),
        };
        nic.record(self.qpn, QpEvent::Dropped(RequestKind::Send, short));
    }

    /// Writes down which key of a receive does not permit to write there.
    #[cold]
    pub(crate) fn record_receive_fault(&self, nic: &mut NicResources, wqe: &RecvWqe) {
        if let Some((named, error)) = wqe.target.fault(&nic.keys, Access::LOCAL_WRITE) {
            self.record_local_fault(nic, named, error);
        }
    }

    /// A request that was checked, as it is queued.
    #[inline(always)]
    pub(crate) fn wqe(&self, request: &SendRequest<'_>) -> SendWqe {
        SendWqe::new(self.pd, request)
    }

    /// Ends a send-queue request.
    pub(crate) fn complete_send(&self, nic: &mut NicResources, wqe: &SendWqe, status: Status) {
        let signaled = self.signal_all || wqe.flags.contains(SendFlags::SIGNALED);
        if status == Status::Success && !signaled {
            return;
        }
        if status != Status::Success {
            self.record_failed_send(nic, wqe, status);
        }
        let byte_len = match wqe.op {
            SendOp::Read(_) => wqe.length,
            op if op.is_atomic() => 8,
            _ => 0,
        };
        let completion = self.completion(wqe.wr_id, status, wqe.op.completion_opcode(), byte_len);
        nic.outbox
            .add(&self.send_cq, completion, status != Status::Success);
    }

    /// Ends a receive.
    pub(crate) fn complete_recv(&self, nic: &mut NicResources, received: Received) {
        nic.complete_recv(&self.recv_cq, received);
    }

    /// A receive's completion, to be refined by the caller.
    #[inline]
    pub(crate) fn received(&self, wqe: &RecvWqe, status: Status, byte_len: u32) -> Received {
        let completion = self.completion(wqe.wr_id, status, CompletionOpcode::Recv, byte_len);
        Received {
            completion,
            solicited: false,
        }
    }

    /// Takes the next receive, reporting the SRQ's limit.
    pub(crate) fn take_recv(&self, nic: &mut NicResources) -> Option<RecvWqe> {
        nic.take_recv(&self.rq)
    }

    #[inline]
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
