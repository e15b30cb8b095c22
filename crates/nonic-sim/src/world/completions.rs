//! Checks completions of send requests: exactly one for each, in order, with the right status, and the
//! bytes where they belong by the time it is seen.

use super::content::is_overlay;
use super::model::{Bad, Expect, Kind, Life, Mark, Qp, Source, Writing};
use super::post::from_wr_id;
use super::{Check, World};
use nonic_core::{Completion, CompletionOpcode, Service, Status};

impl World {
    /// Takes a send completion.
    pub(super) fn sent(&mut self, completion: &Completion) -> Check {
        let (number, index) = from_wr_id(completion.wr_id);
        let name = format!("QP {number} request {index}");
        if self.qps.get(number).is_some_and(|qp| qp.life == Life::Overflowed) {
            return Ok(());
        }
        let known = self
            .qps
            .get(number)
            .is_some_and(|qp| qp.outstanding.contains(&index));
        if !known {
            return Err(format!("{name}: {completion:?} is for nothing outstanding"));
        }
        if self.qps[number].qpn != completion.qpn {
            return Err(format!(
                "{name}: completion names another queue pair: {completion:?}"
            ));
        }
        if self.qps[number].life == Life::Drained && completion.status != Status::Flushed {
            return Err(format!("{name}: completed after the send queue had drained"));
        }
        self.imply_earlier(number, index)?;
        self.qps[number].outstanding.pop_front();
        let status = completion.status;
        if status == Status::Success && !self.qps[number].signaled(index) {
            return Err(format!("{name}: completed with success though unsignaled"));
        }
        self.check_form(number, index, completion)
            .map_err(|what| format!("{name}: {what}"))?;
        self.check_status(number, index, status)
            .map_err(|what| format!("{name} {:?}: {what}", self.qps[number].ops[index].kind))?;
        if status == Status::Success {
            self.qps[number].disturbed_at_success = self.disturbed_on_path(number);
            self.succeeded(number, index)
                .map_err(|what| format!("{name} {:?}: {what}", self.qps[number].ops[index].kind))
        } else {
            self.failed(number, index, status);
            Ok(())
        }
    }

    /// A completion proves that every unsignaled request before it succeeded.
    fn imply_earlier(&mut self, number: usize, index: usize) -> Check {
        while let Some(earlier) = self.qps[number].outstanding.front().copied() {
            if earlier == index {
                return Ok(());
            }
            let qp = &mut self.qps[number];
            if qp.signaled(earlier) {
                return Err(format!("QP {number}: request {index} completed before {earlier}"));
            }
            if qp.failed.is_some() {
                return Err(format!(
                    "QP {number}: request {earlier} was not flushed but {index} was"
                ));
            }
            qp.outstanding.pop_front();
            self.check_status(number, earlier, Status::Success)
                .and_then(|()| self.succeeded(number, earlier))
                .map_err(|what| {
                    let kind = self.qps[number].ops[earlier].kind;
                    format!("QP {number} request {earlier} {kind:?}: {what} (implied by {index})")
                })?;
        }
        Err(format!("QP {number}: request {index} is not outstanding"))
    }

    /// Opcode and length.
    fn check_form(&self, number: usize, index: usize, completion: &Completion) -> Check {
        let op = &self.qps[number].ops[index];
        let opcode = opcode_of(op.kind);
        if completion.opcode != opcode {
            return Err(format!("completed as {:?}, not {opcode:?}", completion.opcode));
        }
        let fetched = matches!(
            opcode,
            CompletionOpcode::Read | CompletionOpcode::CompareSwap | CompletionOpcode::FetchAdd
        );
        let length = if fetched { op.length } else { 0 };
        if completion.status == Status::Success && completion.byte_len != length {
            return Err(format!("byte_len {} instead of {length}", completion.byte_len));
        }
        Ok(())
    }

