//! The end of a run: everything must be done, nothing may be left behind, and memory must be as expected.

use super::model::Life;
use super::{Check, World};
use crate::program::finish;
use nonic_core::{QpAttributes, QpState, Service, Status};

impl World {
    /// All checks that need the dust to have settled.
    pub(super) fn finish(&mut self) -> Check {
        self.check_all_done()?;
        self.check_patience()?;
        self.check_crash_promises()?;
        self.close_queues()?;
        self.model.settle_cells()?;
        self.model.settle_words()?;
        self.settle_lost();
        self.model.compare_arenas()?;
        self.take_down()
    }

    /// Nothing will happen any more by itself: then everything posted must have completed.
    fn check_all_done(&self) -> Check {
        for (number, qp) in self.qps.iter().enumerate() {
            if matches!(qp.life, Life::Gone | Life::Overflowed) {
                continue;
            }
            self.model.check_requests_ended(number)?;
            let program = &self.model.programs[number];
            if qp.works() && program.failed.is_none() && program.next_op < program.ops.len() {
                return Err(format!(
                    "QP {number}: only {} of {} requests posted",
                    program.next_op,
                    program.ops.len()
                ));
            }
        }
        Ok(())
    }

    /// What a NIC showed to its program before it died, it had acknowledged before.
    fn check_crash_promises(&self) -> Check {
        for (number, qp) in self.qps.iter().enumerate() {
            let program = &self.model.programs[number];
            let crashed = self.hosts[program.host].crashed;
            let (Service::Rc, true, Some(peer)) = (qp.service, crashed, program.peer) else {
                continue;
            };
            let sender = &self.model.programs[peer];
            let (here, there) = (self.hosts[program.host].station, self.hosts[sender.host].station);
            let quiet = self.fabric.disturbed(here, there) + self.fabric.disturbed(there, here) == 0;
            let ended_itself = matches!(sender.failed, None | Some(Status::RetryExceeded));
            let judged = !matches!(self.qps[peer].life, Life::Gone | Life::Overflowed);
            if !quiet || !ended_itself || !judged || here == there {
                continue;
            }
            for message in &sender.messages[..program.received] {
                if sender.ops[*message].outcome != Some(Status::Success) {
                    return Err(format!(
                        "QP {number} saw message {message} of QP {peer} before its NIC died, \
                         but the sender heard {:?}",
                        sender.ops[*message].outcome
                    ));
                }
            }
        }
        Ok(())
    }

    /// Moves every queue pair to the error state: each receive left must be flushed, in order.
    fn close_queues(&mut self) -> Check {
        for number in 0..self.qps.len() {
            if matches!(self.qps[number].life, Life::Gone | Life::Planned) {
                continue;
            }
            let (station, qpn) = (
                self.hosts[self.model.programs[number].host].station,
                self.model.programs[number].qpn,
            );
            let to_error = QpAttributes {
                state: Some(QpState::Error),
                ..QpAttributes::default()
            };
            let now = self.fabric.now();
            self.fabric
                .nic_mut(station)
                .modify_qp(now, qpn, &to_error)
                .map_err(|error| format!("QP {number}: cannot go to ERR: {error}"))?;
            if self.qps[number].works() {
                self.qps[number].life = Life::Error;
            }
            self.fabric.drive(station);
            self.after_drive(station)?;
            if self.qps[number].life != Life::Overflowed {
                self.model.check_receives_ended(number)?;
            }
        }
        Ok(())
    }

    /// What was under way may have been done in part, if a message was dropped half-way or a queue pair is gone.
    fn settle_lost(&mut self) {
        for number in 0..self.qps.len() {
            let qp = &self.qps[number];
            if qp.service == Service::Uc || matches!(qp.life, Life::Gone | Life::Overflowed) {
                self.model.settle_lost(number);
            }
        }
    }

    /// Destroys everything and looks for leaks.
    fn take_down(&mut self) -> Check {
        let now = self.fabric.now();
        for number in 0..self.qps.len() {
            if matches!(self.qps[number].life, Life::Gone | Life::Planned) {
                continue;
            }
            let (station, qpn) = (
                self.hosts[self.model.programs[number].host].station,
                self.model.programs[number].qpn,
            );
            if !self.fabric.nic_mut(station).destroy_qp(now, qpn) {
                return Err(format!("QP {number} was gone before it was destroyed"));
            }
        }
        for station in 0..self.scenario.stations {
            finish::check_nothing_held(station, now, self.fabric.nic_mut(station))?;
        }
        self.check_keys()
    }

    fn check_keys(&self) -> Check {
        for (number, host) in self.hosts.iter().enumerate() {
            if let (true, Some(pd)) = (host.up, host.pd) {
                let keys = self.fabric.nic(host.station).keys();
                self.model.check_keys(number, pd, keys, 1 + host.secret_keys)?;
            }
        }
        Ok(())
    }
}
