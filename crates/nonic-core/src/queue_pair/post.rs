//! Posting to the send queue: refuses a work request at once, or queues it.

use super::{Machine, QueuePair};
use crate::placement::MAX_MESSAGE;
use crate::qp::{QpContext, QpState};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::Fatal;
use crate::roce::segment::Segment;
use crate::verbs::memory::SgList;
use crate::verbs::rq::RecvRefused;
use crate::verbs::work::{Data, RecvRequest, SendOp, SendRequest, Status};
use crate::verbs::wqe::{Payload, SendWqe};
use nonic_wire::{Opcode, Service};

/// Why a work request was not taken. Nothing of it was queued.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// No such queue pair.
    #[error("no such queue pair")]
    NoSuchQp,
    /// The queue pair is not ready for it.
    #[error("the queue pair is in state {0}; it must be connected first")]
    State(QpState),
    /// As many requests as the queue holds are outstanding.
    #[error("the send queue is full; wait for completions or create it deeper")]
    SendQueueFull,
    /// The receive queue did not take it.
    #[error(transparent)]
    Receive(#[from] RecvRefused),
    /// The queue pair has no receive queue of its own.
    #[error("the queue pair draws from a shared receive queue; post there")]
    SharedReceiveQueue,
    /// The service does not offer the operation.
    #[error("this service does not offer the operation")]
    Unsupported,
    /// More gather elements than the queue was created for.
    #[error("more gather elements than the send queue was created for")]
    TooManySges,
    /// More inline data than the queue was created for, or inline data where an answer should land.
    #[error("inline data is longer than the queue was created for, or cannot be used with this operation")]
    Inline,
    /// The length is not possible: above 2 GiB, above the path MTU for a datagram, or not 8 for an atomic or an ATOMIC_WRITE.
    #[error("the message length is not possible for this operation")]
    Length,
    /// More bytes than the peer's memory has that they are for.
    #[error(
        "{asked} bytes are more than the {there} of the remote memory; use a longer slice or fewer bytes"
    )]
    BeyondRemote {
        /// Bytes of the request's buffers.
        asked: u64,
        /// Bytes of the remote slice.
        there: u64,
    },
    /// A datagram needs a destination with a valid address index, an XRC request one with an SRQ; other
    /// services take none.
    #[error("the destination is missing, not allowed here, or names no local address")]
    Destination,
    /// READs, atomics, ATOMIC_WRITEs and FLUSHes need `max_rd_atomic` above zero.
    #[error("the queue pair was connected with max_rd_atomic 0: it can neither READ, FLUSH nor use atomics")]
    NoFetches,
    /// The device can neither send nor receive any more ([`Event::DeviceFatal`](crate::Event::DeviceFatal)).
    #[error("the device has failed: the process closed descriptors that it needs; open it again")]
    DeviceFailed,
}

impl QueuePair {
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
            Machine::Rc { requester, .. } => {
                requester.post(&self.roce, wqe);
                if let Err(Fatal) = requester.execute_posted(&self.roce, nic) {
                    self.enter_error(nic);
                }
            }
            Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => sender.post(wqe),
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

/// Where a request's bytes are, inline ones copied.
pub(crate) fn gather_payload(
    common: &QpContext,
    nic: &NicResources<'_>,
    request: &SendRequest<'_>,
) -> Result<Payload, PostError> {
    match request.data {
        Data::Inline(bytes) => {
            // The bytes of an ATOMIC_WRITE are part of the request itself.
            let limit = match request.op {
                SendOp::AtomicWrite(_) => 8,
                _ => common.capacity.max_inline_data as usize,
            };
            if request.op.fetches() || bytes.len() > limit {
                return Err(PostError::Inline);
            }
            Ok(Payload::Inline(bytes.into()))
        }
        Data::Sges(sges) => {
            if sges.len() > common.capacity.max_send_sge as usize {
                return Err(PostError::TooManySges);
            }
            let list = SgList::resolve(sges, nic.keys, common.pd, common.qpn);
            Ok(Payload::Memory(list))
        }
    }
}
