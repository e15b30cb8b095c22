//! Posting a receive, as all receive queues do it, and the error that gives the buffers of a refused request back.

use crate::completion_queue::CompletionQueue;
use crate::memory::Buffers;
use crate::outstanding::WorkQueueId;
use nonic_core::{PostError, RecvRefused, RecvRequest};
use std::fmt;

/// A request that was not taken, and its buffers back.
///
/// ```
/// use nonic::Ud;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// let queue = device.completion_queue(16)?;
/// let pair = domain.queue_pair::<Ud>(&queue)?.activate()?;
/// # let mut pair = pair;
/// # let endpoint = pair.endpoint();
/// let refused = pair.sq.send_to(1, domain.lease(1 << 20)?, &endpoint).expect_err("longer than a packet");
/// println!("{refused}");
/// let lease = refused.buffers.into_iter().next();
/// # Ok(()) }
/// ```
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// Why.
    #[source]
    pub error: PostError,
    /// What it was posted with.
    pub buffers: Buffers,
}

/// As a sentence: it is what a program prints that ends with it.
impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.error)
    }
}

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
