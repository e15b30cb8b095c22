//! An iWARP queue pair: its verbs context and, once it is attached, its stream.

use super::config::IwarpConfig;
use super::connected::ConnectedStream;
use super::event::{StreamEnd, StreamReading};
use super::fault::StreamFault;
use super::params::StreamParams;
use super::states::{self, StreamAction, StreamInput, StreamPhase, stream_step};
use crate::queue_pair::{ModifyError, QpAttributes, QpContext, QpState};
use crate::record::QpEvent;
use crate::resources::NicResources;
use crate::time::Time;
use crate::verbs::event::Event;
use crate::verbs::work::Status;

/// A queue pair over a stream.
#[derive(Debug)]
pub(crate) struct IwarpQueuePair {
    pub(crate) common: QpContext,
    pub(super) config: IwarpConfig,
    pub(super) phase: StreamPhase,
    pub(super) connected: Option<Box<ConnectedStream>>,
    pub(crate) signals: Signals,
    /// Whether the stream's owner knows that there is something to send.
    pub(crate) listed: bool,
    /// Whether it is listed among those that wait for a receive, and whether it was signaled that there is one.
    pub(crate) waits: bool,
    pub(super) woken: bool,
}

/// Signals to be reported to the stream's owner.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Signals {
    pub(crate) established: bool,
    pub(crate) receive: bool,
    pub(crate) disconnected: Option<StreamEnd>,
    pub(crate) finish: bool,
    pub(crate) close: bool,
}

/// Why a stream cannot be attached.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// No such queue pair, or not one of iWARP.
    #[error("no such iWARP queue pair")]
    NoSuchQp,
    /// It has, or had, a stream.
    #[error("the queue pair is in state {0}; only one that was never connected can be attached to a stream")]
    State(QpState),
}

impl IwarpQueuePair {
    pub(crate) fn new(common: QpContext, config: IwarpConfig) -> Self {
        IwarpQueuePair {
            common,
            config,
            phase: StreamPhase::Idle,
            connected: None,
            signals: Signals::default(),
            listed: false,
            waits: false,
            woken: false,
        }
    }

    /// Attaches the stream that start-up agreed on.
    pub(crate) fn attach(
        &mut self,
        nic: &mut NicResources,
        params: &StreamParams,
        sink: u32,
    ) -> Result<(), AttachError> {
        let ready = matches!(self.common.state, QpState::Init | QpState::Rtr);
        if !ready || self.phase != StreamPhase::Idle {
            return Err(AttachError::State(self.common.state));
        }
        self.common.max_rd_atomic = u8::try_from(params.ord).unwrap_or(u8::MAX);
        self.common.max_dest_rd_atomic = u8::try_from(params.ird).unwrap_or(u8::MAX);
        self.connected = Some(Box::new(ConnectedStream::new(
            nic.now,
            params,
            &self.config,
            sink,
        )));
        self.step(nic, StreamInput::Attach, StreamEnd::Closed, None);
        Ok(())
    }

    /// Changes attributes, or the state.
    pub(crate) fn modify(&mut self, nic: &mut NicResources, set: &QpAttributes) -> Result<(), ModifyError> {
        let from = self.common.state;
        let to = states::check(from, set.state, set.mask())?;
        if let Some(access) = set.access {
            self.common.access = access;
        }
        match to {
            QpState::Reset => self.reset(),
            QpState::Error => self.abort(nic),
            QpState::Sqd if from == QpState::Rts => self.close(nic),
            QpState::Sqe if from == QpState::Rts => {
                let fault = StreamFault::local(nonic_wire::iwarp::TerminateCode::RDMAP_CATASTROPHIC);
                self.fail(
                    nic,
                    StreamFault {
                        reported: true,
                        ..fault
                    },
                );
            }
            _ => self.show_state(nic, to),
        }
        Ok(())
    }

    /// Ends the stream, if there is one, and moves to the error state.
    pub(crate) fn abort(&mut self, nic: &mut NicResources) {
        self.step(nic, StreamInput::Abort, StreamEnd::Aborted, None);
        self.show_state(nic, QpState::Error);
    }

    fn show_state(&mut self, nic: &mut NicResources, to: QpState) {
        if std::mem::replace(&mut self.common.state, to) != to {
            nic.record(self.common.qpn, QpEvent::Moved(to));
        }
    }

    /// The program closes. With requests under way that is an error: RFC 5040's verbs define it so, and so do others.
    fn close(&mut self, nic: &mut NicResources) {
        if self.send_queue_len() > 0 {
            self.step(nic, StreamInput::CloseBusy, StreamEnd::Aborted, None);
        } else {
            self.step(nic, StreamInput::Close, StreamEnd::Closed, None);
            self.check_sent(nic);
        }
    }

    /// Something is wrong: the stream ends with a Terminate, if it can still carry one.
    pub(super) fn fail(&mut self, nic: &mut NicResources, fault: StreamFault) {
        if let Some(event) = fault.event(self.common.qpn) {
            nic.events.push_back(event);
        }
        let code = fault.terminate.code;
        nic.record(self.common.qpn, QpEvent::Terminated(code));
        let terminates = stream_step(self.phase, StreamInput::Fault)
            .is_some_and(|step| step.action == StreamAction::SendTerminate);
        if let (Some(connected), true) = (&mut self.connected, terminates) {
            connected.terminate = Some(fault.terminate);
            nic.counters.terminates_sent += 1;
        }
        self.step(nic, StreamInput::Fault, StreamEnd::Terminated(code), fault.failed);
    }

