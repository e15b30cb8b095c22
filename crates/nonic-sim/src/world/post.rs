//! Posts the planned send requests and receives, and notes what they may lead to.

use super::model::{Half, Life, Mark};
use super::{Check, World};
use crate::program::request::{Expect, Kind, Target};
use nonic_core::{Destination, Qpn, Service};

impl World {
    /// Posts a few requests, and comes back for the rest.
    pub(super) fn post_some(&mut self, number: usize) -> Check {
        let burst = self.prng.range(1, 8);
        for _ in 0..burst {
            let (qp, program) = (&self.qps[number], &self.model.programs[number]);
            let over = matches!(qp.life, Life::Gone | Life::Overflowed | Life::Planned);
            if over || program.next_op == program.ops.len() || qp.posts_after_failure > 3 {
                return Ok(());
            }
            let room = self.post_next(number)?;
            // A queue pair whose peer is gone waits long.
            let longest_ns = if self.scenario.patient {
                200_000_000
            } else {
                2_000_000
            };
            let backoff_ns = &mut self.qps[number].backoff_ns;
            *backoff_ns = if room {
                0
            } else {
                (*backoff_ns * 2).clamp(2_000, longest_ns)
            };
            if !room {
                break;
            }
        }
        let pace_ns = self.model.programs[number].pace_ns;
        let delay_ns = 200 + self.qps[number].backoff_ns + self.prng.below(pace_ns + 1);
        self.fabric.mark(delay_ns, Mark::Post(number));
        Ok(())
    }

    /// Posts the next request; whether there was room.
    fn post_next(&mut self, number: usize) -> Result<bool, String> {
        let index = self.model.programs[number].next_op;
        let station = self.hosts[self.model.programs[number].host].station;
        let (now, destination) = (self.fabric.now(), self.destination(number, index));
        let nic = self.fabric.nic_mut(station);
        let posted = self.model.post_request(number, now, nic, destination);
        self.fabric.kick(station);
        match posted {
            Ok(()) => self.posted(number, index),
            Err(error) => self.model.check_full(number, error)?,
        }
        Ok(posted.is_ok())
    }

    /// A request was taken: note what follows from it.
    fn posted(&mut self, number: usize, index: usize) {
        self.note_posted(number, index);
        let (program, qp) = (&self.model.programs[number], &mut self.qps[number]);
        if program.failed.is_some() || qp.life == Life::Error {
            qp.posts_after_failure += 1;
        }
        if let (Some(peer), Service::Rc) = (program.peer, qp.service) {
            let op = &program.ops[index];
            let refusable = matches!(op.expect, Expect::Refused(_)) || self.uses_fragile_key(op.kind);
            self.qps[peer].may_be_refused |= refusable;
        }
    }

    /// Whether the key a request needs may go away.
    fn uses_fragile_key(&self, kind: Kind) -> bool {
        let export = self.model.export_used(kind);
        export
            .map(|export| &self.model.exports[export])
            .is_some_and(|export| export.revocable || export.revoked_ns.is_some())
    }

    fn destination(&self, number: usize, index: usize) -> Option<Destination> {
        let qp = &self.qps[number];
        if let (Some(Half::Initiator), Some(peer)) = (qp.half, self.model.programs[number].peer) {
            return Some(Destination::srq(self.qps[peer].srq_number));
        }
        if qp.service != Service::Ud {
            return None;
        }
        let (to, wrong_qkey) = match self.model.programs[number].ops[index].kind {
            Kind::Datagram { to, wrong_qkey, .. } => (to, wrong_qkey),
            _ => (Target::Qp(number), false),
        };
        let (ip, qpn, qkey) = match to {
            Target::Qp(to) => (
                self.hosts[self.model.programs[to].host].ip,
                self.model.programs[to].qpn,
                self.qps[to].qkey,
            ),
            Target::Group => (self.scenario.group(), Qpn::MULTICAST, self.qps[number].qkey),
        };
        Some(Destination {
            gid_index: 0,
            ip,
            qpn,
            qkey: if wrong_qkey { qkey ^ 0x0100_0000 } else { qkey },
        })
    }

    /// Posts a few receives, and comes back for the rest.
    pub(super) fn post_receives(&mut self, number: usize) -> Check {
        let burst = self.prng.range(1, 8);
        for _ in 0..burst {
            let (life, program) = (self.qps[number].life, &self.model.programs[number]);
            let over = matches!(life, Life::Gone | Life::Overflowed | Life::Planned);
            if over || program.next_receive == program.receives.len() {
                return Ok(());
            }
            let (index, station) = (program.next_receive, self.hosts[program.host].station);
            if !self.model.post_receive(number, self.fabric.nic_mut(station))? {
                self.qps[number].receives_blocked = true;
                return Ok(());
            }
            self.qps[number].may_be_refused |= self.model.programs[number].receives[index].short;
            self.fabric.kick(station);
        }
        let pace_ns = self.model.programs[number].recv_pace_ns;
        let delay_ns = 300 + self.prng.below(pace_ns + 1);
        self.fabric.mark(delay_ns, Mark::Receive(number));
        Ok(())
    }

    /// The same for a shared receive queue.
    pub(super) fn post_shared(&mut self, number: usize) -> Check {
        let host = self.model.srqs[number].host;
        if self.hosts[host].crashed {
            return Ok(());
        }
        if self.model.srqs[number].queue.is_none() {
            // Its host is yet to come.
            self.fabric.mark(50_000, Mark::SharedReceive(number));
            return Ok(());
        }
        let burst = self.prng.range(1, 8);
        for _ in 0..burst {
            let srq = &self.model.srqs[number];
            if srq.next == srq.receives.len() {
                return Ok(());
            }
            let room = self.model.post_shared(number)?;
            if !room {
                self.model.srqs[number].blocked = true;
                break;
            }
        }
        let srq = &self.model.srqs[number];
        if !srq.armed && srq.limit > 0 && self.prng.percent(50) {
            self.model.arm_limit(number);
        }
        if !self.model.srqs[number].blocked {
            let delay_ns = 500 + self.prng.below(20_000);
            self.fabric.mark(delay_ns, Mark::SharedReceive(number));
        }
        Ok(())
    }
}
