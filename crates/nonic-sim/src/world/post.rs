//! Posts the planned send requests and receives, and notes what they may lead to.

use super::model::{Half, Life, Mark};
use super::{Check, World};
use crate::program::post::{RECEIVE, SHARED, wr_id};
use crate::program::request::{Expect, Kind, Target};
use nonic_core::{Destination, PostError, Qpn, RecvRefused, RecvRequest, SendRequest, Service};

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
        self.model.aim(number, index);
        let op = self.model.send_op(number, index);
        let data = self.model.send_data(number, index);
        let request = SendRequest {
            wr_id: wr_id(number, index),
            op,
            data: data.as_data(),
            flags: self.model.programs[number].ops[index].flags,
            destination: self.destination(number, index),
        };
        let (now, qpn) = (self.fabric.now(), self.model.programs[number].qpn);
        let posted = self.fabric.nic_mut(station).post_send(now, qpn, &request);
        self.fabric.kick(station);
        match posted {
            Ok(()) => {
                self.posted(number, index);
                Ok(true)
            }
            Err(PostError::SendQueueFull) => {
                let program = &self.model.programs[number];
                let (len, depth) = (program.outstanding.len(), program.send_depth);
                if len < depth as usize {
                    return Err(format!(
                        "QP {number}: send queue full with {len} of {depth} outstanding"
                    ));
                }
                Ok(false)
            }
            Err(error) => Err(format!("QP {number}: post_send refused request {index}: {error}")),
        }
    }

    /// A request was taken: note what follows from it.
    fn posted(&mut self, number: usize, index: usize) {
        self.note_posted(number, index);
        self.model.posted(number);
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
            let index = program.next_receive;
            let arena = &self.model.arenas[program.arena];
            let list = program.receives[index].buffer.sges(arena.iova, arena.key);
            let request = RecvRequest {
                wr_id: RECEIVE | wr_id(number, index),
                sges: &list,
            };
            let (station, qpn) = (self.hosts[program.host].station, program.qpn);
            match self.fabric.nic_mut(station).post_recv(qpn, &request) {
                Ok(()) => {
                    let program = &mut self.model.programs[number];
                    program.next_receive += 1;
                    program.waiting.push_back(index);
                    self.qps[number].may_be_refused |= program.receives[index].short;
                }
                Err(PostError::Receive(RecvRefused::Full)) => {
                    let (waiting, depth) = (program.waiting.len(), program.recv_depth as usize);
                    if waiting < depth {
                        return Err(format!(
                            "QP {number}: receive queue full with {waiting} of {depth}"
                        ));
                    }
                    self.qps[number].receives_blocked = true;
                    return Ok(());
                }
                Err(error) => return Err(format!("QP {number}: post_recv refused: {error}")),
            }
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
        let Some(queue) = self.model.srqs[number].queue.clone() else {
            // Its host is yet to come.
            self.fabric.mark(50_000, Mark::SharedReceive(number));
            return Ok(());
        };
        let station = self.hosts[host].station;
        let burst = self.prng.range(1, 8);
        for _ in 0..burst {
            let srq = &mut self.model.srqs[number];
            if srq.next == srq.receives.len() {
                return Ok(());
            }
            let arena = &self.model.arenas[srq.arena];
            let list = srq.receives[srq.next].buffer.sges(arena.iova, arena.key);
            let request = RecvRequest {
                wr_id: RECEIVE | SHARED | wr_id(number, srq.next),
                sges: &list,
            };
            match queue.post(&request, self.fabric.nic(station).keys()) {
                Ok(()) => {
                    srq.waiting.insert(srq.next);
                    srq.next += 1;
                }
                Err(RecvRefused::Full) if srq.waiting.len() >= srq.depth => {
                    srq.blocked = true;
                    break;
                }
                Err(error) => return Err(format!("SRQ {number}: post refused: {error}")),
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
