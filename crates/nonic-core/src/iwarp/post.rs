//! Posting to an iWARP queue pair: refuses a work request at once, or queues it.

use super::config::Extensions;
use super::queue_pair::IwarpQueuePair;
use crate::placement::MAX_MESSAGE;
use crate::queue_pair::QpState;
use crate::queue_pair::{PostError, check_data};
use crate::resources::NicResources;
use crate::verbs::work::{RecvRequest, SendOp, SendRequest, Status};

impl IwarpQueuePair {
    /// Queues a request. In the error states it completes as flushed instead.
    pub(crate) fn post_send(
        &mut self,
        nic: &mut NicResources,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        let state = self.common.state;
        let flushes = matches!(state, QpState::Error | QpState::Sqe);
        if !flushes && state != QpState::Rts {
            return Err(PostError::State(state));
        }
        if self.send_queue_len() >= self.common.capacity.max_send_wr as usize {
            return Err(PostError::SendQueueFull);
        }
        self.check(request, flushes)?;
        let wqe = self.common.wqe(request);
        match &mut self.connected {
            Some(connected) if !flushes => connected.halves.requester.post(wqe),
            _ => self.common.complete_send(nic, &wqe, Status::Flushed),
        }
        Ok(())
    }

    /// Whether a request may be queued at all.
    fn check(&self, request: &SendRequest<'_>, flushes: bool) -> Result<(), PostError> {
        let extensions = self.config.extensions;
        let offered = match request.op {
            SendOp::Send | SendOp::SendWithInvalidate(_) | SendOp::Write(_) | SendOp::Read(_) => true,
            SendOp::WriteWithImmediate(..) => extensions >= Extensions::Immediate,
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => extensions >= Extensions::All,
            SendOp::LocalInvalidate(_) | SendOp::BindWindow(_) => true,
            // There are no messages for these.
            SendOp::SendWithImmediate(_) | SendOp::AtomicWrite(_) | SendOp::Flush(_) => false,
        };
        if !offered {
            return Err(PostError::Unsupported);
        }
        if request.destination.is_some() {
            return Err(PostError::Destination);
        }
        if request.op.fetches() && self.common.max_rd_atomic == 0 && !flushes {
            return Err(PostError::NoFetches);
        }
        check_data(&self.common, request)?;
        let length = request.data.length();
        let fits = match request.op {
            op if op.is_atomic() => length == 8,
            op if op.is_local() => length == 0,
            _ => length <= u64::from(MAX_MESSAGE),
        };
        match fits {
            true => Ok(()),
            false => Err(PostError::Length),
        }
    }

    /// Queues a receive. In the error states it completes as flushed. Signals a stream that waits for one.
    pub(crate) fn post_recv(
        &mut self,
        nic: &mut NicResources,
        request: &RecvRequest<'_>,
    ) -> Result<(), PostError> {
        if self.common.state == QpState::Reset {
            return Err(PostError::State(QpState::Reset));
        }
        let posted = self.common.rq.post(request);
        posted.ok_or(PostError::SharedReceiveQueue)??;
        match self.common.state {
            QpState::Error | QpState::Sqe => self.flush_receives(nic),
            _ => self.wake_blocked(),
        }
        Ok(())
    }

    /// A receive may have been posted that the stream waits for. It is told once.
    pub(crate) fn wake_blocked(&mut self) {
        let blocked = self
            .connected
            .as_ref()
            .is_some_and(|connected| connected.held.is_some());
        if blocked && !self.woken && !self.common.rq.is_empty() {
            self.woken = true;
            self.signals.receive = true;
        }
    }
}
