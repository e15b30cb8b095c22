//! Checks completions of receives: each is for the next message that the peer posted, with its bytes, behind every WRITE before it.

use super::Streams;
use crate::world::content::{Pieces, is_overlay};
use crate::world::memory::difference;
use crate::world::model::{Kind, Writing};
use crate::world::post::{SHARED, from_wr_id};
use nonic_core::iwarp::StreamEnd;
use nonic_core::{Completion, CompletionOpcode, SendFlags, Status};

impl Streams {
    /// Takes the completion of a receive; returns whether it wakes a waiter for solicited ones.
    pub(super) fn received(&mut self, number: usize, completion: &Completion) -> Result<bool, String> {
        let context = |what: String| format!("side {number}: {completion:?}: {what}");
        let (arena, buffer, short) = self.take_receive(number, completion).map_err(context)?;
        self.completions += 1;
        if completion.status == Status::Success {
            return self
                .received_message(number, completion, (arena, &buffer))
                .map_err(context);
        }
        let side = &self.sides[number];
        let invalidates = || {
            let refused = [
                nonic_wire::iwarp::TerminateCode::RDMAP_INVALID_STAG,
                nonic_wire::iwarp::TerminateCode::RDMAP_PROTECTION_CANNOT_INVALIDATE,
            ];
            matches!(side.ended, Some((StreamEnd::Terminated(code), _)) if refused.contains(&code))
        };
        let explained = match completion.status {
            Status::Flushed => side.ended.is_some() || side.leaving,
            Status::LocalLength => short && side.ended.is_some(),
            Status::RemoteInvalidRequest => invalidates(),
            _ => false,
        };
        if !explained && !self.is_blind(number) {
            return Err(context("nothing explains this status".into()));
        }
        self.settle_partial_receive(number, arena, &buffer);
        Ok(true)
    }

    /// The receive a completion is for: it was posted, is not done, and is next in line.
    fn take_receive(
        &mut self,
        number: usize,
        completion: &Completion,
    ) -> Result<(usize, Pieces, bool), String> {
        let (owner, index) = from_wr_id(completion.wr_id);
        let side = &mut self.sides[number];
        if completion.qpn != side.qpn {
            return Err("another queue pair's".into());
        }
        if completion.wr_id & SHARED != 0 {
            let srq = &mut self.srqs[owner];
            if side.srq != Some(owner) || !srq.waiting.remove(&index) {
                return Err(format!("shared receive {index} is not outstanding"));
            }
            return Ok((srq.arena, srq.receives[index].buffer.clone(), false));
        }
        let next = side.waiting.pop_front();
        if owner != number || next != Some(index) {
            return Err(format!(
                "receive {index} completed, but the next in line is {next:?}"
            ));
        }
        let receive = &side.receives[index];
        Ok((side.arena, receive.buffer.clone(), receive.short))
    }

    fn received_message(
        &mut self,
        number: usize,
        completion: &Completion,
        (arena, buffer): (usize, &Pieces),
    ) -> Result<bool, String> {
        let side = &self.sides[number];
        let position = side.received;
        let promised = side.params.is_some_and(|params| params.rtr.is_some());
        if number % 2 == 1 && promised && !side.established {
            return Err("a message, and the program does not know of a connection".into());
        }
        self.sides[number].received += 1;
        let peer = &self.sides[number ^ 1];
        if self.is_blind(number) {
            let whole = self.arenas[arena].read(buffer);
            buffer.scatter(&mut self.arenas[arena].image, &whole);
            return Ok(false);
        }
        let message = peer
            .messages
            .get(position)
            .copied()
            .filter(|index| *index < peer.next_op);
        let Some(message) = message else {
            return Err("more messages than the peer sent".into());
        };
        let op = &peer.ops[message];
        let (kind, length, solicited) = (op.kind, op.length, op.flags.contains(SendFlags::SOLICITED));
        let (opcode, immediate, invalidated) = match kind {
            Kind::Write {
                how: Writing::WithImmediate(immediate),
                ..
            } => (CompletionOpcode::RecvWriteWithImmediate, Some(immediate), None),
            Kind::SendInvalidate { export } => (CompletionOpcode::Recv, None, Some(self.exports[export].key)),
            Kind::Send { .. } => (CompletionOpcode::Recv, None, None),
            other => return Err(format!("{other:?} takes no receive")),
        };
        let actual = (
            completion.opcode,
            completion.byte_len,
            completion.immediate,
            completion.invalidated_rkey,
        );
        let expected = (opcode, length, immediate, invalidated);
        if actual != expected {
            return Err(format!("should be {expected:?}"));
        }
        if !matches!(kind, Kind::Write { .. }) {
            let place = buffer.prefix(length);
            let expected = op.source.content().bytes();
            let arena = &mut self.arenas[arena];
            let actual = arena.read(&place);
            if actual != expected {
                return Err(format!("the wrong bytes: {}", difference(&actual, &expected)));
            }
            place.scatter(&mut arena.image, &actual);
        }
        let through = message + usize::from(matches!(kind, Kind::Write { .. }));
        self.check_writes_before(number ^ 1, through)?;
        if let Kind::SendInvalidate { export } = kind {
            self.revoked(export);
        }
        Ok(solicited)
    }

    /// A failed receive may hold the first bytes of a message.
    pub(super) fn settle_partial_receive(&mut self, number: usize, arena: usize, buffer: &Pieces) {
        let (side, peer) = (&self.sides[number], &self.sides[number ^ 1]);
        let arena = &mut self.arenas[arena];
        let actual = arena.read(buffer);
        let before = buffer.gather(&arena.image);
        let pending = peer.messages.get(side.received);
        let pending = pending.filter(|index| !matches!(peer.ops[**index].kind, Kind::Write { .. }));
        let permitted = match pending {
            _ if self.connections[number / 2].blind => true,
            None => actual == before,
            Some(message) => {
                let mut bytes = peer.ops[*message].source.content().bytes();
                bytes.truncate(actual.len());
                let covered = bytes.len();
                is_overlay(&actual[..covered], &bytes, &before[..covered], 1)
                    && actual[covered..] == before[covered..]
            }
        };
        if permitted {
            buffer.scatter(&mut arena.image, &actual);
        }
        // Otherwise the final comparison finds the difference.
    }
}
