//! Direct access on a reliable connection: executes WRITEs, READs and atomics in the memory of a peer on the same host,
//! without packets. [`crate::DirectAccess`] is how; this module decides when.
//!
//! Why every request is still executed exactly once and in order:
//! - The requester asks only while nothing of its queue pair is under way: everything sent was acknowledged or answered
//!   (`una` = `next` = `sent`), so all earlier requests were executed and are complete. Nothing later is sent before
//!   the request is done, or was refused and has gone as packets. So fences are kept and READs see earlier WRITEs.
//! - The requester's thread executes it; the target's takes no part. It does so only if the target has published that it expects
//!   the request's first packet next. Afterwards both sides count the request's packets and message as if they had
//!   travelled: the requester at once, the responder before it looks at another packet. So sequence and message numbers agree, whichever path the next request takes.
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

use super::direct_state::Moved;
use super::requester::{RcRequest, Requester};
use super::responder::Responder;
use crate::queue_pair::QpState;
use crate::record::{QpEvent, RefusalReason, RequestKind};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::{Emit, Fatal};
use crate::roce::extended_psn::ExtendedPsn;
use crate::verbs::work::{SendOp, Status};
use nonic_wire::{NakCode, Packet, Syndrome};

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
        if !self.is_quiescent(roce) {
            return None;
        }
        let request = self.queue.front()?;
        let place = (request.first.psn(), Some(request.end().psn()));
        match self.direct.execute(roce, nic, &request.wqe, place)? {
            Moved::Piece(bytes) => Some(Emit::Direct(bytes)),
            Moved::All(bytes) => {
                self.count_executed(roce);
                self.finish_front(roce, nic);
                Some(Emit::Direct(bytes))
            }
            Moved::Lost(status) => {
                self.count_executed(roce);
                self.fail_front(roce, nic, status);
                Some(Emit::Failed)
            }
        }
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
            if let (true, Some(direct)) = (self.execution.is_between_messages(), nic.direct.as_deref_mut()) {
                direct.expect(roce.common.qpn, self.expected.psn());
            }
        }
        Ok(())
    }

    /// The same when nothing more will be executed. A peer that has sent half of a message has executed nothing by itself.
    pub(crate) fn settle(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) {
        if self.execution.is_between_messages() {
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
        if !self.execution.is_between_messages() {
            // A nonic peer would send the rest of its message, so this is another.
            let code = NakCode::InvalidRequest;
            self.replies
                .refuse(self.expected.psn(), self.msn, Syndrome::nak(code));
            let dropped = QpEvent::Dropped(RequestKind::Other, RefusalReason::Sequence);
            nic.record(roce.common.qpn, dropped);
            self.execution
                .report_refusal(roce, nic, code, Status::LocalQpOperation);
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
