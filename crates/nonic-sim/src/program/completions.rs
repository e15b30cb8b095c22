//! Checks completions of send requests: exactly one for each, in order, with the right status, and the
//! bytes where they belong by the time it is seen.
//!
//! Why a request may fail is not decided here: the [`Carrier`] knows its wire.

use super::Check;
use super::carrier::Carrier;
use super::content::{Pieces, is_overlay};
use super::model::{Model, Promise};
use super::post::from_wr_id;
use super::request::{Expect, Kind, Source};
use nonic_core::{Completion, SendFlags, Status};

/// Takes the completion of a request of program `number`.
pub(crate) fn sent(carrier: &mut impl Carrier, number: usize, completion: &Completion) -> Check {
    let index = carrier.model().request_of(number, completion)?;
    for earlier in carrier.model_mut().take_until(number, index)? {
        // A completion proves that every unsignaled request before it succeeded.
        ended(carrier, number, earlier, Status::Success)
            .map_err(|what| format!("{what} (implied by {index})"))?;
    }
    carrier.model().check_form(number, index, completion)?;
    ended(carrier, number, index, completion.status)
}

fn ended(carrier: &mut impl Carrier, number: usize, index: usize, status: Status) -> Check {
    let kind = carrier.model().programs[number].ops[index].kind;
    let context = |what: String| format!("QP {number} request {index} {kind:?}: {what}");
    carrier.check_status(number, index, status).map_err(context)?;
    if status == Status::Success {
        carrier.check_carried(number, index).map_err(context)?;
        return carrier.model_mut().succeeded(number, index).map_err(context);
    }
    let first = carrier.model_mut().failed(number, index, status);
    carrier.request_failed(number, index, first);
    Ok(())
}

impl Model {
    /// The request a completion is for: it is outstanding, and of that queue pair.
    fn request_of(&self, number: usize, completion: &Completion) -> Result<usize, String> {
        let (owner, index) = from_wr_id(completion.wr_id);
        let name = format!("QP {owner} request {index}");
        let program = self.programs.get(number).filter(|_| owner == number);
        let Some(program) = program.filter(|program| program.outstanding.contains(&index)) else {
            return Err(format!("{name}: {completion:?} is for nothing outstanding"));
        };
        if program.qpn != completion.qpn {
            return Err(format!(
                "{name}: completion names another queue pair: {completion:?}"
            ));
        }
        Ok(index)
    }

    /// Takes a request and those before it from the ones outstanding; returns those before, which completed in silence.
    fn take_until(&mut self, number: usize, index: usize) -> Result<Vec<usize>, String> {
        let mut silent = Vec::new();
        while let Some(earlier) = self.programs[number].outstanding.pop_front() {
            if earlier == index {
                return Ok(silent);
            }
            let program = &self.programs[number];
            if program.signaled(earlier) {
                return Err(format!("QP {number}: request {index} completed before {earlier}"));
            }
            if program.failed.is_some() {
                return Err(format!(
                    "QP {number}: request {earlier} was not flushed but {index} was"
                ));
            }
            silent.push(earlier);
        }
        Err(format!("QP {number}: request {index} is not outstanding"))
    }

    /// Opcode and length; and success is told only if it was asked for.
    fn check_form(&self, number: usize, index: usize, completion: &Completion) -> Check {
        let name = format!("QP {number} request {index}");
        let op = &self.programs[number].ops[index];
        let success = completion.status == Status::Success;
        if success && !self.programs[number].signaled(index) {
            return Err(format!("{name}: completed with success though unsignaled"));
        }
        let opcode = op.kind.opcode();
        if completion.opcode != opcode {
            return Err(format!(
                "{name}: completed as {:?}, not {opcode:?}",
                completion.opcode
            ));
        }
        let length = if op.kind.is_fetch() { op.length } else { 0 };
        if success && completion.byte_len != length {
            return Err(format!(
                "{name}: byte_len {} instead of {length}",
                completion.byte_len
            ));
        }
        Ok(())
    }

    /// The queue pair of a program has ended: it answers nothing that is posted later.
    pub(crate) fn note_ended(&mut self, number: usize) {
        self.programs[number].ended_ns.get_or_insert(self.now_ns);
    }

