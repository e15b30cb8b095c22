//! Direct access on a reliable connection: executes WRITEs, READs and atomics in the memory of a peer on the same host,
//! without packets. [`crate::DirectAccess`] is how; this module decides when.
//!
//! Why every request is still executed exactly once and in order:
//! - The requester asks only while nothing of its queue pair is under way: everything sent was acknowledged or answered
//!   (`una` = `next` = `sent`), so all earlier requests were executed and are complete. Nothing later is sent before
//!   the request is done, or was refused and has gone as packets. So fences are kept and READs see earlier WRITEs.
//! - The target executes it only if it expects the request's first packet next. Afterwards both sides count the
//!   request's packets and message as if they had travelled: the requester at once, the responder before it looks at
//!   another packet. So sequence and message numbers agree, whichever path the next request takes.
//! - A late packet of the requester's past lies before what the responder expects then: a duplicate as ever. It is
//!   acknowledged, or answered from what is remembered of READs and atomics, which direct requests leave alone. The
//!   answer lies before `una` and is ignored.
//! - A request that is refused, at its first piece or at any later one, goes as packets from its beginning. The
//!   responder was not told of its packets before the last piece, and a WRITE or READ may be done twice: the same bytes
//!   go to the same place, before any later request.
//! - An atomic may not be done twice, so it is one step. Refused means that the word was not touched. Once it was
//!   touched, the peer has been told, and nothing can send the request as a packet any more. Whether our own memory
//!   takes the result is checked before. If it no longer does after that, the request fails as if the answer to a
//!   packet had found it so.
//! - A request that is begun is ended before the send queue counts as drained.
//!
//! While direct access works, a long request waits for what is under way before it: it is faster afterwards by more
//! than that takes. A short one goes as packets behind it.
//!
//! A peer that lies about what it executed breaks its own connection, and nothing else.

use super::requester::{RcRequest, Requester};
use super::responder::Responder;
use crate::direct::{Direct, DirectOperation, DirectRequest, LocalBytes};
use crate::queue_pair::QpState;
use crate::record::{QpEvent, RefusalReason, RequestKind};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::{Emit, Fatal};
use crate::roce::extended_psn::ExtendedPsn;
use crate::verbs::work::{RemoteAddress, SendOp, Status};
use nonic_wire::{NakCode, Packet, Service, Syndrome};

