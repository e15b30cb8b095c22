//! RoCE as a carrier: packets over links, which get lost, doubled, damaged and overtaken.

use super::{Check, World};
use crate::program::carrier::Carrier;
use crate::program::model::{Model, Taken};
use nonic_core::{Completion, Status};

impl Carrier for World {
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
                "ended with {status:?}, which nothing explains ({:?})",
                self.model.programs[number].ops[index].expect
            )),
        }
    }

    /// Nothing: a packet that was sent need not have arrived, and the acknowledgement is the peer's word.
    fn check_carried(&self, _: usize, _: usize) -> Check {
        Ok(())
    }

    fn request_failed(&mut self, number: usize, index: usize, first: bool) {
        self.after_failure(number, index, first);
    }

    fn check_failed_receive(&mut self, number: usize, status: Status, short: bool) -> Check {
        self.receive_failed(number, status, short)
    }

    fn take_message(
        &mut self,
        number: usize,
        completion: &Completion,
        receive: &Taken,
    ) -> Result<Option<bool>, String> {
        self.arrived(number, completion, receive)
    }
}
