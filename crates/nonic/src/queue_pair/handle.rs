//! The handle that the two halves of a queue pair share.

use crate::completion_queue::CompletionQueue;
use crate::device::Domain;
use crate::endpoint::Endpoint;
use crate::keepalive::Probed;
use crate::memory::{Buffers, Lease, MemoryError};
use crate::outstanding::{Work, WorkQueueId};
use crate::request::Pending;
use crate::span::Span;
use nonic_core::{ModifyError, QpAttributes, QpState, Qpn, RemoteAddress, SendFlags, SendOp};
use nonic_engine::netdev::Wire;
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

    /// Posts an awaited request, now or when there is room.
    pub(super) fn submit(&self, buffers: Buffers, work: Work) -> Pending {
        let (queue, work_queue) = match work {
            Work::Send { .. } => (&self.send_queue, self.send_work_queue),
            Work::Receive => (&self.recv_queue, self.receive_work_queue),
        };
        let bytes = || buffers.bytes() + work.inline_bytes();
        let span = Span::of_request(self.qpn, work.opcode(), bytes);
        Pending::submit(queue, work_queue, buffers, work, span)
    }

    /// Brings it to the error state: what is posted completes as flushed.
    pub(super) fn fail(&self) -> Result<(), ModifyError> {
        let failed = QpAttributes {
            state: Some(QpState::Error),
            ..QpAttributes::default()
        };
        self.domain.device.engine.modify_qp(self.qpn, &failed)
    }

    pub(super) fn state(&self) -> QpState {
        // It exists as long as this handle.
        self.domain.device.engine.qp_state(self.qpn).unwrap_or_default()
    }
}

impl Probed for QpHandle {
    fn probe(&self) -> Pending {
        let nothing = RemoteAddress { va: 0, rkey: 0 };
        let op = match self.domain.device.netdev().wire {
            Wire::Roce => SendOp::Write(nothing),
            Wire::Iwarp => SendOp::Read(nothing),
        };
        let work = Work::Send {
            op,
            flags: SendFlags::empty(),
            destination: None,
            inline: None,
        };
        self.submit(Buffers::default(), work)
    }

    fn give_up(&self) {
        // It may be in the error state already.
        let _ = self.fail();
    }
}

impl Drop for QpHandle {
    fn drop(&mut self) {
        self.domain.device.engine.destroy_qp(self.qpn);
        // The NIC is done with the buffers of its requests, and their completions have no taker any more.
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