impl Requester {
    /// Executes a request that was just posted, if nothing is before it and it is short: it need not wait for its turn
    /// to send. If it fails, so does the queue pair.
    #[inline]
    pub(crate) fn execute_posted(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
    ) -> Result<(), Fatal> {
        let alone = self.queue.len() == 1 && !self.retry.is_quiet();
        let short = |request: &RcRequest| request.wqe.length <= nic.direct_piece;
        if alone && roce.common.state == QpState::Rts && self.queue.front().is_some_and(short) {
            match self.execute_directly(roce, nic) {
                Some(Emit::Failed) => return Err(Fatal),
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Executes the next piece of the request at the cursor in the memory of the peer, if that may be done now. `None` if the
    /// request has to go as packets.
    pub(super) fn execute_directly(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
    ) -> Option<Emit> {
        let direct = nic.direct.as_deref_mut()?;
        if self.direct.front.is_refused() || !self.is_quiescent(roce) {
            return None;
        }
        let request = self.queue.front()?;
        let (operation, remote) = operation_of(request.wqe.op)?;
        let left = request.wqe.length.checked_sub(self.direct.front.done())?;
        if left == 0 || roce.common.service != Service::Rc {
            return None;
        }
        let atomic = operation.is_atomic();
        let piece = match atomic {
            true => left,
            false => left.min(nic.direct_piece.max(1)),
        };
        let last = piece == left;
        // As with packets: nothing is moved if a part of the request cannot be. The pieces check what they move, but what an
        // atomic fetches is placed when it has been executed.
        let whole = (last && !atomic) || self.direct.front.is_begun();
        let permitted = whole || request.wqe.payload.check(operation.needs_here()).is_ok();
        let outcome = match permitted {
            false => Direct::Refused,
            true => direct.execute(&DirectRequest {
                own: roce.common.qpn,
                local: roce.flow.src,
                target: roce.dest_qpn,
                remote: roce.flow.dst,
                psn: request.first.psn(),
                next: last.then(|| request.end().psn()),
                operation,
                va: remote.va.wrapping_add(u64::from(self.direct.front.done())),
                left,
                rkey: remote.rkey,
                bytes: LocalBytes {
                    payload: &request.wqe.payload,
                    offset: u64::from(self.direct.front.done()),
                    length: piece,
                },
            }),
        };
        self.conclude(roce, nic, operation, (piece, last), outcome)
    }

    /// A piece of the front request was executed, or refused.
    fn conclude(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        operation: DirectOperation,
        (piece, last): (u32, bool),
        outcome: Direct,
    ) -> Option<Emit> {
        let atomic = operation.is_atomic();
        let refused = outcome == Direct::Refused;
        // Memory that can be reached for WRITEs cannot always be reached for atomics.
        if !(atomic && refused) {
            self.direct.works = !refused;
        }
        if refused {
            self.direct.front.refuse();
            return None;
        }
        if !atomic {
            nic.counters.direct_bytes += u64::from(piece);
            self.direct.bytes += u64::from(piece);
        }
        if !last {
            self.direct.front.add(piece);
            return Some(Emit::Direct(piece));
        }
        match operation {
            DirectOperation::Write => nic.counters.direct_writes += 1,
            DirectOperation::Read => nic.counters.direct_reads += 1,
            DirectOperation::FetchAdd(_) | DirectOperation::CompareSwap { .. } => {
                nic.counters.direct_atomics += 1;
            }
        }
        let placed = match (outcome, self.queue.front()) {
            (Direct::Fetched(original), Some(request)) => {
                request.wqe.payload.scatter(0, &original.to_ne_bytes())
            }
            _ => Ok(()),
        };
        self.count_executed(roce);
        if let Err(fault) = placed {
            self.fail_front(roce, nic, fault.into());
            return Some(Emit::Failed);
        }
        self.finish_front(roce, nic);
        Some(Emit::Direct(piece))
    }

    /// Whether a request that could go as packets now is better executed directly when what is under way has been answered.
    /// The last packet of every message asks for an answer, so one will come, or the timer that is set for it.
    pub(super) fn waits_for_quiescence(&self, nic: &NicResources<'_>, request: &RcRequest) -> bool {
        self.direct.works
            && self.queue.cursor() > 0
            && !self.sequence.is_repeating()
            && request.wqe.length >= nic.direct_worth
            && matches!(request.wqe.op, SendOp::Write(_) | SendOp::Read(_))
    }

    /// Whether nothing is under way, and nothing keeps us from sending.
    fn is_quiescent(&self, roce: &RoceContext) -> bool {
        self.queue.cursor() == 0
            && self.sequence.is_idle()
            && !self.sequence.is_repeating()
            && self.fetches == 0
            && !self.is_cautious(roce)
    }

    /// The front request was executed, as if all its packets had been sent and answered.
    fn count_executed(&mut self, roce: &RoceContext) {
        let Some(end) = self.queue.front().map(|request| request.end()) else {
            return;
        };
        self.sequence.skip_to(end);
        self.loss.forget_gap();
        self.retry.renew(roce);
    }
}

/// The direct operation of a request, and where; `None` if it always goes as packets.
fn operation_of(op: SendOp) -> Option<(DirectOperation, RemoteAddress)> {
    match op {
        SendOp::Write(remote) => Some((DirectOperation::Write, remote)),
        SendOp::Read(remote) => Some((DirectOperation::Read, remote)),
        SendOp::FetchAdd { remote, add } => Some((DirectOperation::FetchAdd(add), remote)),
        SendOp::CompareSwap {
            remote,
            compare,
            swap,
        } => Some((DirectOperation::CompareSwap { compare, swap }, remote)),
        _ => None,
    }
}

impl Responder {
    /// Takes a packet from a requester that may also execute requests by itself.
    pub(crate) fn handle_published(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        self.catch_up(roce, nic)?;
        let before = self.expected;
        self.handle(roce, nic, packet)?;
        if self.expected != before {
            if let (true, Some(direct)) = (self.inbound.is_none(), nic.direct.as_deref_mut()) {
                direct.expect(roce.common.qpn, self.expected.psn());
            }
        }
        Ok(())
    }

    /// The same when nothing more will be executed. A peer that has sent half of a message has executed nothing by itself.
    pub(crate) fn settle(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        if self.inbound.is_none() {
            let settled = self.catch_up(roce, nic);
            debug_assert!(settled.is_ok(), "only half of a message is a fault");
        }
    }

    /// Takes note of what the peer has executed by itself.
    pub(crate) fn catch_up(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) -> Result<(), Fatal> {
        let direct = nic.direct.as_deref_mut();
        let Some(progress) = direct.and_then(|direct| direct.executed(roce.common.qpn)) else {
            return Ok(());
        };
        if !self.inbound.is_none() {
            // A nonic peer would send the rest of its message, so this is another.
            let code = NakCode::InvalidRequest;
            self.replies
                .refuse(self.expected.psn(), self.msn, Syndrome::nak(code));
            let dropped = QpEvent::Dropped(RequestKind::Other, RefusalReason::Sequence);
            nic.record(roce.common.qpn, dropped);
            self.report_refusal(roce, nic, code, Status::LocalQpOperation);
            return Err(Fatal);
        }
        // Whoever executes by itself has nothing else under way: what came early was never sent, or long ago.
        self.drop_kept(nic);
        let next = self.expected.nearest(progress.next);
        self.expected = next.unwrap_or(ExtendedPsn::starting_at(progress.next));
        self.msn = self.msn.wrapping_add(progress.messages) & 0xff_ffff;
        self.kin = true;
        self.refused = false;
        self.not_ready = 0;
        Ok(())
    }
}
