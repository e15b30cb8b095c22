//! Posting, as all receive queues have it in common.

use crate::completion_queue::CompletionQueue;
use crate::memory::Buffers;
use crate::outstanding::WorkQueueId;
use crate::refused::Refused;
use nonic_core::{PostError, RecvRefused, RecvRequest};

/// Keeps the buffers where the completion will find them, and posts.
pub(crate) fn post_receive(
    queue: &CompletionQueue,
    work_queue: WorkQueueId,
    id: u64,
    buffers: Buffers,
    post: impl FnOnce(&RecvRequest<'_>) -> Result<(), PostError>,
) -> Result<(), Refused> {
    let sges = buffers.sges();
    let wr_id = queue.admit(id, work_queue, buffers).map_err(|buffers| Refused {
        error: RecvRefused::Full.into(),
        buffers,
    })?;
    match post(&RecvRequest { wr_id, sges: &sges }) {
        Ok(()) => Ok(()),
        Err(error) => Err(Refused {
            error,
            buffers: queue.withdraw(wr_id),
        }),
    }
}