    /// Whether a request can have succeeded, as far as its sender is told.
    pub(crate) fn may_succeed(&self, number: usize, index: usize) -> bool {
        let program = &self.programs[number];
        let op = &program.ops[index];
        let answered = match program.promise {
            Promise::Done => !op.kind.is_local(),
            Promise::Written => op.kind.is_fetch() && !program.damaged,
            Promise::Nothing => false,
        };
        // The sender of a message that has no answer is not told that it was refused.
        let untold = program.promise == Promise::Written && op.expect == Expect::Refused(Status::Flushed);
        let after = |event_ns: Option<u64>| event_ns.is_some_and(|event_ns| op.posted_ns > event_ns);
        let revoked_ns = self.revoked_before(op.kind);
        // No bytes need no key.
        let keyless = op.length > 0 && after(revoked_ns);
        let peer_gone = after(program.peer.and_then(|peer| self.programs[peer].ended_ns));
        (op.expect == Expect::Success || untold) && !(answered && (keyless || peer_gone))
    }

    /// When the key that a request reads or writes with was revoked.
    pub(crate) fn revoked_before(&self, kind: Kind) -> Option<u64> {
        let export = self.export_used(kind)?;
        self.exports[export].revoked_ns
    }

    /// The export a request reads or writes.
    pub(crate) fn export_used(&self, kind: Kind) -> Option<usize> {
        match kind {
            Kind::Write { cell, .. } | Kind::ReadCell { cell, .. } => self.cells[cell].export,
            _ => None,
        }
    }

