//! Why a receive may end as it did on iWARP.
//!
//! What must hold of a message that arrived is checked in [`crate::program::arrivals`].

use super::{Check, Streams};
use nonic_core::Status;
use nonic_core::iwarp::StreamEnd;
use nonic_wire::iwarp::TerminateCode;

impl Streams {
    /// Whether a receive may fail like this.
    pub(super) fn check_receive_failed(&self, number: usize, status: Status, short: bool) -> Check {
        let side = &self.sides[number];
        let invalidates = || {
            let refused = [
                TerminateCode::RDMAP_INVALID_STAG,
                TerminateCode::RDMAP_PROTECTION_CANNOT_INVALIDATE,
            ];
            matches!(side.ended, Some((StreamEnd::Terminated(code), _)) if refused.contains(&code))
        };
        let explained = match status {
            Status::Flushed => side.ended.is_some() || side.leaving,
            Status::LocalLength => short && side.ended.is_some(),
            Status::RemoteInvalidRequest => invalidates(),
            _ => false,
        };
        match explained || self.is_blind(number) {
            true => Ok(()),
            false => Err("nothing explains this status".into()),
        }
    }

    /// A responder that was promised a first message tells its program of the connection before it gives it messages.
    pub(super) fn check_established(&self, number: usize) -> Check {
        let side = &self.sides[number];
        let promised = side.params.is_some_and(|params| params.rtr.is_some());
        match number % 2 == 1 && promised && !side.established {
            true => Err("a message, and the program does not know of a connection".into()),
            false => Ok(()),
        }
    }
}