    /// Executes a step of the state table.
    pub(super) fn step(
        &mut self,
        nic: &mut NicResources,
        input: StreamInput,
        end: StreamEnd,
        failed: Option<(u64, Status)>,
    ) {
        let Some(step) = stream_step(self.phase, input) else {
            return;
        };
        let connected = self.phase != StreamPhase::Idle;
        if let (true, Some(loss)) = (step.ends && connected, end.loss()) {
            nic.record(self.common.qpn, QpEvent::StreamLost(loss));
        }
        self.phase = step.next;
        self.show_state(nic, step.next.shown());
        if step.ends {
            self.flush(nic, failed);
            self.signals.disconnected = connected.then_some(end);
        }
        let linger = match step.next {
            StreamPhase::Terminating | StreamPhase::Lingering => Some(self.config.terminate_linger),
            StreamPhase::Closing | StreamPhase::HalfClosed => Some(self.config.close_linger),
            _ => None,
        };
        if let (Some(connected), Some(linger)) = (&mut self.connected, linger) {
            connected.timers.linger_until = Some(nic.now + linger);
        }
        match step.action {
            StreamAction::Finish => self.signals.finish = true,
            StreamAction::Close => {
                self.signals.close = true;
                self.connected = None;
            }
            StreamAction::Nothing | StreamAction::FinishAfterOutput | StreamAction::SendTerminate => {}
        }
    }

    /// Checks whether everything is sent.
    pub(super) fn check_sent(&mut self, nic: &mut NicResources) {
        if self
            .connected
            .as_ref()
            .is_some_and(|connected| connected.is_sent())
        {
            self.step(nic, StreamInput::Sent, StreamEnd::Closed, None);
        }
    }

    /// Ends all work.
    fn flush(&mut self, nic: &mut NicResources, failed: Option<(u64, Status)>) {
        let common = &self.common;
        if let Some(connected) = &mut self.connected {
            let taken = connected.halves.taken;
            connected.halves.requester.flush(common, nic, taken, failed);
            connected.halves.responder.flush(common, nic);
            connected.held = None;
            connected.backlog = Vec::new();
            connected.timers = super::connected::StreamTimers::default();
        }
        self.flush_receives(nic);
        if self.common.rq.srq_id().is_some() {
            nic.events.push_back(Event::LastWqeReached(self.common.qpn));
        }
    }

    /// Ends the receives of a private queue as flushed.
    pub(super) fn flush_receives(&mut self, nic: &mut NicResources) {
        if self.common.rq.srq_id().is_some() {
            return;
        }
        while let Some((wqe, _)) = self.common.rq.take() {
            let flushed = self.common.received(&wqe, Status::Flushed, 0);
            self.common.complete_recv(nic, flushed);
        }
    }

    /// Back to a blank queue pair, without completions.
    pub(crate) fn reset(&mut self) {
        self.signals.close |= self.connected.is_some();
        let connected = matches!(
            self.phase,
            StreamPhase::Open | StreamPhase::Closing | StreamPhase::HalfClosed
        );
        if connected {
            self.signals.disconnected = Some(StreamEnd::Aborted);
        }
        self.connected = None;
        self.phase = StreamPhase::Idle;
        self.common.state = QpState::Reset;
        if self.common.rq.srq_id().is_none() {
            self.common.rq.clear();
        }
    }

    /// Requests posted and not completed.
    pub(crate) fn send_queue_len(&self) -> usize {
        self.connected
            .as_ref()
            .map_or(0, |connected| connected.halves.requester.len())
    }

    /// Whether the peer owes an answer.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.connected
            .as_ref()
            .is_some_and(|connected| connected.halves.requester.awaits_answer())
    }

    /// Whether the stream is to be read.
    pub(crate) fn reading(&self) -> StreamReading {
        match (&self.connected, self.phase) {
            (None, _) => StreamReading::Closed,
            (Some(connected), StreamPhase::Open | StreamPhase::Closing | StreamPhase::HalfClosed) => {
                match connected.held {
                    Some(_) => StreamReading::Blocked,
                    None => StreamReading::Ready,
                }
            }
            _ => StreamReading::Discarding,
        }
    }

    /// Whether there may be something to send.
    pub(crate) fn has_output(&self) -> bool {
        let sends = matches!(
            self.phase,
            StreamPhase::Open | StreamPhase::Closing | StreamPhase::Terminating | StreamPhase::Answering
        );
        sends
            && self
                .connected
                .as_ref()
                .is_some_and(|connected| connected.has_output())
    }

    /// When [`IwarpQueuePair::handle_timeout`] is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.connected
            .as_ref()
            .and_then(|connected| connected.timers.next())
    }

    /// The attributes in force.
    pub(crate) fn attributes(&self) -> QpAttributes {
        QpAttributes {
            state: Some(self.common.state),
            access: Some(self.common.access),
            pkey_index: Some(0),
            port: Some(1),
            max_rd_atomic: Some(self.common.max_rd_atomic),
            max_dest_rd_atomic: Some(self.common.max_dest_rd_atomic),
            ..QpAttributes::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // A process may have a million of them.
        let bytes = size_of::<IwarpQueuePair>() + size_of::<ConnectedStream>();
        assert!(bytes <= 1024, "{bytes} bytes");
    }
}
