//! Posting to the send queue: refuses a work request at once, or queues it.

use super::reliable::RcRequester;
use super::{RoceQueuePair, ServiceMachine};
use crate::placement::MAX_MESSAGE;
use crate::queue_pair::{PostError, QpState, gather_payload};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::Fatal;
use crate::roce::segment::Segment;
use crate::verbs::work::{RecvRequest, SendOp, SendRequest, Status};
use crate::verbs::wqe::SendWqe;
use nonic_wire::{Opcode, Service};

impl RoceQueuePair {
    /// Queues a request. In the error states it completes as flushed instead.
    pub(crate) fn post_send(
        &mut self,
        nic: &mut NicResources<'_>,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        if self.roce.domain.is_some() {
            // The target of an XRC connection has no send queue.
            return Err(PostError::Unsupported);
        }
        if matches!(
            self.roce.common.state,
            QpState::Reset | QpState::Init | QpState::Rtr
        ) {
            return Err(PostError::State(self.roce.common.state));
        }
        if self.send_queue_len() >= self.roce.common.capacity.max_send_wr as usize {
            return Err(PostError::SendQueueFull);
        }
        let wqe = build(&self.roce, nic, request)?;
        if matches!(self.roce.common.state, QpState::Error | QpState::Sqe) {
            self.roce.common.complete_send(nic, &wqe, Status::Flushed);
            return Ok(());
        }
        match &mut self.machine {
            ServiceMachine::Rc { requester, .. } => match requester.chosen(&self.roce, nic) {
                RcRequester::Records(requester) => {
                    requester.post(wqe);
                    if requester.has_one_unwritten() {
                        self.write_posted(nic);
                    }
                }
                RcRequester::Packets(requester) => {
                    requester.post(&self.roce, wqe);
                    if let Err(Fatal) = requester.execute_posted(&self.roce, nic) {
                        self.enter_error(nic);
                    }
                }
            },
            ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => sender.post(wqe),
        }
        Ok(())
    }

    /// Queues a receive. In the error state it completes as flushed.
    pub(crate) fn post_recv(
        &mut self,
        nic: &mut NicResources<'_>,
        request: &RecvRequest<'_>,
    ) -> Result<(), PostError> {
        if self.roce.common.service == Service::Xrc {
            return Err(PostError::Unsupported);
        }
        if self.roce.common.rq.srq_id().is_some() {
            return Err(PostError::SharedReceiveQueue);
        }
        if self.roce.common.state == QpState::Reset {
            return Err(PostError::State(QpState::Reset));
        }
        self.roce
            .common
            .rq
            .post_as(request, nic.keys, self.roce.common.qpn)?;
        if self.roce.common.state == QpState::Error {
            self.flush_receives(nic);
        }
        Ok(())
    }
}

fn build(
    roce: &RoceContext,
    nic: &NicResources<'_>,
    request: &SendRequest<'_>,
) -> Result<SendWqe, PostError> {
    check_service(roce, request.op)?;
    check_destination(roce, nic, request)?;
    let payload = gather_payload(&roce.common, nic, request)?;
    let length = payload.length();
    let fits = match request.op {
        SendOp::AtomicWrite(_) => length == 8,
        SendOp::Flush(_) => length == 0,
        op if op.is_atomic() => length == 8,
        op if op.is_local() => length == 0,
        _ if roce.common.service == Service::Ud => length <= u64::from(roce.mtu),
        _ => length <= u64::from(MAX_MESSAGE),
    };
    if !fits {
        return Err(PostError::Length);
    }
    Ok(SendWqe {
        wr_id: request.wr_id,
        op: request.op,
        flags: request.flags,
        payload,
        length: length as u32,
        destination: request.destination.map(Box::new),
    })
}

fn check_service(roce: &RoceContext, op: SendOp) -> Result<(), PostError> {
    if op.is_local() {
        return if roce.common.service == Service::Ud {
            Err(PostError::Unsupported)
        } else {
            Ok(())
        };
    }
    let only = Segment {
        offset: 0,
        length: 0,
        first: true,
        last: true,
    };
    if Opcode::new(roce.common.service, only.operation(op)).is_none() {
        return Err(PostError::Unsupported);
    }
    if matches!(op, SendOp::Flush(flush) if flush.placement.is_empty()) {
        return Err(PostError::Unsupported);
    }
    if op.is_answered() && roce.common.max_rd_atomic == 0 {
        return Err(PostError::NoFetches);
    }
    Ok(())
}

fn check_destination(
    roce: &RoceContext,
    nic: &NicResources<'_>,
    request: &SendRequest<'_>,
) -> Result<(), PostError> {
    let valid = match (roce.common.service, &request.destination) {
        (Service::Ud, Some(to)) => {
            let own = nic.endpoints.get(usize::from(to.gid_index));
            own.is_some_and(|own| own.ip.is_ipv4() == to.ip.is_ipv4())
        }
        (Service::Ud, None) => false,
        (Service::Xrc, destination) => request.op.is_local() || destination.is_some(),
        (_, destination) => destination.is_none(),
    };
    if valid {
        Ok(())
    } else {
        Err(PostError::Destination)
    }
}
