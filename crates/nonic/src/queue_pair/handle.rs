//! What the two halves of a queue pair share.

use crate::completion::CompletionQueue;
use crate::device::Domain;
use crate::endpoint::Endpoint;
use crate::outstanding::WorkQueueId;
use nonic_core::{QpState, Qpn};
use std::fmt;
use std::sync::Arc;

/// The queue pair itself, shared by its halves; destroyed with the last.
pub(super) struct QpHandle {
    pub(super) domain: Domain,
    pub(super) qpn: Qpn,
    pub(super) send_queue: CompletionQueue,
    pub(super) send_work_queue: WorkQueueId,
    pub(super) recv_queue: CompletionQueue,
    pub(super) receive_work_queue: WorkQueueId,
    pub(super) endpoint: Endpoint,
    pub(super) gid_index: u8,
    /// Keeps the shared receive queue alive.
    pub(super) srq: Option<Arc<nonic_core::ReceiveQueue>>,
}

impl QpHandle {
    pub(super) fn state(&self) -> QpState {
        // It exists as long as this handle.
        self.domain.device.engine.qp_state(self.qpn).unwrap_or_default()
    }
}

impl Drop for QpHandle {
    fn drop(&mut self) {
        self.domain.device.engine.destroy_qp(self.qpn);
        // The NIC is done with the buffers of its requests; nobody will ask for their completions.
        self.send_queue.close_work_queue(self.send_work_queue);
        self.recv_queue.close_work_queue(self.receive_work_queue);
    }
}

impl fmt::Debug for QpHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}
