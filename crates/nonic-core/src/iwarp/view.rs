//! Snapshots of an iWARP queue pair for tools that inspect a running process.

use super::queue_pair::IwarpQueuePair;
use crate::queue_pair::QueuePairView;

impl IwarpQueuePair {
    /// What it is at.
    pub(crate) fn view(&self) -> QueuePairView {
        QueuePairView {
            iwarp: true,
            ..QueuePairView::of_common(&self.common, self.send_queue_len())
        }
    }
}
