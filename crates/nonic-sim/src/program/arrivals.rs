//! Checks completions of receives: each answers a message that was sent, in order, once, with its bytes.
//!
//! Why a receive may fail is not decided here, nor which message an unreliable wire may have lost: the [`Carrier`] knows.

use super::Check;
use super::carrier::Carrier;
use super::content::{Pieces, is_overlay};
use super::memory::difference;
use super::model::{Model, Promise, Taken};
use super::post::{RECEIVE, SHARED, from_wr_id};
use super::request::{Bad, Kind, Writing};
use nonic_core::{Completion, CompletionOpcode, SendFlags, Status};

/// Takes the completion of a receive of program `number`; returns whether it wakes a waiter for solicited ones, if that is
/// certain.
pub(crate) fn received(
    carrier: &mut impl Carrier,
    number: usize,
    completion: &Completion,
) -> Result<Option<bool>, String> {
    let context = |what: String| format!("QP {number}: {completion:?}: {what}");
    let model = carrier.model_mut();
    let receive = model.take_receive(number, completion).map_err(context)?;
    model.completions += 1;
    if completion.status == Status::Success {
        return carrier
            .take_message(number, completion, &receive)
            .map_err(context);
    }
    carrier
        .check_failed_receive(number, completion.status, receive.short)
        .map_err(context)?;
    carrier
        .model_mut()
        .settle_partial_receive(number, receive.arena, &receive.buffer);
    Ok(Some(true))
}

impl Model {
    /// The receive a completion is for: it was posted, is not done, and is next in line.
    fn take_receive(&mut self, number: usize, completion: &Completion) -> Result<Taken, String> {
        let (owner, index) = from_wr_id(completion.wr_id);
        let program = &mut self.programs[number];
        if completion.qpn != program.qpn {
            return Err("another queue pair's".into());
        }
        if completion.wr_id & RECEIVE == 0 {
            return Err("not a receive's wr_id".into());
        }
        let (arena, receive) = if completion.wr_id & SHARED != 0 {
            if program.srq != Some(owner) {
                return Err("a receive of a queue it does not draw from".into());
            }
            let srq = &mut self.srqs[owner];
            if !srq.waiting.remove(&index) {
                return Err(format!("shared receive {index} is not outstanding"));
            }
            (srq.arena, &mut srq.receives[index])
        } else {
            if owner != number {
                return Err("another queue pair's receive".into());
            }
            let next = program.waiting.pop_front();
            if next != Some(index) {
                return Err(format!(
                    "receive {index} completed, but the next in line is {next:?}"
                ));
            }
            (program.arena, &mut program.receives[index])
        };
        receive.done = true;
        Ok(Taken {
            arena,
            buffer: receive.buffer.clone(),
            short: receive.short,
        })
    }

    /// A message arrived where none may be missing: it is the next that the peer posted. Returns whether it is solicited,
    /// if that is certain.
    pub(crate) fn take_next_message(
        &mut self,
        number: usize,
        completion: &Completion,
        receive: &Taken,
    ) -> Result<Option<bool>, String> {
        let program = &mut self.programs[number];
        let peer = program.peer.ok_or("a connected queue pair has a peer")?;
        let position = program.received;
        program.received += 1;
        if program.damaged {
            self.accept(receive);
            return Ok(None);
        }
        let Some(message) = self.programs[peer].messages.get(position).copied() else {
            return Err("more receives than the peer sent messages".into());
        };
        self.check_message(peer, message, completion, receive)?;
        self.check_writes_before(peer, message)?;
        let flags = self.programs[peer].ops[message].flags;
        Ok(Some(flags.contains(SendFlags::SOLICITED)))
    }

    /// Whatever is in a receive is as good as anything else.
    pub(crate) fn accept(&mut self, receive: &Taken) {
        let arena = &mut self.arenas[receive.arena];
        let whole = arena.read(&receive.buffer);
        receive.buffer.scatter(&mut arena.image, &whole);
    }

    /// Whether a completion and its buffer are those of a message.
    pub(crate) fn check_message(
        &mut self,
        sender: usize,
        message: usize,
        completion: &Completion,
        receive: &Taken,
    ) -> Check {
        let op = &self.programs[sender].ops[message];
        let (kind, length) = (op.kind, op.length);
        if completion.byte_len != length {
            return Err(format!("byte_len {} instead of {length}", completion.byte_len));
        }
        let (opcode, immediate, invalidated) = match kind {
            Kind::Send { immediate } => (CompletionOpcode::Recv, immediate, None),
            Kind::Write {
                how: Writing::WithImmediate(immediate),
                ..
            } => (CompletionOpcode::RecvWriteWithImmediate, Some(immediate), None),
            Kind::SendInvalidate { export } => (CompletionOpcode::Recv, None, Some(self.exports[export].key)),
            Kind::Bad(Bad::SendInvalidateUnknownKey) => return Err("an invalid key was invalidated".into()),
            other => return Err(format!("{other:?} takes no receive")),
        };
        let expected = (opcode, immediate, invalidated);
        let actual = (
            completion.opcode,
            completion.immediate,
            completion.invalidated_rkey,
        );
        if actual != expected {
            return Err(format!(
                "should be {opcode:?} with {immediate:?} and {invalidated:?}"
            ));
        }
        if let Kind::Write { cell, version, .. } = kind {
            return self.check_cell(cell, version);
        }
        self.check_payload(sender, message, receive.arena, &receive.buffer.prefix(length))?;
        if let Kind::SendInvalidate { export } = kind {
            self.revoked(export);
        }
        Ok(())
    }

    fn check_payload(&mut self, sender: usize, message: usize, arena: usize, buffer: &Pieces) -> Check {
        let expected = self.programs[sender].ops[message].source.content().bytes();
        let arena = &mut self.arenas[arena];
        let actual = arena.read(buffer);
        if actual != expected {
            return Err(format!("the wrong bytes: {}", difference(&actual, &expected)));
        }
        buffer.scatter(&mut arena.image, &actual);
        Ok(())
    }

    /// A failed receive may hold the first bytes of the message that is next.
    pub(crate) fn settle_partial_receive(&mut self, number: usize, arena: usize, buffer: &Pieces) {
        let program = &self.programs[number];
        let arena = &mut self.arenas[arena];
        let actual = arena.read(buffer);
        let before = buffer.gather(&arena.image);
        let pending = program.peer.and_then(|peer| {
            let peer = &self.programs[peer];
            let message = &peer.ops[*peer.messages.get(program.received)?];
            // A WRITE takes a receive and leaves it empty.
            let written = matches!(message.kind, Kind::Write { .. });
            (!written).then(|| message.source.content().bytes())
        });
        let anything = program.promise == Promise::Nothing || program.damaged;
        let permitted = match pending {
            _ if anything => true,
            None => actual == before,
            Some(mut message) => {
                // What is behind the message's end is untouched.
                message.truncate(actual.len());
                let covered = message.len();
                let head = is_overlay(&actual[..covered], &message, &before[..covered], program.packet);
                head && actual[covered..] == before[covered..]
            }
        };
        if permitted {
            buffer.scatter(&mut arena.image, &actual);
        }
        // Otherwise the final comparison finds the difference.
    }
}
