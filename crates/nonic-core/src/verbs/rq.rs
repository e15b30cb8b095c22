//! Receive queues, private or shared.
//!
//! One type serves both: a queue pair's own receive queue, and an SRQ that many queue pairs draw from. It
//! has its own lock, so that posting to an SRQ need not stop the NIC.

use crate::verbs::memory::{KeyTable, PdId, SgFault, SgList};
use crate::verbs::work::RecvRequest;
use nonic_wire::Qpn;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A shared receive queue's number within its device.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SrqId(pub u32);

/// Why a receive was not taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecvRefused {
    /// As many receives as the queue holds are waiting.
    #[error("the receive queue is full; wait for completions or create it deeper")]
    Full,
    /// More scatter elements than the queue was created for.
    #[error("more scatter elements than the receive queue was created for")]
    TooManySges,
}

/// A posted receive the NIC is about to fill or is filling.
#[derive(Debug)]
pub(crate) struct RecvWqe {
    pub(crate) wr_id: u64,
    pub(crate) target: SgList,
}

impl RecvWqe {
    /// Copies `data` to `offset` in the receive's buffers, or nothing of it.
    #[inline]
    pub(crate) fn place(&self, offset: u32, data: &[u8]) -> Result<(), SgFault> {
        if offset == 0 {
            return self.target.fill(data);
        }
        if u64::from(offset) + data.len() as u64 > self.target.length() {
            return Err(SgFault::Length);
        }
        self.target.scatter(u64::from(offset), data)
    }
}

/// A receive queue.
#[derive(Debug)]
pub struct ReceiveQueue {
    srq: Option<SrqId>,
    pd: PdId,
    max_sge: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    entries: VecDeque<RecvWqe>,
    capacity: usize,
    /// Fewer entries than this raise the limit event, once.
    limit: usize,
}

impl ReceiveQueue {
    /// A queue pair's own queue.
    pub(crate) fn private(pd: PdId, capacity: usize, max_sge: usize) -> Self {
        Self::build(None, pd, capacity, max_sge)
    }

    /// A queue for several queue pairs.
    pub fn shared(id: SrqId, pd: PdId, capacity: usize, max_sge: usize) -> Self {
        Self::build(Some(id), pd, capacity, max_sge)
    }

    fn build(srq: Option<SrqId>, pd: PdId, capacity: usize, max_sge: usize) -> Self {
        let inner = Inner {
            entries: VecDeque::new(),
            capacity,
            limit: 0,
        };
        ReceiveQueue {
            srq,
            pd,
            max_sge,
            inner: Mutex::new(inner),
        }
    }

    /// Its number, if it is shared.
    pub fn srq_id(&self) -> Option<SrqId> {
        self.srq
    }

    /// The protection domain its buffers must belong to.
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// How many receives fit.
    pub fn capacity(&self) -> usize {
        self.lock().capacity
    }

    /// Scatter elements a receive may have.
    pub fn max_sge(&self) -> usize {
        self.max_sge
    }

    /// How many receives wait.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts a receive.
    pub fn post(&self, request: &RecvRequest<'_>, keys: &KeyTable) -> Result<(), RecvRefused> {
        self.post_as(request, keys, Qpn::new(0))
    }

    pub(crate) fn post_as(
        &self,
        request: &RecvRequest<'_>,
        keys: &KeyTable,
        qpn: Qpn,
    ) -> Result<(), RecvRefused> {
        if request.sges.len() > self.max_sge {
            return Err(RecvRefused::TooManySges);
        }
        let target = SgList::resolve(request.sges, keys, self.pd, qpn);
        let mut inner = self.lock();
        if inner.entries.len() >= inner.capacity {
            return Err(RecvRefused::Full);
        }
        if inner.entries.capacity() == 0 {
            // Programs with very many queue pairs have one receive posted to most: the next ones make room for more.
            inner.entries.reserve_exact(1);
        }
        inner.entries.push_back(RecvWqe {
            wr_id: request.wr_id,
            target,
        });
        Ok(())
    }

    /// Asks for one event when fewer than `limit` receives wait; zero disarms. Returns the old limit.
    pub fn set_limit(&self, limit: usize) -> usize {
        std::mem::replace(&mut self.lock().limit, limit)
    }

    /// The armed limit, zero if disarmed.
    pub fn limit(&self) -> usize {
        self.lock().limit
    }

    /// Changes how many receives fit. Refuses (`false`) fewer than are waiting.
    pub fn resize(&self, capacity: usize) -> bool {
        let mut inner = self.lock();
        let fits = capacity >= inner.entries.len();
        if fits {
            inner.capacity = capacity;
        }
        fits
    }

    /// Takes the oldest receive; the flag tells that the limit event is due.
    #[inline]
    pub(crate) fn take(&self) -> Option<(RecvWqe, bool)> {
        let mut inner = self.lock();
        let wqe = inner.entries.pop_front()?;
        let below_limit = inner.entries.len() < inner.limit;
        if below_limit {
            inner.limit = 0;
        }
        Some((wqe, below_limit))
    }

    /// Empties the queue (a queue pair's reset).
    pub(crate) fn clear(&self) {
        self.lock().entries.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
