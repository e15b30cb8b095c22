//! Faults of programs and hosts: what programs do to their connections besides posting work, and what happens to hosts,
//! each at a time of its own.

use super::model::{Cause, Phase, Trouble};
use super::{Check, Streams};
use nonic_core::{QpAttributes, QpState};
use nonic_wire::iwarp::TerminateCode as Code;

impl Streams {
    /// The trouble of a connection begins, if there is any.
    pub(super) fn strike(&mut self, number: usize) -> Check {
        self.slow_down(number);
        if self.connections[number].done {
            return Ok(());
        }
        match self.connections[number].trouble {
            Trouble::Close { side, both } => {
                self.close(side)?;
                if both {
                    self.close(side ^ 1)?;
                }
                Ok(())
            }
            Trouble::Abort { side } => self.abort(side),
            Trouble::Terminate { side } => {
                let code = Code::RDMAP_CATASTROPHIC;
                if self.state(side) == Some(QpState::Rts) {
                    self.connections[number].causes.push(Cause::Fault(side, code));
                    self.sides[side].leaving = true;
                    self.modify(side, QpState::Sqe)?;
                }
                Ok(())
            }
            Trouble::Destroy { side } => self.destroy_early(side),
            Trouble::Kill { host } => self.kill(host),
            Trouble::Revoke { export } => self.revoke(number, export),
            Trouble::GivesUp => {
                let active = 2 * number;
                if matches!(self.sides[active].phase, Phase::Starting(_)) {
                    self.connections[number].causes.push(Cause::Aborted(active));
                    self.sides[active].leaving = true;
                    self.close_socket(active);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Streams stall, and windows close, for a while: neither side's fault, and no reason for anything to end.
    fn slow_down(&mut self, number: usize) {
        let pipe = 2 * number + self.prng.index(2);
        let until_ns = self.model.now_ns + self.prng.below(20_000_000);
        match self.prng.below(6) {
            0 => self.pipes[pipe].stalled_until_ns = until_ns,
            1 => {
                self.pipes[pipe].closed_until_ns = until_ns;
                self.turn_in(pipe, until_ns - self.model.now_ns);
            }
            _ => {}
        }
    }

    fn modify(&mut self, side: usize, state: QpState) -> Check {
        let (now, host, qpn) = (
            self.now(),
            self.model.programs[side].host,
            self.model.programs[side].qpn,
        );
        let set = QpAttributes {
            state: Some(state),
            ..QpAttributes::default()
        };
        self.hosts[host]
            .nic
            .modify_qp(now, qpn, &set)
            .map_err(|error| format!("side {side}: modify_qp refused: {error}"))?;
        self.attend(host)
    }

    /// The program of a side closes.
    pub(super) fn close(&mut self, side: usize) -> Check {
        if self.state(side) != Some(QpState::Rts) || !self.hosts[self.model.programs[side].host].up {
            return Ok(());
        }
        self.connections[side / 2].causes.push(Cause::Closed(side));
        self.sides[side].leaving = true;
        self.modify(side, QpState::Sqd)
    }

    /// The program of a side aborts.
    pub(super) fn abort(&mut self, side: usize) -> Check {
        if self.sides[side].gone || !self.hosts[self.model.programs[side].host].up {
            return Ok(());
        }
        self.connections[side / 2].closing = false;
        self.connections[side / 2].causes.push(Cause::Aborted(side));
        self.sides[side].leaving = true;
        self.model.note_ended(side);
        self.modify(side, QpState::Error)?;
        if !self.sides[side].is_attached() {
            self.close_socket(side);
        }
        Ok(())
    }

    /// The program of a side destroys its queue pair with everything under way.
    fn destroy_early(&mut self, side: usize) -> Check {
        let (host, qpn) = (self.model.programs[side].host, self.model.programs[side].qpn);
        if self.sides[side].gone || !self.hosts[host].up {
            return Ok(());
        }
        self.connections[side / 2].closing = false;
        self.connections[side / 2].causes.push(Cause::Gone(side));
        let attached = self.sides[side].is_attached();
        self.sides[side].gone = true;
        self.model.note_ended(side);
        let now = self.now();
        if !self.hosts[host].nic.destroy_qp(now, qpn) {
            return Err(format!("side {side}: destroy_qp knows no such queue pair"));
        }
        self.attend(host)?;
        if attached && !self.sides[side].closed {
            return Err(format!("side {side}: destroyed, and its stream was not closed"));
        }
        self.close_socket(side);
        Ok(())
    }

    /// A host dies. What its sockets had taken still goes out, or does not.
    fn kill(&mut self, host: usize) -> Check {
        self.hosts[host].up = false;
        for side in 0..self.sides.len() {
            if self.model.programs[side].host != host || self.sides[side].gone {
                continue;
            }
            self.connections[side / 2].closing = false;
            self.connections[side / 2].causes.push(Cause::Gone(side));
            self.sides[side].gone = true;
            self.model.note_ended(side);
            if self.prng.percent(50) {
                self.connections[side / 2].causes.push(Cause::Stream);
                self.pipes[side].discard();
            }
            self.close_socket(side);
        }
        Ok(())
    }

    fn revoke(&mut self, number: usize, export: usize) -> Check {
        let owner = match self.model.programs[2 * number].exports.contains(&export) {
            true => 2 * number,
            false => 2 * number + 1,
        };
        let host = self.model.programs[owner].host;
        if !self.hosts[host].up || self.model.exports[export].revoked_ns.is_some() {
            return Ok(());
        }
        let known = self.hosts[host].nic.keys().revoke(self.model.exports[export].key);
        self.tell(|| format!("key {:#x} revoked: {known}", self.model.exports[export].key));
        for code in [Code::DDP_TAGGED_INVALID_STAG, Code::RDMAP_INVALID_STAG] {
            self.connections[number].causes.push(Cause::Fault(owner, code));
        }
        // A request of its own that invalidates it fails as well.
        let cause = Cause::Fault(owner, Code::RDMAP_CATASTROPHIC);
        self.connections[number].causes.push(cause);
        self.model.exports[export].revocable = true;
        self.model.revoked(export);
        Ok(())
    }
}
