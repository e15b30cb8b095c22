//! The futures that wait for requests of one queue.

use crate::ticket::Ticket;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Wake;

/// The doorbell wakes all of them: any one might be dropped or not be polled, and
/// then the others would sleep for ever. The first that is polled takes out what there is.
#[derive(Debug, Default)]
pub(super) struct Futures {
    waiting: Mutex<Vec<Weak<Ticket>>>,
}

impl Futures {
    /// Has the ticket's task woken at the next ring. Whether it is the first, so that the doorbell needs a subscription.
    pub(super) fn join(&self, ticket: &Arc<Ticket>) -> bool {
        let mut waiting = self.lock();
        if ticket.is_new_at_the_doorbell() {
            waiting.push(Arc::downgrade(ticket));
        }
        waiting.len() == 1
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Ticket>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Futures {
    fn wake(self: Arc<Self>) {
        let waiting = std::mem::take(&mut *self.lock());
        waiting
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|ticket| ticket.rouse());
    }
}
