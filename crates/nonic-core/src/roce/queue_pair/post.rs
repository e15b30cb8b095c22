//! Posting to the send queue: refuses a work request at once, or queues it.

use super::reliable::RcRequester;
use super::{RoceQueuePair, ServiceMachine};
use crate::placement::MAX_MESSAGE;
use crate::queue_pair::{PostError, QpState, check_data};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::Fatal;
use crate::roce::local::is_direct;
use crate::verbs::work::{RecvRequest, SendOp, SendRequest, Status};
use nonic_wire::Service;

impl RoceQueuePair {
    /// Queues a request. In the error states it completes as flushed instead. If there is `more` in the same list, it may wait for that.
    pub(crate) fn post_send(
        &mut self,
        nic: &mut NicResources,
        request: &SendRequest<'_>,
        more: bool,
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
        check(&self.roce, nic, request)?;
        if matches!(self.roce.common.state, QpState::Error | QpState::Sqe) {
            let wqe = self.roce.common.wqe(request);
            self.roce.common.complete_send(nic, &wqe, Status::Flushed);
            return Ok(());
        }
        match &mut self.machine {
            ServiceMachine::Rc { requester, .. } => match requester.chosen(&self.roce, nic) {
                RcRequester::Records(requester) => {
                    // The time may be an old one, which a rate cannot do with.
                    let paced = self.pacer.rate() != 0;
                    let joins = more && requester.executes_by_itself();
                    let waits = paced || (joins && matches!(request.op, SendOp::Write(_) | SendOp::Read(_)));
                    if is_direct(request.op) && !waits && requester.is_alone(&self.roce) {
                        let wqe = self.roce.common.wqe(request);
                        match requester.execute_alone(&self.roce, nic, &wqe) {
                            None => requester.post(wqe),
                            Some(Ok(())) => return Ok(()),
                            Some(Err(Fatal)) => {
                                self.enter_error(nic);
                                return Ok(());
                            }
                        }
                    } else {
                        requester.post(self.roce.common.wqe(request));
                    }
                    if !waits && requester.has_one_unwritten() {
                        self.write_record(nic);
                    }
                }
                RcRequester::Packets(requester) => {
                    requester.post(&self.roce, self.roce.common.wqe(request));
                }
            },
            ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => {
                sender.post(self.roce.common.wqe(request));
                if sender.len() == 1 && self.pacer.rate() == 0 {
                    self.write_record(nic);
                }
            }
        }
        Ok(())
    }

    /// Queues a receive. In the error state it completes as flushed.
    pub(crate) fn post_recv(
        &mut self,
        nic: &mut NicResources,
        request: &RecvRequest<'_>,
    ) -> Result<(), PostError> {
        if self.roce.common.service == Service::Xrc {
            return Err(PostError::Unsupported);
        }
        if self.roce.common.state == QpState::Reset {
            return Err(PostError::State(QpState::Reset));
        }
        let posted = self.roce.common.rq.post(request);
        posted.ok_or(PostError::SharedReceiveQueue)??;
        if self.roce.common.state == QpState::Error {
            self.flush_receives(nic);
        }
        Ok(())
    }
}

/// Whether a request may be queued at all.
#[inline]
fn check(roce: &RoceContext, nic: &NicResources, request: &SendRequest<'_>) -> Result<(), PostError> {
    check_service(roce, request.op)?;
    check_destination(roce, nic, request)?;
    check_data(&roce.common, request)?;
    let length = request.data.length();
    let fits = match request.op {
        SendOp::AtomicWrite(_) => length == 8,
        SendOp::Flush(_) => length == 0,
        op if op.is_atomic() => length == 8,
        op if op.is_local() => length == 0,
        _ if roce.common.service == Service::Ud => length <= u64::from(roce.mtu),
        _ => length <= u64::from(MAX_MESSAGE),
    };
    match fits {
        true => Ok(()),
        false => Err(PostError::Length),
    }
}

fn check_service(roce: &RoceContext, op: SendOp) -> Result<(), PostError> {
    if op.is_local() {
        return if roce.common.service == Service::Ud {
            Err(PostError::Unsupported)
        } else {
            Ok(())
        };
    }
    if !offers(roce.common.service, op) {
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

/// Whether there is an opcode for an operation of the peer under a service.
fn offers(service: Service, op: SendOp) -> bool {
    let sends = matches!(op, SendOp::Send | SendOp::SendWithImmediate(_));
    match service {
        Service::Rc => true,
        Service::Xrc => !matches!(op, SendOp::AtomicWrite(_) | SendOp::Flush(_)),
        Service::Uc => sends || matches!(op, SendOp::Write(_) | SendOp::WriteWithImmediate(..)),
        Service::Ud => sends,
        Service::Cnp => false,
    }
}

fn check_destination(
    roce: &RoceContext,
    nic: &NicResources,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roce::segment::Segment;
    use crate::verbs::work::{Flush, FlushRange, Placement, RemoteAddress};
    use nonic_wire::Opcode;

    #[test]
    fn a_service_offers_what_it_has_opcodes_for() {
        let remote = RemoteAddress::default();
        let (compare, swap, add) = (0, 0, 0);
        let flush = Flush {
            remote,
            length: 0,
            placement: Placement::GLOBAL,
            range: FlushRange::Named,
        };
        let only = Segment::of(0, 0, 1024);
        for op in [
            SendOp::Send,
            SendOp::SendWithImmediate(0),
            SendOp::SendWithInvalidate(0),
            SendOp::Write(remote),
            SendOp::WriteWithImmediate(remote, 0),
            SendOp::Read(remote),
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            },
            SendOp::FetchAdd { remote, add },
            SendOp::AtomicWrite(remote),
            SendOp::Flush(flush),
        ] {
            for service in [Service::Rc, Service::Uc, Service::Ud, Service::Xrc, Service::Cnp] {
                let opcode = Opcode::new(service, only.operation(op));
                assert_eq!(offers(service, op), opcode.is_some(), "{service:?} {op:?}");
            }
        }
    }
}
