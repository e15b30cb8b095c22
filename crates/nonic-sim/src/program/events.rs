//! Checks events that do not belong to one completion: the limit of a shared receive queue.

use super::Check;
use super::model::Model;
use nonic_core::Event;

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
        let id = queue.srq_id();
        let fired = events
            .iter()
            .filter(|event| matches!(event, Event::SrqLimit(of) if Some(*of) == id))
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
