//! Checks completions of requests: exactly one for each, in order, with the right status, and with the bytes where they belong by the
//! time it is seen.

use super::post::complaint;
use super::{Check, Streams};
use crate::world::completions::opcode_of;
use crate::world::content::{Pieces, is_overlay};
use crate::world::model::{Bad, Expect, Kind, Qp, Source, Writing};
use crate::world::post::from_wr_id;
use nonic_core::iwarp::StreamEnd;
use nonic_core::{Completion, CompletionOpcode, SendFlags, Status};

impl Streams {
    /// Takes the completion of a request.
    pub(super) fn sent(&mut self, number: usize, completion: &Completion) -> Check {
        let (owner, index) = from_wr_id(completion.wr_id);
        let name = format!("side {number} request {index}");
        let side = &self.sides[number];
        if owner != number || !side.outstanding.contains(&index) || side.qpn != completion.qpn {
            return Err(format!("{name}: {completion:?} is for nothing outstanding"));
        }
        while let Some(earlier) = self.sides[number].outstanding.front().copied() {
            self.sides[number].outstanding.pop_front();
            if earlier == index {
                break;
            }
            let side = &self.sides[number];
            if side.signaled(earlier) || side.failed {
                return Err(format!("{name}: completed before {earlier}"));
            }
            // Its success is implied by that of a later one.
            self.done(number, earlier, Status::Success)?;
        }
        if completion.status == Status::Success && !self.sides[number].signaled(index) {
            return Err(format!("{name}: completed with success though unsignaled"));
        }
        let op = &self.sides[number].ops[index];
        let opcode = opcode_of(op.kind);
        let fetched = matches!(
            opcode,
            CompletionOpcode::Read | CompletionOpcode::CompareSwap | CompletionOpcode::FetchAdd
        );
        let length = if fetched { op.length } else { 0 };
        let wrong_length = completion.status == Status::Success && completion.byte_len != length;
        if completion.opcode != opcode || wrong_length {
            return Err(format!(
                "{name}: {completion:?} should be {opcode:?} of {length} bytes"
            ));
        }
        self.done(number, index, completion.status)
    }

    fn done(&mut self, number: usize, index: usize, status: Status) -> Check {
        self.completions += 1;
        let kind = self.sides[number].ops[index].kind;
        self.sides[number].ops[index].outcome = Some(status);
        let context = |what: String| format!("side {number} request {index} {kind:?}: {what}");
        self.check_status(number, index, status).map_err(context)?;
        if status == Status::Success {
            if self.sides[number].failed {
                return Err(context("succeeded behind one that failed".into()));
            }
            return self.succeeded(number, index).map_err(context);
        }
        self.failures += 1;
        self.sides[number].failed = true;
        self.settle_partial_fetch(number, index);
        Ok(())
    }

    fn check_status(&self, number: usize, index: usize, status: Status) -> Check {
        let side = &self.sides[number];
        let op = &side.ops[index];
        let blind = self.is_blind(number);
        let revoked = match op.kind {
            Kind::Write { cell, .. } | Kind::ReadCell { cell, .. } => self.cells[cell].export,
            Kind::SendInvalidate { export } | Kind::LocalInvalidate { export } => Some(export),
            _ => None,
        };
        let revoked_ns = revoked.and_then(|export| self.exports[export].revoked_ns);
        let refused = Expect::Refused(status);
        let permitted = match status {
            // The sender of a message that has no answer is not told that it was refused.
            Status::Success => match op.expect {
                Expect::Success => {
                    let reads = matches!(op.kind, Kind::ReadCell { .. }) && op.length > 0;
                    blind || !reads || revoked_ns.is_none_or(|revoked_ns| op.posted_ns <= revoked_ns)
                }
                expect => expect == Expect::Refused(Status::Flushed),
            },
            Status::Flushed => {
                // A peer that complains of a READ names it.
                let named = matches!(op.expect, Expect::Refused(own) if own != Status::Flushed);
                let complained = match (op.kind, side.ended) {
                    (Kind::Bad(bad), Some((StreamEnd::PeerTerminated(code), _))) => code == complaint(bad),
                    _ => false,
                };
                let first = named && complained && !blind;
                (side.ended.is_some() || side.leaving) && !(first && self.was_written(number, index))
            }
            Status::RemoteAccess if revoked_ns.is_some() => side.ended.is_some(),
            Status::LocalQpOperation => {
                matches!(op.kind, Kind::LocalInvalidate { .. }) && revoked_ns.is_some()
            }
            _ => blind || refused == op.expect || Expect::Local(status) == op.expect,
        };
        match permitted {
            true => Ok(()),
            false => Err(format!(
                "ended with {status:?}, which nothing explains ({:?}, {:?})",
                op.expect, side.ended
            )),
        }
    }

    /// Whether a READ or atomic went out before the stream ended, by the number of those before it.
    fn was_written(&self, number: usize, index: usize) -> bool {
        let fetches = |kind: Kind| {
            matches!(
                opcode_of(kind),
                CompletionOpcode::Read | CompletionOpcode::CompareSwap | CompletionOpcode::FetchAdd
            )
        };
        let side = &self.sides[number];
        let needed = side.ops[..=index].iter().filter(|op| fetches(op.kind)).count() as u64;
        let ready = side
            .params
            .is_some_and(|params| params.rtr == Some(nonic_core::iwarp::Rtr::Read) && number % 2 == 0);
        let observer = self.observers[number].as_ref();
        observer.is_some_and(|observer| observer.requests >= needed + u64::from(ready))
    }