    /// A request succeeded: everything it promises must be so already.
    fn succeeded(&mut self, number: usize, index: usize) -> Check {
        self.completions += 1;
        let program = &mut self.programs[number];
        let op = &mut program.ops[index];
        op.outcome = Some(Status::Success);
        let (kind, promise, damaged) = (op.kind, program.promise, program.damaged);
        if program.failed.is_some() {
            return Err("succeeded behind one that failed".into());
        }
        if !damaged {
            self.check_done(number, index, promise)?;
        }
        match kind {
            Kind::ReadPool { .. } | Kind::ReadCell { .. } if !damaged => self.check_fetched(number, index),
            Kind::Atomic { word, entry, .. } if !damaged => self.note_original(number, index, (word, entry)),
            Kind::SendInvalidate { .. } if promise != Promise::Done => Ok(()),
            Kind::LocalInvalidate { export } | Kind::SendInvalidate { export } => {
                self.revoked(export);
                Ok(())
            }
            Kind::BindWindow { export } => {
                self.exports[export].bound = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether the peer has done what the success of a request says it has.
    fn check_done(&mut self, number: usize, index: usize, promise: Promise) -> Check {
        let kind = self.programs[number].ops[index].kind;
        match promise {
            Promise::Done if kind.is_message() => self.check_delivered(number, index + 1)?,
            // The answer comes behind everything that was posted before.
            Promise::Written if kind.is_fetch() => {
                self.check_writes_before(number, index)?;
                self.check_delivered(number, index)?;
            }
            _ => {}
        }
        if let (Kind::Write { cell, version, .. }, Promise::Done) = (kind, promise) {
            if !self.programs[number].ops[index].verified {
                self.check_cell(cell, version)?;
                self.programs[number].ops[index].verified = true;
            }
            self.cells[cell].known = self.cells[cell].known.max(version);
        }
        Ok(())
    }

    /// Whether the peer's program has every message below a request: their completions can be seen.
    fn check_delivered(&self, number: usize, below: usize) -> Check {
        let program = &self.programs[number];
        let Some(peer) = program.peer.map(|peer| &self.programs[peer]) else {
            return Ok(());
        };
        let before = program.messages.partition_point(|message| *message < below);
        match peer.received >= before || peer.blind {
            true => Ok(()),
            false => Err(format!(
                "answered, but the peer has {} of the {before} messages until then",
                peer.received
            )),
        }
    }

    /// A later message, or the answer to a READ, comes behind every WRITE that was posted before.
    pub(crate) fn check_writes_before(&mut self, sender: usize, message: usize) -> Check {
        for index in self.programs[sender].writes_seen..message {
            if let Kind::Write { cell, version, .. } = self.programs[sender].ops[index].kind {
                self.check_cell(cell, version)
                    .map_err(|what| format!("WRITE {index} before {message}: {what}"))?;
                self.programs[sender].ops[index].verified = true;
                self.cells[cell].known = self.cells[cell].known.max(version);
            }
        }
        let seen = &mut self.programs[sender].writes_seen;
        *seen = (*seen).max(message);
        Ok(())
    }

    /// What a READ may find: memory as it is then. WRITEs behind it may already be there, those behind a fence may not.
    fn versions_met(&self, number: usize, index: usize) -> Vec<Vec<u8>> {
        let program = &self.programs[number];
        let op = &program.ops[index];
        let Kind::ReadCell { cell, version } = op.kind else {
            return vec![op.source.content().bytes()];
        };
        let mut latest = version;
        for later in &program.ops[index + 1..program.next_op] {
            if later.flags.contains(SendFlags::FENCE) {
                break;
            }
            match later.kind {
                Kind::Write {
                    cell: written,
                    version,
                    ..
                } if written == cell => latest = version,
                _ => {}
            }
        }
        let met = &self.cells[cell].versions[version..=latest];
        met.iter().map(Pieces::bytes).collect()
    }

    /// What was fetched is in place; it belongs to the image from now on.
    fn check_fetched(&mut self, number: usize, index: usize) -> Check {
        let versions = self.versions_met(number, index);
        let program = &self.programs[number];
        let Source::Target(buffer, _) = &program.ops[index].source else {
            return Ok(());
        };
        let arena = &mut self.arenas[program.arena];
        let actual = arena.read(buffer);
        let fits = |at: usize| versions.iter().any(|bytes| bytes[at] == actual[at]);
        if let Some(at) = (0..actual.len()).find(|at| !fits(*at)) {
            return Err(format!(
                "fetched the wrong bytes: the one at {at} of {} is of none of {} versions",
                actual.len(),
                versions.len()
            ));
        }
        buffer.scatter(&mut arena.image, &actual);
        Ok(())
    }

    fn note_original(&mut self, number: usize, index: usize, (word, entry): (usize, usize)) -> Check {
        let program = &self.programs[number];
        let Source::Target(buffer, _) = &program.ops[index].source else {
            return Ok(());
        };
        let arena = &mut self.arenas[program.arena];
        let bytes = arena.read(buffer);
        buffer.scatter(&mut arena.image, &bytes);
        let original = u64::from_ne_bytes(bytes.try_into().map_err(|_| "an original has 8 bytes")?);
        self.words[word].history[entry].original = Some(original);
        Ok(())
    }

    /// A request failed: what it may have done is uncertain from now on. Returns whether it is the first that did.
    fn failed(&mut self, number: usize, index: usize, status: Status) -> bool {
        self.failures += 1;
        let program = &mut self.programs[number];
        program.ops[index].outcome = Some(status);
        let first = program.failed.is_none();
        program.failed.get_or_insert(status);
        self.settle_partial_fetch(number, index);
        first
    }

    /// A READ that failed may have brought some of its bytes, from the first on; an atomic nothing.
    pub(crate) fn settle_partial_fetch(&mut self, number: usize, index: usize) {
        let program = &self.programs[number];
        let op = &program.ops[index];
        let (Source::Target(buffer, _), Kind::ReadPool { .. } | Kind::ReadCell { .. }) =
            (&op.source, op.kind)
        else {
            return;
        };
        let versions = self.versions_met(number, index);
        let arena = &mut self.arenas[program.arena];
        let actual = arena.read(buffer);
        let before = buffer.gather(&arena.image);
        let permitted = match &versions[..] {
            [content] => is_overlay(&actual, content, &before, program.piece),
            _ => (0..actual.len())
                .all(|at| actual[at] == before[at] || versions.iter().any(|bytes| bytes[at] == actual[at])),
        };
        if permitted {
            buffer.scatter(&mut arena.image, &actual);
        }
        // Otherwise the final comparison finds the difference.
    }
}
