//! Requests that must fail: wrong keys, wrong bounds, missing rights.

use super::ops::Planner;
use crate::program::content::{Pieces, draw_content};
use crate::program::request::{Bad, Expect, Kind, Source};
use nonic_core::{SendFlags, Service, Status};

impl Planner<'_> {
    /// A request that must fail and touch nothing.
    pub(super) fn bad(&mut self) {
        let everywhere = [
            Bad::LocalUnknownKey,
            Bad::LocalOutOfBounds,
            Bad::LocalInvalidateForbidden,
            Bad::WriteUnknownKey,
            Bad::WriteOutOfBounds,
            Bad::WriteReadOnly,
            Bad::WriteImmediateUnknownKey,
        ];
        let reliable_only = [
            Bad::ReadUnknownKey,
            Bad::ReadOutOfBounds,
            Bad::ReadIntoReadOnly,
            Bad::AtomicWithoutRight,
            Bad::AtomicUnaligned,
            Bad::SendInvalidateUnknownKey,
        ];
        let bad = if self.service == Service::Rc && self.prng.percent(50) {
            self.prng.pick(&reliable_only)
        } else {
            self.prng.pick(&everywhere)
        };
        let expect = expectation(bad, self.service);
        let length = match bad {
            Bad::AtomicWithoutRight | Bad::AtomicUnaligned => 8,
            Bad::LocalInvalidateForbidden => 0,
            _ => self.prng.range(1, 3 * u64::from(self.mtu)) as u32,
        };
        let length = if bad == Bad::SendInvalidateUnknownKey {
            length.min(200)
        } else {
            length
        };
        let fetches = matches!(
            bad,
            Bad::ReadUnknownKey | Bad::ReadOutOfBounds | Bad::AtomicWithoutRight | Bad::AtomicUnaligned
        );
        let source = if fetches {
            let arena = self.plan.model.programs[self.qp].arena;
            let offset = self.plan.model.arenas[arena].allocate(length, self.prng);
            Source::Target(Pieces::one(offset, length), Pieces::default())
        } else {
            Source::Pool(draw_content(length, 1, self.prng))
        };
        self.push(Kind::Bad(bad), length, source, SendFlags::empty(), expect);
    }
}

/// How such a request ends.
fn expectation(bad: Bad, service: Service) -> Expect {
    let remote = |status| {
        if service == Service::Rc {
            Expect::Refused(status)
        } else {
            // The sender is not told: the message is dropped on arrival.
            Expect::Success
        }
    };
    match bad {
        Bad::WriteUnknownKey
        | Bad::WriteImmediateUnknownKey
        | Bad::WriteOutOfBounds
        | Bad::WriteReadOnly
        | Bad::ReadUnknownKey
        | Bad::ReadOutOfBounds
        | Bad::AtomicWithoutRight
        | Bad::SendInvalidateUnknownKey => remote(Status::RemoteAccess),
        Bad::AtomicUnaligned => remote(Status::RemoteInvalidRequest),
        Bad::LocalUnknownKey | Bad::LocalOutOfBounds | Bad::ReadIntoReadOnly => {
            Expect::Local(Status::LocalProtection)
        }
        Bad::LocalInvalidateForbidden => Expect::Local(Status::LocalQpOperation),
    }
}
