//! Receive queues, private or shared.
//!
//! A queue pair has one of its own, or draws from an SRQ together with others ([`Receives`]). An SRQ has a lock, so that posting to it need not
//! stop the NIC.

use crate::verbs::memory::{Keys, PdId, SgFault, SgList};
use crate::verbs::work::RecvRequest;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    pub(crate) fn place(&self, keys: &Keys, offset: u32, data: &[u8]) -> Result<(), SgFault> {
        if offset == 0 {
            return self.target.fill(keys, data);
        }
        if u64::from(offset) + data.len() as u64 > self.target.length() {
            return Err(SgFault::Length);
        }
        self.target.scatter(keys, u64::from(offset), data)
    }
}

/// Receives that wait, the oldest first.
#[derive(Debug)]
pub(crate) struct Ring {
    entries: VecDeque<RecvWqe>,
    capacity: usize,
    /// Fewer entries than this raise the limit event, once.
    limit: usize,
}

impl Ring {
    fn new(capacity: usize) -> Self {
        Ring {
            entries: VecDeque::new(),
            capacity,
            limit: 0,
        }
    }

    /// Adds a receive of a domain, with at most so many elements.
    #[inline]
    fn post(&mut self, request: &RecvRequest<'_>, pd: PdId, max_sge: usize) -> Result<(), RecvRefused> {
        if request.sges.len() > max_sge {
            return Err(RecvRefused::TooManySges);
        }
        if self.entries.len() >= self.capacity {
            return Err(RecvRefused::Full);
        }
        if self.entries.capacity() == 0 {
            // Programs with very many queue pairs have one receive posted to most: the next ones make room for more.
            self.entries.reserve_exact(1);
        }
        self.entries.push_back(RecvWqe {
            wr_id: request.wr_id,
            target: SgList::new(request.sges, pd),
        });
        Ok(())
    }

    /// Takes the oldest receive; the flag tells that the limit event is due.
    #[inline]
    fn take(&mut self) -> Option<(RecvWqe, bool)> {
        let wqe = self.entries.pop_front()?;
        let below_limit = self.entries.len() < self.limit;
        if below_limit {
            self.limit = 0;
        }
        Some((wqe, below_limit))
    }
}

/// A receive queue that several queue pairs draw from.
#[derive(Debug)]
pub struct ReceiveQueue {
    id: SrqId,
    pd: PdId,
    max_sge: usize,
    ring: Mutex<Ring>,
}

impl ReceiveQueue {
    /// An empty queue.
    pub fn shared(id: SrqId, pd: PdId, capacity: usize, max_sge: usize) -> Self {
        ReceiveQueue {
            id,
            pd,
            max_sge,
            ring: Mutex::new(Ring::new(capacity)),
        }
    }

    /// Its number.
    pub fn id(&self) -> SrqId {
        self.id
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
    pub fn post(&self, request: &RecvRequest<'_>) -> Result<(), RecvRefused> {
        self.lock().post(request, self.pd, self.max_sge)
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
        let mut ring = self.lock();
        let fits = capacity >= ring.entries.len();
        if fits {
            ring.capacity = capacity;
        }
        fits
    }

    /// Takes the oldest receive; the flag tells that the limit event is due.
    pub(crate) fn take(&self) -> Option<(RecvWqe, bool)> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a queue pair takes its receives from.
#[derive(Debug)]
pub(crate) enum Receives {
    /// A queue of its own, which nobody touches but its NIC: it needs no lock.
    Own {
        pd: PdId,
        max_sge: usize,
        ring: RefCell<Ring>,
    },
    Shared(Arc<ReceiveQueue>),
}

impl Receives {
    /// A queue pair's own queue.
    pub(crate) fn own(pd: PdId, capacity: usize, max_sge: usize) -> Self {
        Receives::Own {
            pd,
            max_sge,
            ring: RefCell::new(Ring::new(capacity)),
        }
    }

    #[inline]
    fn with<T>(&self, used: impl FnOnce(&mut Ring) -> T) -> T {
        match self {
            Receives::Own { ring, .. } => used(&mut ring.borrow_mut()),
            Receives::Shared(queue) => used(&mut queue.lock()),
        }
    }

    /// The number of the shared queue, if it is one.
    #[inline]
    pub(crate) fn srq_id(&self) -> Option<SrqId> {
        match self {
            Receives::Own { .. } => None,
            Receives::Shared(queue) => Some(queue.id),
        }
    }

    /// How many receives fit.
    pub(crate) fn capacity(&self) -> usize {
        self.with(|ring| ring.capacity)
    }

    /// How many receives wait.
    pub(crate) fn len(&self) -> usize {
        self.with(|ring| ring.entries.len())
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts a receive to a queue pair's own queue. `None` if it has none: a shared one is posted to by itself.
    #[inline]
    pub(crate) fn post(&self, request: &RecvRequest<'_>) -> Option<Result<(), RecvRefused>> {
        match self {
            Receives::Own { pd, max_sge, ring } => Some(ring.borrow_mut().post(request, *pd, *max_sge)),
            Receives::Shared(_) => None,
        }
    }

    /// Takes the oldest receive; the flag tells that the limit event is due.
    #[inline]
    pub(crate) fn take(&self) -> Option<(RecvWqe, bool)> {
        self.with(Ring::take)
    }

    /// Empties the queue (a queue pair's reset).
    pub(crate) fn clear(&self) {
        self.with(|ring| ring.entries.clear());
    }
}
