//! The end of a run: every request and receive has ended, what was under way is settled, and every key is there that should be.

use super::Check;
use super::model::{Export, Model, Program, Promise, Taken};
use super::request::{Kind, Source};
use nonic_core::{KeyTable, MAX_BATCH_LEN, Nic, PdId, Qpn, Status, Time, Usage};

/// A NIC whose queue pairs are destroyed holds nothing more, and has nothing to send or to tell.
pub(crate) fn check_nothing_held(host: usize, now: Time, nic: &mut Nic) -> Check {
    // Entries of timers that are no longer wanted stay until they are due.
    nic.handle_timeout(Time::from_ns(u64::MAX / 2));
    let usage = nic.usage();
    if usage != Usage::default() {
        return Err(format!("NIC {host} still holds {usage:?}"));
    }
    let mut buffer = vec![0; MAX_BATCH_LEN];
    let sends = nic.poll_transmit(now, 1, &mut buffer).is_some();
    if sends || nic.has_stream_events() {
        return Err(format!(
            "NIC {host} has no queue pairs but something to send or to do"
        ));
    }
    Ok(())
}

impl Model {
    /// Nothing will happen any more to a queue pair by itself: each of its requests has completed, or succeeded in silence.
    pub(crate) fn check_requests_ended(&self, number: usize) -> Check {
        let program = &self.programs[number];
        // Unsignaled requests at the end of a queue whose later requests were never posted.
        let is_silent = |index: &usize| !program.signaled(*index) && program.failed.is_none();
        match program.outstanding.iter().find(|index| !is_silent(index)) {
            None => Ok(()),
            Some(index) => Err(format!(
                "QP {number}: request {index} {:?} never completed, {} are outstanding",
                program.ops[*index].kind,
                program.outstanding.len()
            )),
        }
    }

    /// A queue pair is in the error state: each receive that was left has been flushed.
    pub(crate) fn check_receives_ended(&self, number: usize) -> Check {
        match self.programs[number].waiting.len() {
            0 => Ok(()),
            left => Err(format!("QP {number}: {left} receives were never flushed")),
        }
    }

    /// What was under way when a queue pair went, or its completions were lost, may have been done in part.
    pub(crate) fn settle_lost(&mut self, number: usize) {
        if self.arenas[self.programs[number].arena].region.is_none() {
            return;
        }
        for index in 0..self.programs[number].next_op {
            if self.programs[number].ops[index].outcome.is_none() {
                self.settle_lost_fetch(number, index);
            }
        }
        self.settle_lost_receives(number);
    }

    fn settle_lost_fetch(&mut self, number: usize, index: usize) {
        let program = &self.programs[number];
        let op = &program.ops[index];
        match (&op.source, op.kind) {
            // What an atomic returned is not known any more.
            (Source::Target(buffer, _), Kind::Atomic { .. }) => {
                let arena = &mut self.arenas[program.arena];
                let actual = arena.read(buffer);
                buffer.scatter(&mut arena.image, &actual);
            }
            _ => self.settle_partial_fetch(number, index),
        }
    }

    fn settle_lost_receives(&mut self, number: usize) {
        let program = &self.programs[number];
        let anything = program.promise == Promise::Nothing || program.blind;
        let (arena, receives, posted) = match program.srq {
            Some(srq) => (
                self.srqs[srq].arena,
                &self.srqs[srq].receives,
                self.srqs[srq].next,
            ),
            None => (program.arena, &program.receives, program.next_receive),
        };
        let left = receives[..posted].iter().filter(|receive| !receive.done);
        // Of its own receives only the next may hold a part of a message; of shared ones any.
        let count = if anything || program.srq.is_some() {
            usize::MAX
        } else {
            1
        };
        let left: Vec<_> = left.take(count).map(|receive| receive.buffer.clone()).collect();
        for buffer in left {
            if anything {
                self.accept(&Taken {
                    arena,
                    buffer,
                    short: false,
                });
            } else {
                self.settle_partial_receive(number, arena, &buffer);
            }
        }
    }

    /// Every key of a host is there that should be, and no other; `others` are those that are not of this model.
    pub(crate) fn check_keys(&self, host: usize, pd: PdId, keys: &KeyTable, others: usize) -> Check {
        let built = |arena: usize| self.arenas[arena].host == host && self.arenas[arena].region.is_some();
        let arenas = (0..self.arenas.len()).filter(|arena| built(*arena)).count();
        let mut expected = others + arenas;
        // A damaged message may have named any key.
        let damaged = |program: &Program| program.host == host && program.damaged;
        let any_gone = self.programs.iter().any(damaged);
        for (number, export) in self.exports.iter().enumerate() {
            if !built(export.arena) || export.key == 0 {
                continue;
            }
            let qpn = export
                .bound_to
                .map_or(Qpn::new(0), |program| self.programs[program].qpn);
            let there = keys.find(export.key, pd, qpn).is_ok();
            let (revoked, bound) = (export.revoked_ns.is_some(), !export.bound_later || export.bound);
            if there && revoked {
                return Err(format!("host {host}: the key of export {number} is still there"));
            }
            let certain = bound && !any_gone && !self.may_be_invalidated(number);
            if !there && !revoked && certain {
                return Err(format!("host {host}: the key of export {number} is gone"));
            }
            expected += usize::from(!revoked && bound);
        }
        let actual = keys.len();
        let too_many = actual > expected + self.uncertain_bindings();
        let too_few = actual + self.uncertain_invalidations() < expected && !any_gone;
        if too_many || too_few {
            return Err(format!("host {host} has {actual} keys instead of {expected}"));
        }
        Ok(())
    }

    /// Windows that may have been bound although no completion said so.
    fn uncertain_bindings(&self) -> usize {
        let posted = self
            .programs
            .iter()
            .flat_map(|program| &program.ops[..program.next_op]);
        posted
            .filter(|op| matches!(op.kind, Kind::BindWindow { .. }))
            .filter(|op| op.outcome != Some(Status::Success))
            .count()
    }

    /// Invalidations that may have happened although no completion said so.
    fn uncertain_invalidations(&self) -> usize {
        let live = |export: &Export| export.revoked_ns.is_none();
        (0..self.exports.len())
            .filter(|export| live(&self.exports[*export]) && self.may_be_invalidated(*export))
            .count()
    }

    /// Whether a request that invalidates a key was posted.
    fn may_be_invalidated(&self, number: usize) -> bool {
        let mut posted = self
            .programs
            .iter()
            .flat_map(|program| &program.ops[..program.next_op]);
        posted.any(|op| match op.kind {
            Kind::LocalInvalidate { export } | Kind::SendInvalidate { export } => export == number,
            _ => false,
        })
    }
}