    /// Whether the run so far permits this status for this request.
    fn check_status(&self, number: usize, index: usize, status: Status) -> Check {
        let qp = &self.qps[number];
        let op = &qp.ops[index];
        let revoked_ns = self
            .export_used(op.kind)
            .and_then(|export| self.exports[export].revoked_ns);
        let permitted = match status {
            Status::Success => {
                let too_late = revoked_ns.is_some_and(|revoked_ns| op.posted_ns > revoked_ns);
                // No bytes need no key; and an unreliable sender is not told.
                let judged = qp.service == Service::Rc && op.length > 0;
                op.expect == Expect::Success && !(too_late && judged) && !self.peer_had_ended(number, index)
            }
            Status::Flushed => self.error_is_explained(number),
            // A repeated READ with a key that was revoked meanwhile is not answered.
            Status::RetryExceeded => {
                qp.service == Service::Rc && (self.silence_is_explained(number) || revoked_ns.is_some())
            }
            Status::RnrRetryExceeded => qp.service == Service::Rc && qp.terms.rnr_retry != 7,
            Status::RemoteAccess if revoked_ns.is_some() => true,
            // The peer's receive was too short.
            Status::RemoteInvalidRequest if self.met_short_receive(number, index) => true,
            _ => op.expect == Expect::Refused(status) || op.expect == Expect::Local(status),
        };
        if permitted {
            Ok(())
        } else {
            Err(format!(
                "ended with {status:?}, which nothing explains ({:?})",
                op.expect
            ))
        }
    }

    /// Whether a request needs a peer that had ended when it was posted.
    fn peer_had_ended(&self, number: usize, index: usize) -> bool {
        let qp = &self.qps[number];
        let op = &qp.ops[index];
        let local = matches!(op.kind, Kind::LocalInvalidate { .. } | Kind::BindWindow { .. });
        let ended_ns = qp.peer.and_then(|peer| self.qps[peer].ended_ns);
        qp.service == Service::Rc && !local && ended_ns.is_some_and(|ended_ns| op.posted_ns > ended_ns)
    }

    /// Whether the queue pair may be in error.
    pub(super) fn error_is_explained(&self, number: usize) -> bool {
        let qp = &self.qps[number];
        qp.failed.is_some() || qp.may_be_refused || matches!(qp.life, Life::Error | Life::Overflowed)
    }

    /// Whether the peer may have been silent for so long: it is not there, or packets were lost.
    fn silence_is_explained(&self, number: usize) -> bool {
        let qp = &self.qps[number];
        let Some(peer) = qp.peer else { return false };
        let other = &self.qps[peer];
        let there = self.hosts[other.host].station;
        // Every timeout since the last success must have been caused by a packet of its own. Only the first
        // one's may have been sent before, and the answer to the last may have been too slow: that attempt, the
        // one beyond the retries, need not have lost anything.
        let disturbed = self.disturbed_on_path(number);
        let needed = u64::from(qp.terms.retry_count);
        let since = disturbed - qp.disturbed_at_success;
        let lost_enough = disturbed >= needed && since >= needed.saturating_sub(2);
        let in_error = self.fabric.nic(there).qp_state(other.qpn) == Some(nonic_core::QpState::Error);
        !other.works() || (in_error && self.error_is_explained(peer)) || lost_enough
    }

    /// Packets lost, late or damaged between a queue pair and its peer so far.
    fn disturbed_on_path(&self, number: usize) -> u64 {
        let station = |qp: usize| self.hosts[self.qps[qp].host].station;
        let (here, there) = (station(number), station(self.qps[number].peer.unwrap_or(number)));
        self.fabric.disturbed(here, there) + self.fabric.disturbed(there, here)
    }

    fn met_short_receive(&self, number: usize, index: usize) -> bool {
        let qp = &self.qps[number];
        let position = qp.messages.iter().position(|message| *message == index);
        let receives = qp.peer.map(|peer| &self.qps[peer].receives);
        position
            .zip(receives)
            .and_then(|(position, receives)| receives.get(position))
            .is_some_and(|receive| receive.short)
    }

