//! Shared receive queues (SRQ): receives that several queue pairs draw from.

use crate::completion_queue::CompletionQueue;
use crate::device::Domain;
use crate::memory::Buffers;
use crate::outstanding::WorkQueueId;
use crate::posting::post_receive;
use crate::refused::Refused;
use std::sync::Arc;

/// A receive queue several queue pairs draw from.
///
/// ```
/// use nonic::Rc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// let queue = device.completion_queue(64)?;
/// let shared = domain.shared_receive_queue(&queue, 64);
/// for id in 0..64 {
///     shared.recv(id, domain.lease(256)?)?;
/// }
/// // Any number of queue pairs draw from it.
/// let builder = domain.queue_pair_builder::<Rc>(&queue).shared_receives(&shared);
/// let pair = builder.build()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    pub(crate) domain: Domain,
    pub(crate) queue: CompletionQueue,
    pub(crate) srq: Arc<nonic_core::ReceiveQueue>,
    /// Its requests belong to no queue pair yet, and end with the completion queue.
    work_queue: WorkQueueId,
}

impl Domain {
    /// A receive queue for several queue pairs. All of them must complete receives to `queue`, which returns
    /// the buffers.
    #[doc(alias = "ibv_create_srq")]
    pub fn shared_receive_queue(&self, queue: &CompletionQueue, capacity: usize) -> SharedReceiveQueue {
        let max_sge = self.device.engine.config().max_sge as usize;
        let srq = self.device.engine.create_srq(self.pd, capacity, max_sge);
        SharedReceiveQueue::new(self, queue, srq, capacity)
    }
}

impl SharedReceiveQueue {
    pub(crate) fn new(
        domain: &Domain,
        queue: &CompletionQueue,
        srq: Arc<nonic_core::ReceiveQueue>,
        capacity: usize,
    ) -> Self {
        SharedReceiveQueue {
            domain: domain.clone(),
            queue: queue.clone(),
            srq,
            work_queue: queue.open_work_queue(None, u32::try_from(capacity).unwrap_or(u32::MAX)),
        }
    }

    /// Posts a receive; refused, it gives the buffers back.
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn recv(&self, id: u64, buffers: impl Into<Buffers>) -> Result<(), Refused> {
        post_receive(&self.queue, self.work_queue, id, buffers.into(), |request| {
            self.srq.post(request).map_err(Into::into)
        })
        .inspect(|()| self.domain.device.engine.receives_posted())
    }

    /// Asks for one [`Event::SrqLimit`](crate::Event::SrqLimit) when fewer than `limit` receives wait.
    #[doc(alias = "ibv_modify_srq")]
    pub fn set_limit(&self, limit: usize) {
        self.srq.set_limit(limit);
    }

    /// How many receives wait.
    pub fn len(&self) -> usize {
        self.srq.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.srq.is_empty()
    }
}
