//! Checks events: who waits for completions is woken as it asked to be, and the limit of a shared receive queue is told.

use super::Check;
use super::model::Model;
use nonic_core::{Arm, Event};

/// A program that waits for the completions of a queue, while it empties the queue.
pub(crate) struct Waiter {
    arming: Option<Arm>,
    wakes: bool,
    certain: bool,
}

impl Waiter {
    /// One that armed its queue like this, if it did.
    pub(crate) fn new(arming: Option<Arm>) -> Self {
        Waiter {
            arming,
            wakes: false,
            certain: true,
        }
    }

    /// A completion was in the queue; whether it is solicited, or failed, if that is certain.
    pub(crate) fn saw(&mut self, solicited: Option<bool>) {
        match (self.arming, solicited) {
            (Some(Arm::Next), _) | (Some(Arm::Solicited), Some(true)) => self.wakes = true,
            (Some(Arm::Solicited), None) => self.certain = false,
            _ => {}
        }
    }

    /// The queue is empty, and this many events came: one if there was something to wake for, and none otherwise.
    pub(crate) fn check(&self, woken: usize) -> Check {
        let right = if self.certain || self.wakes {
            woken == usize::from(self.wakes)
        } else {
            woken <= 1
        };
        match right {
            true => Ok(()),
            false => Err(format!(
                "{woken} notifications of a queue armed {:?}, should be woken: {}",
                self.arming, self.wakes
            )),
        }
    }
}

impl Model {
    /// A program asks to be told when few receives are left, if it was told before or never asked.
    pub(crate) fn arm_limit(&mut self, number: usize) {
        let srq = &mut self.srqs[number];
        if let (false, Some(queue)) = (srq.armed || srq.limit == 0, &srq.queue) {
            queue.set_limit(srq.limit);
            srq.armed = true;
        }
    }

    /// The limit event comes when, and only when, fewer receives wait than the armed limit. `events` are those since the
    /// last time.
    pub(crate) fn check_limit(&mut self, number: usize, events: &[Event]) -> Check {
        let srq = &mut self.srqs[number];
        let Some(queue) = &srq.queue else {
            return Ok(());
        };
        let id = queue.id();
        let fired = events
            .iter()
            .filter(|event| matches!(event, Event::SrqLimit(of) if *of == id))
            .count();
        let disarmed_itself = srq.armed && queue.limit() == 0;
        if fired != usize::from(disarmed_itself) {
            return Err(format!(
                "SRQ {number}: {fired} limit events, armed {}, limit {}",
                srq.armed,
                queue.limit()
            ));
        }
        let taken = srq.next - queue.len();
        let some_taken = taken > std::mem::replace(&mut srq.taken, taken);
        if some_taken && queue.len() < queue.limit() {
            return Err(format!(
                "SRQ {number}: {} receives are left, and no event",
                queue.len()
            ));
        }
        srq.armed &= !disarmed_itself;
        Ok(())
    }
}
