//! The end of a run: everything must be done, nothing may be left behind, and memory must be as expected.

use super::model::{Kind, Life, Source};
use super::{Check, World};
use nonic_core::{QpAttributes, QpState, Service, Status, Time, Usage};

impl World {
    /// All checks that need the dust to have settled.
    pub(super) fn finish(&mut self) -> Check {
        self.check_all_done()?;
        self.check_patience()?;
        self.check_crash_promises()?;
        self.close_queues()?;
        self.settle_cells()?;
        self.settle_words()?;
        self.settle_receives();
        self.compare_arenas()?;
        self.take_down()
    }

    /// Nothing will happen any more by itself: then everything posted must have completed.
    fn check_all_done(&self) -> Check {
        for (number, qp) in self.qps.iter().enumerate() {
            if matches!(qp.life, Life::Gone | Life::Overflowed) {
                continue;
            }
            if let Some(index) = qp.outstanding.front() {
                let op = &qp.ops[*index];
                // Unsignaled requests at the end of a queue whose later requests were never posted.
                let silent = qp.outstanding.iter().all(|index| !qp.signaled(*index));
                if silent && qp.next_op < qp.ops.len() && qp.failed.is_none() {
                    continue;
                }
                return Err(format!(
                    "QP {number} ({:?}, {:?}): request {index} {:?} and {} behind it never completed",
                    qp.service,
                    qp.life,
                    op.kind,
                    qp.outstanding.len() - 1
                ));
            }
            if qp.works() && qp.failed.is_none() && qp.next_op < qp.ops.len() {
                return Err(format!(
                    "QP {number}: only {} of {} requests posted",
                    qp.next_op,
                    qp.ops.len()
                ));
            }
        }
        Ok(())
    }

    /// What a NIC showed to its program before it died, it had acknowledged before.
    fn check_crash_promises(&self) -> Check {
        for (number, qp) in self.qps.iter().enumerate() {
            let (Service::Rc, true, Some(peer)) = (qp.service, self.hosts[qp.host].crashed, qp.peer) else {
                continue;
            };
            let sender = &self.qps[peer];
            let (here, there) = (self.hosts[qp.host].station, self.hosts[sender.host].station);
            let quiet = self.fabric.disturbed(here, there) + self.fabric.disturbed(there, here) == 0;
            let ended_itself = matches!(sender.failed, None | Some(Status::RetryExceeded));
            let judged = !matches!(sender.life, Life::Gone | Life::Overflowed);
            if !quiet || !ended_itself || !judged || here == there {
                continue;
            }
            for message in &sender.messages[..qp.received] {
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
            let (station, qpn) = (self.hosts[self.qps[number].host].station, self.qps[number].qpn);
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
            let qp = &self.qps[number];
            if !qp.waiting.is_empty() && qp.life != Life::Overflowed {
                let left = qp.waiting.len();
                return Err(format!("QP {number}: {left} receives were never flushed"));
            }
        }
        Ok(())
    }

    /// What receives that never completed may hold: anything, if a message was dropped half-way.
    fn settle_receives(&mut self) {
        for qp in &self.qps {
            let uncertain = qp.service == Service::Uc || matches!(qp.life, Life::Gone | Life::Overflowed);
            if !uncertain {
                continue;
            }
            let (arena, receives) = match qp.srq {
                Some(srq) => (self.srqs[srq].arena, &self.srqs[srq].receives),
                None => (qp.arena, &qp.receives),
            };
            let arena = &mut self.arenas[arena];
            if arena.region.is_none() {
                continue;
            }
            for receive in receives.iter().filter(|receive| !receive.done) {
                let actual = arena.read(&receive.buffer);
                receive.buffer.scatter(&mut arena.image, &actual);
            }
        }
        for number in 0..self.qps.len() {
            self.settle_lost_fetches(number);
        }
    }

    /// READs of a queue pair that went away may have brought some of their packets, atomics their answer.
    fn settle_lost_fetches(&mut self, number: usize) {
        let qp = &self.qps[number];
        let arena = &mut self.arenas[qp.arena];
        if arena.region.is_none() || !matches!(qp.life, Life::Gone | Life::Overflowed) {
            return;
        }
        for op in qp.ops[..qp.next_op].iter().filter(|op| op.outcome.is_none()) {
            if let Source::Target(buffer, _) = &op.source {
                let actual = arena.read(buffer);
                buffer.scatter(&mut arena.image, &actual);
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
            let (station, qpn) = (self.hosts[self.qps[number].host].station, self.qps[number].qpn);
            if !self.fabric.nic_mut(station).destroy_qp(now, qpn) {
                return Err(format!("QP {number} was gone before it was destroyed"));
            }
        }
        for station in 0..self.scenario.stations {
            let nic = self.fabric.nic_mut(station);
            // Entries of timers that are no longer wanted stay until they are due.
            nic.handle_timeout(Time::from_ns(u64::MAX / 2));
            let usage = nic.usage();
            if usage != Usage::default() {
                return Err(format!("NIC {station} still holds {usage:?}"));
            }
            let mut buffer = vec![0; nonic_core::MAX_BATCH_LEN];
            if nic.poll_transmit(now, 1, &mut buffer).is_some() {
                return Err(format!("NIC {station} has no queue pairs but something to send"));
            }
        }
        self.check_keys()
    }

    /// Every key is there that should be, and no other.
    fn check_keys(&self) -> Check {
        for (number, host) in self.hosts.iter().enumerate() {
            if !host.up {
                continue;
            }
            let arenas = self
                .arenas
                .iter()
                .filter(|arena| arena.host == number && arena.region.is_some());
            let live = |export: &&super::model::Export| {
                let arena = &self.arenas[export.arena];
                let there = !export.bound_later || export.bound;
                arena.host == number && arena.region.is_some() && export.revoked_ns.is_none() && there
            };
            let expected = 1 + host.secret_keys + arenas.count() + self.exports.iter().filter(live).count();
            let actual = self.fabric.nic(host.station).keys().len();
            if actual > expected + self.uncertain_bindings()
                || actual + self.uncertain_invalidations() < expected
            {
                return Err(format!("host {number} has {actual} keys instead of {expected}"));
            }
        }
        Ok(())
    }

    /// Windows that may have been bound although no completion said so.
    fn uncertain_bindings(&self) -> usize {
        let posted = self.qps.iter().flat_map(|qp| &qp.ops[..qp.next_op]);
        posted
            .filter(|op| matches!(op.kind, Kind::BindWindow { .. }))
            .filter(|op| op.outcome != Some(Status::Success))
            .count()
    }

    /// Invalidations that may have happened although no completion said so.
    fn uncertain_invalidations(&self) -> usize {
        let posted = self.qps.iter().flat_map(|qp| &qp.ops[..qp.next_op]);
        let uncertain = posted.filter(|op| {
            let export = match op.kind {
                Kind::LocalInvalidate { export } | Kind::SendInvalidate { export } => export,
                _ => return false,
            };
            self.exports[export].revoked_ns.is_none() && op.outcome != Some(Status::Success)
        });
        uncertain.count()
    }
}
