//! Judges why a stream ended: there must have been a cause before, and both sides are told matching reasons.

use super::model::{Cause, Phase, Trouble};
use super::{Check, Streams};
use nonic_core::iwarp::{StreamEnd, StreamRole};
use nonic_wire::iwarp::TerminateCode;

impl Streams {
    /// Whether the run so far explains how a side's stream ended.
    pub(super) fn judge(&mut self, number: usize, end: StreamEnd) -> Check {
        self.turn_in(number, 0);
        let connection = &self.connections[number / 2];
        if self.is_blind(number) {
            return Ok(());
        }
        let peer = number ^ 1;
        let other = &self.sides[peer];
        let has = |cause: Cause| connection.causes.contains(&cause);
        let other_closed = matches!(other.phase, Phase::Closed);
        let stream = has(Cause::Stream);
        let explained = match end {
            StreamEnd::Closed => has(Cause::Closed(number)),
            StreamEnd::Aborted => {
                let by_itself = [Cause::Closed(number), Cause::Aborted(number), Cause::Gone(number)];
                by_itself.into_iter().any(has)
            }
            StreamEnd::PeerClosed => {
                // A Terminate comes before the end; a side that was sent one has read it.
                let silent = !self.observers[peer]
                    .as_ref()
                    .is_some_and(|observer| observer.terminated());
                stream || ((other_closed || other.finished) && silent)
            }
            // A socket that is closed politely loses nothing.
            StreamEnd::Lost => stream || (other_closed && !connection.closing),
            StreamEnd::Terminated(TerminateCode::MPA_CRC) => stream && connection.trouble == Trouble::Flip,
            StreamEnd::Terminated(code) => has(Cause::Fault(number, code)),
            StreamEnd::PeerTerminated(code) => {
                matches!(other.ended, Some((StreamEnd::Terminated(other), _)) if other == code)
            }
            StreamEnd::NotReady => stream,
        };
        match explained {
            true => Ok(()),
            false => Err(format!(
                "side {number}: ended with {end:?}, which nothing explains: {:?} {:?}",
                connection.trouble, connection.causes
            )),
        }
    }

    /// A responder does not write before it has heard from the initiator, or has waited for long enough.
    pub(super) fn check_may_send(&self, number: usize) -> Check {
        let side = &self.sides[number];
        let Some(params) = side.params.filter(|params| params.role == StreamRole::Responder) else {
            return Ok(());
        };
        if self.pipes[number ^ 1].read > side.startup_read || self.terminates(number) {
            return Ok(());
        }
        let grace = self.config.first_send_grace.filter(|_| params.rtr.is_none());
        let waited_ns = self.model.now_ns - side.attached_ns;
        match grace.is_some_and(|grace| waited_ns >= grace.as_nanos() as u64) {
            true => Ok(()),
            false => Err(format!("side {number} writes before it may")),
        }
    }

    /// Whether a side has a Terminate to write, which needs no permission.
    fn terminates(&self, number: usize) -> bool {
        matches!(self.sides[number].ended, Some((StreamEnd::Terminated(_), _)))
            || self.connections[number / 2]
                .causes
                .iter()
                .any(|cause| matches!(cause, Cause::Fault(side, _) if *side == number))
    }

    /// No more READs and atomics are under way than was agreed on.
    pub(super) fn check_outstanding_reads(&self, number: usize) -> Check {
        let side = &self.sides[number];
        let (Some(params), Some(observer)) = (side.params, &self.observers[number]) else {
            return Ok(());
        };
        if self.is_blind(number) {
            // Where a start-up message was damaged, its reader may take the beginning of the stream for a part of it.
            return Ok(());
        }
        let under_way = observer.requests.saturating_sub(side.answered);
        // The ready message may be one more.
        if under_way > u64::from(params.ord.max(1)) {
            return Err(format!(
                "side {number}: {under_way} READs under way, {} agreed on",
                params.ord
            ));
        }
        Ok(())
    }
}
