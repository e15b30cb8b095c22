//! Why a request may end as it did on iWARP, and what must have been written when it succeeds.
//!
//! What must hold at both ends is checked in [`crate::program::completions`].

use super::post::complaint;
use super::{Check, Streams};
use crate::program::request::{Bad, Expect, Kind, Writing};
use nonic_core::Status;
use nonic_core::iwarp::{Rtr, StreamEnd};

impl Streams {
    /// Whether the run so far permits this status for this request.
    pub(super) fn permits(&self, number: usize, index: usize, status: Status) -> bool {
        let side = &self.sides[number];
        let op = &self.model.programs[number].ops[index];
        let blind = self.is_blind(number);
        let export = match op.kind {
            Kind::SendInvalidate { export } | Kind::LocalInvalidate { export } => Some(export),
            kind => self.model.export_used(kind),
        };
        let revoked = export.is_some_and(|export| self.model.exports[export].revoked_ns.is_some());
        match status {
            Status::Success => self.model.may_succeed(number, index),
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
            Status::RemoteAccess if revoked => side.ended.is_some(),
            Status::LocalQpOperation => matches!(op.kind, Kind::LocalInvalidate { .. }) && revoked,
            _ => blind || op.expect == Expect::Refused(status) || op.expect == Expect::Local(status),
        }
    }

    /// Whether a READ or atomic went out before the stream ended, by the number of those before it.
    fn was_written(&self, number: usize, index: usize) -> bool {
        let until = &self.model.programs[number].ops[..=index];
        let needed = until.iter().filter(|op| op.kind.is_fetch()).count() as u64;
        let params = self.sides[number].params;
        let ready = params.is_some_and(|params| params.rtr == Some(Rtr::Read) && number % 2 == 0);
        let observer = self.observers[number].as_ref();
        observer.is_some_and(|observer| observer.requests >= needed + u64::from(ready))
    }

    /// TCP has taken the last byte of whatever completes.
    pub(super) fn check_written(&self, number: usize, index: usize) -> Check {
        let Some(observer) = &self.observers[number] else {
            return Err("succeeded without a stream".into());
        };
        let until = &self.model.programs[number].ops[..=index];
        let messages = until.iter().filter(|op| op.kind.is_message()).count();
        let writes = until.iter().filter(|op| match op.kind {
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
}
