//! Completion queues and shared receive queues, and the events that come beside completions.

use super::Device;
use crate::netdev::Wire;
use crate::notify::{Channel, Notify};
use nonic_core::{Arm, Completion, CompletionQueue, CqId, CqOverflow, Event, PdId, ReceiveQueue, SrqId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Device {
    /// Creates a completion queue. With a listener, an armed queue's notification goes there.
    pub fn create_cq(&self, capacity: usize, listener: Option<Arc<dyn Notify>>) -> Arc<CompletionQueue> {
        let id = CqId(self.inner.next_id.fetch_add(1, Ordering::Relaxed));
        if let Some(listener) = listener {
            self.inner.listeners().insert(id, listener);
        }
        let faults = self.inner.settings.faults.as_ref();
        let most = faults.and_then(|plan| plan.completions).unwrap_or(usize::MAX);
        let queue = Arc::new(CompletionQueue::new(id, capacity.min(most)));
        self.inner.completion_queues.add(&queue);
        queue
    }

    /// Ends a completion queue's notifications.
    pub fn forget_cq(&self, cq: CqId) {
        self.inner.listeners().remove(&cq);
    }

    /// Creates a shared receive queue.
    pub fn create_srq(&self, pd: PdId, capacity: usize, max_sge: usize) -> Arc<ReceiveQueue> {
        let id = SrqId(self.inner.next_id.fetch_add(1, Ordering::Relaxed));
        Arc::new(ReceiveQueue::shared(id, pd, capacity, max_sge))
    }

    /// Receives were posted to a shared queue: connections of iWARP may wait for them.
    #[inline]
    pub fn receives_posted(&self) {
        if self.inner.netdev.wire == Wire::Iwarp {
            let nic = &mut self.inner.home().nic;
            if nic.has_blocked_streams() {
                nic.wake_blocked_streams();
            }
        }
    }

    /// Takes completions; drives the NIC if there are none.
    pub fn poll(
        &self,
        cq: &CompletionQueue,
        max: usize,
        mut sink: impl FnMut(Completion),
    ) -> Result<usize, CqOverflow> {
        let taken = cq.poll(max, &mut sink)?;
        if taken > 0 {
            // The program polls again soon, and drives the NIC when it finds nothing.
            self.inner.drivers.iter().for_each(|driver| driver.found());
            return Ok(taken);
        }
        self.progress();
        cq.poll(max, sink)
    }

    /// Asks for a notification and makes sure that the background thread is awake to give it. Poll once more afterwards.
    pub fn arm(&self, cq: &CompletionQueue, arm: Arm) {
        cq.arm(arm);
        self.inner.drivers.iter().for_each(|driver| driver.resume());
    }

    /// Drives the NIC once. Whether there was work.
    pub fn progress(&self) -> bool {
        // Every one of them, though the first had work.
        self.inner
            .drivers
            .iter()
            .fold(false, |worked, driver| driver.inline() | worked)
    }

    /// Asynchronous events: of queue pairs, SRQs and completion queues.
    pub fn events(&self) -> &Arc<Channel<Event>> {
        &self.inner.common.events
    }
}