    /// A request succeeded: everything it promises must be so already.
    fn succeeded(&mut self, number: usize, index: usize) -> Check {
        self.check_written(number, index)?;
        let blind = self.is_blind(number);
        let (kind, length) = (
            self.sides[number].ops[index].kind,
            self.sides[number].ops[index].length,
        );
        match kind {
            Kind::ReadPool { .. } | Kind::ReadCell { .. } | Kind::Atomic { .. } if !blind => {
                self.check_writes_before(number, index)?;
                self.check_delivered_before(number, index)?;
                match kind {
                    Kind::ReadPool { .. } => self.check_fetched(number, index),
                    Kind::ReadCell { cell, version } => {
                        self.check_fetched_cell(number, index, (cell, version, length))
                    }
                    Kind::Atomic { word, entry, .. } => self.note_original(number, index, (word, entry)),
                    _ => Ok(()),
                }
            }
            Kind::LocalInvalidate { export } => {
                self.revoked(export);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// TCP has taken the last byte of whatever completes.
    fn check_written(&self, number: usize, index: usize) -> Check {
        let side = &self.sides[number];
        let Some(observer) = &self.observers[number] else {
            return Err("succeeded without a stream".into());
        };
        let before = &side.ops[..=index];
        let messages = before.iter().filter(|op| Qp::is_message(op.kind)).count();
        let writes = before.iter().filter(|op| match op.kind {
            Kind::Write { how, .. } => how == Writing::Plain || op.length > 0,
            Kind::Bad(bad) => matches!(
                bad,
                Bad::WriteUnknownKey | Bad::WriteOutOfBounds | Bad::WriteReadOnly
            ),
            _ => false,
        });
        let writes = writes.count();
        if observer.messages < messages as u64 || observer.writes < writes as u64 {
            return Err(format!(
                "completed, but only {} of {messages} messages and {} of {writes} WRITEs are written",
                observer.messages, observer.writes
            ));
        }
        Ok(())
    }

    /// A later message, or the answer to a READ, comes behind every WRITE that was posted before.
    pub(super) fn check_writes_before(&mut self, sender: usize, message: usize) -> Check {
        for index in self.sides[sender].writes_seen..message {
            if let Kind::Write { cell, version, .. } = self.sides[sender].ops[index].kind {
                let cell_now = &self.cells[cell];
                cell_now
                    .check(cell, &self.arenas[cell_now.arena], version)
                    .map_err(|what| format!("WRITE {index} before {message}: {what}"))?;
                self.cells[cell].known = self.cells[cell].known.max(version);
            }
        }
        let seen = &mut self.sides[sender].writes_seen;
        *seen = (*seen).max(message);
        Ok(())
    }

    /// A peer that answers a READ has taken every message before it.
    fn check_delivered_before(&self, number: usize, index: usize) -> Check {
        let sent = self.sides[number].messages.iter();
        let before = sent.take_while(|message| **message < index).count();
        let peer = &self.sides[number ^ 1];
        match peer.received >= before || peer.gone {
            true => Ok(()),
            false => Err(format!(
                "answered, but the peer has {} of {before} messages before it",
                peer.received
            )),
        }
    }

    fn check_fetched(&mut self, number: usize, index: usize) -> Check {
        let side = &self.sides[number];
        self.arenas[side.arena].check_fetched(&side.ops[index].source)
    }

    /// A READ is answered from memory as it is then: WRITEs behind it may already be there, those behind a fence may not.
    fn check_fetched_cell(
        &mut self,
        number: usize,
        index: usize,
        (cell, version, length): (usize, usize, u32),
    ) -> Check {
        let side = &self.sides[number];
        let mut latest = version;
        for later in &side.ops[index + 1..side.next_op] {
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
        let Source::Target(buffer, _) = &side.ops[index].source else {
            return Ok(());
        };
        let arena = &mut self.arenas[side.arena];
        let actual = arena.read(buffer);
        let versions: Vec<Vec<u8>> = self.cells[cell].versions[version..=latest]
            .iter()
            .map(Pieces::bytes)
            .collect();
        let fits = |at: usize| versions.iter().any(|bytes| bytes[at] == actual[at]);
        if let Some(at) = (0..length as usize).find(|at| !fits(*at)) {
            return Err(format!(
                "the byte at {at} of {length} is of none of versions {version} to {latest}"
            ));
        }
        buffer.scatter(&mut arena.image, &actual);
        Ok(())
    }

    fn note_original(&mut self, number: usize, index: usize, (word, entry): (usize, usize)) -> Check {
        let side = &self.sides[number];
        let Source::Target(buffer, _) = &side.ops[index].source else {
            return Ok(());
        };
        let arena = &mut self.arenas[side.arena];
        let bytes = arena.read(buffer);
        buffer.scatter(&mut arena.image, &bytes);
        let original = u64::from_ne_bytes(bytes.try_into().map_err(|_| "an original has 8 bytes")?);
        self.words[word].history[entry].original = Some(original);
        Ok(())
    }

    /// A READ that failed may have brought some of its bytes.
    pub(super) fn settle_partial_fetch(&mut self, number: usize, index: usize) {
        let side = &self.sides[number];
        let op = &side.ops[index];
        let Source::Target(buffer, content) = &op.source else {
            return;
        };
        let arena = &mut self.arenas[side.arena];
        let actual = arena.read(buffer);
        let before = buffer.gather(&arena.image);
        let permitted = match op.kind {
            Kind::ReadPool { .. } => is_overlay(&actual, &content.bytes(), &before, 1),
            // Which version it met is not known any more; nor the value of an atomic.
            Kind::ReadCell { .. } | Kind::Atomic { .. } => true,
            _ => false,
        };
        if permitted {
            buffer.scatter(&mut arena.image, &actual);
        }
        // Otherwise the final comparison finds the difference.
    }
}
