//! What a world that carries requests adds to the checkers: the reasons that only its wire has.

use super::Check;
use super::model::{Model, Taken};
use nonic_core::{Completion, Status};

/// A world of hosts that carries what the programs of its [`Model`] post: packets over links, or bytes over pipes.
///
/// The checkers ask it why a request or receive may end as it did; what must hold then, they know themselves.
pub(crate) trait Carrier {
    fn model(&self) -> &Model;

    fn model_mut(&mut self) -> &mut Model;

    /// Whether the run so far permits this status for a request.
    fn check_status(&self, number: usize, index: usize, status: Status) -> Check;

    /// Whether what the wire shows agrees with the success of a request.
    fn check_carried(&self, number: usize, index: usize) -> Check;

    /// A request failed, as it may; whether none did before it.
    fn request_failed(&mut self, number: usize, index: usize, first: bool);

    /// Whether the run so far permits a receive to fail with this status; `short` if it is too short on purpose.
    fn check_failed_receive(&mut self, number: usize, status: Status, short: bool) -> Check;

    /// Checks a message that arrived; returns whether it wakes a waiter for solicited ones, if that is certain.
    fn take_message(
        &mut self,
        number: usize,
        completion: &Completion,
        receive: &Taken,
    ) -> Result<Option<bool>, String>;
}
