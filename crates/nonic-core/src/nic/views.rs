//! Snapshots of a NIC's queue pairs for tools that inspect a running process, a portion at a time.
//!
//! While one thread has the NIC, all others wait, and a NIC may have a million queue pairs. So no call shows all of
//! them; a change between two calls is seen in part or not at all.

use super::Nic;
use crate::queue_pair::QueuePairView;

impl Nic {
    /// Shows the queue pairs in the `slots` slots from `from` on. Returns where to go on, `None` at the end: a slot may
    /// be empty, so fewer than `slots` queue pairs need not be the end.
    pub fn view_queue_pairs(
        &self,
        from: usize,
        slots: usize,
        show: &mut dyn FnMut(QueuePairView),
    ) -> Option<usize> {
        let all = self.qps.slots();
        let end = from.saturating_add(slots.max(1)).min(all);
        for slot in from..end {
            if let Some(qp) = self.qps.get(slot) {
                show(qp.view(&self.resources.peers));
            }
        }
        (end < all).then_some(end)
    }

    /// How many queue pairs there are.
    pub fn queue_pair_count(&self) -> usize {
        self.qps.len()
    }
}
