//! What the two halves of a queue pair share.

use crate::completion_queue::CompletionQueue;
use crate::device::Domain;
use crate::endpoint::Endpoint;
use crate::memory::{Lease, MemoryError};
use crate::outstanding::WorkQueueId;
use nonic_core::{QpState, Qpn};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// Where the answers of atomics land: 8 bytes each, used again and again.
    pub(super) words: Mutex<Vec<Lease>>,
    /// Keeps the shared receive queue alive.
    pub(super) srq: Option<Arc<nonic_core::ReceiveQueue>>,
}

/// Answers of atomics that are made room for at once.
const WORDS: usize = 32;

impl QpHandle {
    /// A buffer for the answer of an atomic. Give it back by [`QpHandle::give_back_word`].
    pub(super) fn word(&self) -> Result<Lease, MemoryError> {
        if let Some(word) = self.lock_words().pop() {
            return Ok(word);
        }
        let mut rest = self.domain.lease(8 * WORDS)?;
        let mut words = self.lock_words();
        for _ in 1..WORDS {
            let (word, left) = rest.split_at(8);
            words.push(word);
            rest = left;
        }
        Ok(rest)
    }

    pub(super) fn give_back_word(&self, word: Lease) {
        self.lock_words().push(word);
    }

    fn lock_words(&self) -> MutexGuard<'_, Vec<Lease>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
