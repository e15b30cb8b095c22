//! iWARP as a carrier: bytes over pipes, which end, stall and flip a bit, but lose and reorder nothing.

use super::{Check, Streams};
use crate::program::carrier::Carrier;
use crate::program::model::{Model, Taken};
use nonic_core::{Completion, Status};

impl Carrier for Streams {
    fn model(&self) -> &Model {
        &self.model
    }

    fn model_mut(&mut self) -> &mut Model {
        &mut self.model
    }

    fn check_status(&self, number: usize, index: usize, status: Status) -> Check {
        match self.permits(number, index, status) {
            true => Ok(()),
            false => Err(format!(
                "ended with {status:?}, which nothing explains ({:?}, {:?})",
                self.model.programs[number].ops[index].expect, self.sides[number].ended
            )),
        }
    }

    fn check_carried(&self, number: usize, index: usize) -> Check {
        self.check_written(number, index)
    }

    /// Nothing: the stream has ended, and says why itself.
    fn request_failed(&mut self, _: usize, _: usize, _: bool) {}

    fn check_failed_receive(&mut self, number: usize, status: Status, short: bool) -> Check {
        self.check_receive_failed(number, status, short)
    }

    fn take_message(
        &mut self,
        number: usize,
        completion: &Completion,
        receive: &Taken,
    ) -> Result<Option<bool>, String> {
        self.check_established(number)?;
        self.model.take_next_message(number, completion, receive)
    }
}
