//! Admission: which requests complete to the queue, and the buffers that they lend to the NIC.

use super::CompletionQueue;
use crate::cm_dispatcher::EventChannel;
use crate::memory::Buffers;
use crate::outstanding::{Outstanding, Turn, WorkQueueId};
use crate::ticket::Outcome;
use nonic_core::Qpn;
use std::sync::{Arc, MutexGuard, PoisonError};

impl CompletionQueue {
    /// A place for the requests of a new send or receive queue, and room for their completions.
    pub(crate) fn open_work_queue(&self, qpn: Option<Qpn>, capacity: u32) -> WorkQueueId {
        let mut outstanding = self.lock();
        let work_queue = outstanding.open(qpn, capacity);
        let room = outstanding.capacity().max(self.shared.asked_for);
        // Never fewer than are waiting: those were counted in.
        self.shared.core.resize(room.max(self.shared.core.capacity()));
        work_queue
    }

    /// A work queue's queue pair belongs to a connection.
    pub(crate) fn ends_with(&self, work_queue: WorkQueueId, connection: &Arc<EventChannel>) {
        self.lock().ends_with(work_queue, connection);
    }

    /// A queue pair is gone, and with it its completions: give up its buffers.
    pub(crate) fn close_work_queue(&self, work_queue: WorkQueueId) {
        let given_up = self.lock().close(work_queue);
        for (buffers, ticket) in given_up {
            if let Some(ticket) = ticket {
                ticket.deliver(Outcome::Closed(buffers));
            }
        }
        self.shared.doorbell.ring();
    }

    /// Keeps a request's buffers; the number to post it under, or the buffers back if there is no room for its completion.
    pub(crate) fn admit(&self, id: u64, work_queue: WorkQueueId, buffers: Buffers) -> Result<u64, Buffers> {
        self.lock_in_turn(work_queue).admit(work_queue, id, buffers)
    }

    /// Keeps a request of a batch that is yet to be posted.
    pub(crate) fn admit_to_batch(&self, id: u64, work_queue: WorkQueueId, buffers: Buffers) -> u64 {
        self.lock().admit_to_batch(work_queue, id, buffers)
    }

    /// How many of a batch are too many.
    pub(crate) fn excess(&self, work_queue: WorkQueueId, batch: usize) -> usize {
        self.lock_in_turn(work_queue).excess(work_queue, batch)
    }

    /// A request was refused: its buffers back. What waited for the room it took is posted.
    pub(crate) fn withdraw(&self, wr_id: u64) -> Buffers {
        // In a statement of its own: posting must not find it locked.
        let taken = self.lock().take(wr_id);
        taken.map_or_else(Buffers::default, |taken| {
            self.room_was_made(taken.work_queue, taken.others_wait, taken.drainers);
            taken.buffers
        })
    }

    /// Locked once everything was posted of the backlog that there is room for. The NIC gets requests in the order in
    /// which they were made, and a work queue is not full because another thread is just posting to it: that may be
    /// the one that probes the connection, which the program knows nothing of.
    fn lock_in_turn(&self, work_queue: WorkQueueId) -> MutexGuard<'_, Outstanding> {
        let mut outstanding = self.lock();
        loop {
            outstanding = match outstanding.turn(work_queue) {
                Turn::Own => return outstanding,
                Turn::Due => {
                    drop(outstanding);
                    self.post_backlog(work_queue);
                    self.lock()
                }
                Turn::Posting => self
                    .shared
                    .posted
                    .wait(outstanding)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Outstanding> {
        self.shared
            .outstanding
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
