//! Posts the planned send requests and receives.

use super::model::{Cause, Mark, Phase, Trouble};
use super::{Check, Streams};
use crate::program::request::{Bad, Kind};
use nonic_core::{PostError, QpState};
use nonic_wire::iwarp::TerminateCode as Code;

impl Streams {
    /// Posts a few requests, and comes back for the rest.
    pub(super) fn post_some(&mut self, number: usize) -> Check {
        let (before, mut over) = (self.model.programs[number].next_op, false);
        for _ in 0..self.prng.range(1, 6) {
            let (side, program) = (&self.sides[number], &self.model.programs[number]);
            let never = side.params.is_none() && matches!(side.phase, Phase::Closed);
            over = side.gone
                || never
                || program.next_op == program.ops.len()
                || side.posts_after_end > 2
                || !self.hosts[program.host].up;
            if over {
                break;
            }
            if side.params.is_none() || (side.leaving && side.ended.is_none()) {
                break;
            }
            if !self.post_next(number)? {
                break;
            }
        }
        let posted = self.model.programs[number].next_op > before;
        let delay_ns =
            300 + self.back_off(number, 0, posted) + self.prng.below(self.model.programs[number].pace_ns + 1);
        if !over {
            self.mark(delay_ns, Mark::Post(number));
        }
        self.attend(self.model.programs[number].host)
    }

    /// How much longer to wait, after another attempt to post.
    fn back_off(&mut self, number: usize, queue: usize, posted: bool) -> u64 {
        let limit_ns = match queue {
            0 => 20_000_000,
            // A message may be waiting.
            _ => self.config.receive_grace.as_nanos() as u64 / 8,
        };
        let backoff_ns = &mut self.sides[number].backoff_ns[queue];
        *backoff_ns = match posted {
            true => 0,
            false => (*backoff_ns * 2).clamp(1_000, limit_ns),
        };
        *backoff_ns
    }

    /// Posts the next request; whether there was room.
    fn post_next(&mut self, number: usize) -> Result<bool, String> {
        let (index, host) = (
            self.model.programs[number].next_op,
            self.model.programs[number].host,
        );
        let now = self.now();
        let nic = &mut self.hosts[host].nic;
        match self.model.post_request(number, now, nic, None) {
            Ok(()) => {
                self.posted(number, index);
                Ok(true)
            }
            // A damaged Reply may have said that there can be none.
            Err(PostError::NoFetches) if self.is_blind(number) => {
                self.model.programs[number].ops.truncate(index);
                Ok(false)
            }
            Err(error) => self.model.check_full(number, error).map(|()| false),
        }
    }

    /// Notes that a request is in the queue, and what it may lead to.
    fn posted(&mut self, number: usize, index: usize) {
        let side = &mut self.sides[number];
        side.posts_after_end += u32::from(side.ended.is_some());
        let fault = match self.model.programs[number].ops[index].kind {
            Kind::Bad(Bad::LocalUnknownKey) => Cause::Fault(number, Code::RDMAP_CATASTROPHIC),
            Kind::Bad(bad) => Cause::Fault(number ^ 1, complaint(bad)),
            _ => return,
        };
        self.connections[number / 2].causes.push(fault);
    }

    /// Posts receives, and comes back for the rest.
    pub(super) fn post_receives(&mut self, number: usize) -> Check {
        self.check_blocked(number)?;
        let (side, program) = (&self.sides[number], &self.model.programs[number]);
        let host = program.host;
        let all_posted = program.next_receive == program.receives.len();
        if side.gone || side.closed || !self.hosts[host].up || all_posted {
            return Ok(());
        }
        if let Trouble::Starve {
            side: starved,
            receive,
            for_ns,
        } = self.connections[number / 2].trouble
        {
            if starved == number && receive == program.next_receive {
                // Once.
                let cause = Cause::Fault(number, Code::DDP_UNTAGGED_NO_BUFFER);
                self.connections[number / 2].causes.push(cause);
                self.connections[number / 2].trouble = Trouble::Quiet;
                self.mark(for_ns, Mark::Receive(number));
                return Ok(());
            }
        }
        let room = program.waiting.len() < program.recv_depth as usize;
        if room {
            let short = program.receives[program.next_receive].short;
            self.model.post_receive(number, &mut self.hosts[host].nic)?;
            if short {
                let cause = Cause::Fault(number, Code::DDP_UNTAGGED_TOO_LONG);
                self.connections[number / 2].causes.push(cause);
            }
        }
        let delay_ns = match self.model.programs[number].next_receive < 3 {
            true => 0,
            false => 200 + self.model.programs[number].recv_pace_ns,
        };
        let delay_ns = delay_ns + self.back_off(number, 1, room);
        self.mark(delay_ns, Mark::Receive(number));
        self.attend(host)
    }

    /// Posts receives to a shared queue, and comes back for the rest.
    pub(super) fn post_shared_receives(&mut self, number: usize) -> Check {
        let srq = &self.model.srqs[number];
        let host = srq.host;
        if !self.hosts[host].up || srq.next == srq.receives.len() {
            return Ok(());
        }
        let nic = &mut self.hosts[host].nic;
        let posted = self.model.post_shared(number)?;
        self.model.arm_limit(number);
        nic.wake_blocked_streams();
        let idle = self.connections.iter().all(|connection| connection.done);
        if !idle {
            let pause_ns = &mut self.model.srqs[number].pause_ns;
            *pause_ns = match posted {
                true => 3_000,
                false => (*pause_ns * 2).clamp(3_000, self.config.receive_grace.as_nanos() as u64 / 8),
            };
            let delay_ns = *pause_ns;
            self.mark(delay_ns, Mark::SharedReceive(number));
        }
        self.attend(host)
    }

    /// The state that verbs show of a side's queue pair.
    pub(super) fn state(&self, number: usize) -> Option<QpState> {
        let program = &self.model.programs[number];
        self.hosts[program.host].nic.qp_state(program.qpn)
    }
}

/// What a peer says about a request that it must refuse.
pub(super) fn complaint(bad: Bad) -> Code {
    match bad {
        Bad::WriteOutOfBounds => Code::DDP_TAGGED_BOUNDS,
        Bad::ReadUnknownKey | Bad::SendInvalidateUnknownKey => Code::RDMAP_INVALID_STAG,
        Bad::ReadOutOfBounds => Code::RDMAP_BOUNDS,
        Bad::AtomicUnaligned => Code::RDMAP_STREAM_CATASTROPHIC,
        _ => Code::DDP_TAGGED_INVALID_STAG,
    }
}
