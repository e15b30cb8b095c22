//! Why a request may end as it did on RoCE: refused by the peer, given up for want of an answer, flushed. And what that does to
//! its queue pair.
//!
//! What must hold when it did is checked in [`crate::program::completions`].

use super::model::{Life, Mark};
use super::{Check, World};
use crate::program::completions;
use crate::program::post::from_wr_id;
use crate::program::request::Expect;
use nonic_core::{Completion, Service, Status};

impl World {
    /// Takes a send completion.
    pub(super) fn sent(&mut self, completion: &Completion) -> Check {
        let (number, index) = from_wr_id(completion.wr_id);
        match self.qps.get(number).map(|qp| qp.life) {
            Some(Life::Overflowed) => return Ok(()),
            Some(Life::Drained) if completion.status != Status::Flushed => {
                return Err(format!(
                    "QP {number} request {index}: completed after the send queue had drained"
                ));
            }
            _ => {}
        }
        completions::sent(self, number, completion)?;
        if completion.status == Status::Success {
            self.qps[number].disturbed_at_success = self.disturbed_on_path(number);
        }
        Ok(())
    }

    /// Whether the run so far permits this status for this request.
    pub(super) fn permits(&self, number: usize, index: usize, status: Status) -> bool {
        let (qp, op) = (&self.qps[number], &self.model.programs[number].ops[index]);
        let revoked = self.model.revoked_before(op.kind).is_some();
        match status {
            Status::Success => self.model.may_succeed(number, index),
            Status::Flushed => self.error_is_explained(number),
            // A repeated READ with a key that was revoked meanwhile is not answered.
            Status::RetryExceeded => {
                qp.service == Service::Rc && (self.silence_is_explained(number) || revoked)
            }
            Status::RnrRetryExceeded => qp.service == Service::Rc && qp.terms.rnr_retry != 7,
            Status::RemoteAccess if revoked => true,
            // The peer's receive was too short.
            Status::RemoteInvalidRequest if self.met_short_receive(number, index) => true,
            _ => op.expect == Expect::Refused(status) || op.expect == Expect::Local(status),
        }
    }

    /// Whether the queue pair may be in error.
    pub(super) fn error_is_explained(&self, number: usize) -> bool {
        let (qp, program) = (&self.qps[number], &self.model.programs[number]);
        program.failed.is_some() || qp.may_be_refused || matches!(qp.life, Life::Error | Life::Overflowed)
    }

    /// Whether the peer may have been silent for so long: it is not there, or packets were lost.
    fn silence_is_explained(&self, number: usize) -> bool {
        let qp = &self.qps[number];
        let Some(peer) = self.model.programs[number].peer else {
            return false;
        };
        let other = &self.model.programs[peer];
        let there = self.hosts[other.host].station;
        // Every timeout since the last success must have been caused by a packet of its own. Only the first
        // one's may have been sent before, and the answer to the last may have been too slow: that attempt, the
        // one beyond the retries, need not have lost anything.
        let disturbed = self.disturbed_on_path(number);
        let needed = u64::from(qp.terms.retry_count);
        let since = disturbed - qp.disturbed_at_success;
        let lost_enough = disturbed >= needed && since >= needed.saturating_sub(2);
        let in_error = self.fabric.nic(there).qp_state(other.qpn) == Some(nonic_core::QpState::Error);
        !self.qps[peer].works() || (in_error && self.error_is_explained(peer)) || lost_enough
    }

    /// Packets lost, late or damaged between a queue pair and its peer so far.
    fn disturbed_on_path(&self, number: usize) -> u64 {
        let station = |qp: usize| self.hosts[self.model.programs[qp].host].station;
        let (here, there) = (
            station(number),
            station(self.model.programs[number].peer.unwrap_or(number)),
        );
        self.fabric.disturbed(here, there) + self.fabric.disturbed(there, here)
    }

    fn met_short_receive(&self, number: usize, index: usize) -> bool {
        let program = &self.model.programs[number];
        let position = program.messages.iter().position(|message| *message == index);
        let receives = program.peer.map(|peer| &self.model.programs[peer].receives);
        position
            .zip(receives)
            .and_then(|(position, receives)| receives.get(position))
            .is_some_and(|receive| receive.short)
    }

    /// A request failed: its queue pair may have to be brought back, or be lost.
    pub(super) fn after_failure(&mut self, number: usize, index: usize, first: bool) {
        let op = &self.model.programs[number].ops[index];
        if op.outcome == Some(Status::RetryExceeded) {
            self.retries_exceeded += 1;
        }
        let local = matches!(op.expect, Expect::Local(_)) && op.outcome != Some(Status::Flushed);
        if first && self.qps[number].works() {
            self.qps[number].life = if local && self.qps[number].service != Service::Rc {
                let delay_ns = self.prng.below(50_000);
                self.fabric.mark(delay_ns, Mark::Recover(number));
                Life::SendError
            } else {
                Life::Error
            };
        }
    }
}