    /// A request succeeded: everything it promises must be so already.
    fn succeeded(&mut self, number: usize, index: usize) -> Check {
        self.qps[number].ops[index].outcome = Some(Status::Success);
        self.completions += 1;
        let op = &self.qps[number].ops[index];
        let kind = op.kind;
        let reliable = self.qps[number].service == Service::Rc;
        if reliable && Qp::is_message(kind) {
            self.check_delivered(number, index)?;
        }
        match kind {
            Kind::Write { cell, version, .. } if reliable => {
                if !self.qps[number].ops[index].verified {
                    self.check_cell(cell, version)?;
                    self.qps[number].ops[index].verified = true;
                }
                let cell = &mut self.cells[cell];
                cell.known = cell.known.max(version);
                Ok(())
            }
            Kind::ReadPool { .. } | Kind::ReadCell { .. } => self.check_fetched(number, index),
            Kind::Atomic { word, entry, .. } => self.note_original(number, index, word, entry),
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

    /// An acknowledged message is in the receiver's hands: its completion can be seen.
    fn check_delivered(&self, number: usize, index: usize) -> Check {
        let qp = &self.qps[number];
        let Some(peer) = qp.peer.map(|peer| &self.qps[peer]) else {
            return Ok(());
        };
        let position = qp.messages.iter().position(|message| *message == index);
        let position = position.ok_or("not among the messages")?;
        if peer.blind || peer.received > position {
            Ok(())
        } else {
            Err(format!(
                "acknowledged, but the peer has {} of its messages",
                peer.received
            ))
        }
    }

    fn check_fetched(&mut self, number: usize, index: usize) -> Check {
        let qp = &self.qps[number];
        self.arenas[qp.arena].check_fetched(&qp.ops[index].source)
    }

    fn note_original(&mut self, number: usize, index: usize, word: usize, entry: usize) -> Check {
        let qp = &self.qps[number];
        let Source::Target(buffer, _) = &qp.ops[index].source else {
            return Ok(());
        };
        let arena = &mut self.arenas[qp.arena];
        let bytes = arena.read(buffer);
        buffer.scatter(&mut arena.image, &bytes);
        let original = u64::from_ne_bytes(bytes.try_into().map_err(|_| "an original has 8 bytes")?);
        self.words[word].history[entry].original = Some(original);
        Ok(())
    }

    /// A request failed: what it may have done is uncertain from now on.
    fn failed(&mut self, number: usize, index: usize, status: Status) {
        self.failures += 1;
        if status == Status::RetryExceeded {
            self.retries_exceeded += 1;
        }
        let qp = &mut self.qps[number];
        qp.ops[index].outcome = Some(status);
        let local = matches!(qp.ops[index].expect, Expect::Local(_)) && status != Status::Flushed;
        if qp.failed.is_none() {
            qp.failed = Some(status);
            if qp.works() {
                qp.life = if local && qp.service != Service::Rc {
                    let delay_ns = self.prng.below(50_000);
                    self.fabric.mark(delay_ns, Mark::Recover(number));
                    Life::SendError
                } else {
                    Life::Error
                };
            }
        }
        self.settle_partial_fetch(number, index);
    }

    /// A READ that failed may have brought some of its packets.
    fn settle_partial_fetch(&mut self, number: usize, index: usize) {
        let qp = &self.qps[number];
        let op = &qp.ops[index];
        let (Source::Target(buffer, content), Kind::ReadPool { .. } | Kind::ReadCell { .. }) =
            (&op.source, op.kind)
        else {
            return;
        };
        let arena = &mut self.arenas[qp.arena];
        let actual = arena.read(buffer);
        let before = buffer.gather(&arena.image);
        let unit = self.scenario.unit(qp.terms.mtu.bytes() as usize);
        if is_overlay(&actual, &content.bytes(), &before, unit) {
            buffer.scatter(&mut arena.image, &actual);
        }
        // Otherwise the final comparison finds the difference.
    }
}

pub(crate) fn opcode_of(kind: Kind) -> CompletionOpcode {
    use super::model::Change;
    match kind {
        Kind::Send { .. } | Kind::SendInvalidate { .. } | Kind::Datagram { .. } => CompletionOpcode::Send,
        Kind::Write {
            how: Writing::Atomic, ..
        } => CompletionOpcode::AtomicWrite,
        Kind::Write { .. } => CompletionOpcode::Write,
        Kind::Flush { .. } => CompletionOpcode::Flush,
        Kind::BindWindow { .. } => CompletionOpcode::BindWindow,
        Kind::ReadPool { .. } | Kind::ReadCell { .. } => CompletionOpcode::Read,
        Kind::Atomic {
            change: Change::Add(_),
            ..
        } => CompletionOpcode::FetchAdd,
        Kind::Atomic { .. } => CompletionOpcode::CompareSwap,
        Kind::LocalInvalidate { .. } => CompletionOpcode::LocalInvalidate,
        Kind::Bad(bad) => match bad {
            Bad::WriteUnknownKey
            | Bad::WriteImmediateUnknownKey
            | Bad::WriteOutOfBounds
            | Bad::WriteReadOnly => CompletionOpcode::Write,
            Bad::ReadUnknownKey | Bad::ReadOutOfBounds | Bad::ReadIntoReadOnly => CompletionOpcode::Read,
            Bad::AtomicWithoutRight | Bad::AtomicUnaligned => CompletionOpcode::FetchAdd,
            Bad::SendInvalidateUnknownKey | Bad::LocalUnknownKey | Bad::LocalOutOfBounds => {
                CompletionOpcode::Send
            }
            Bad::LocalInvalidateForbidden => CompletionOpcode::LocalInvalidate,
        },
    }
}
