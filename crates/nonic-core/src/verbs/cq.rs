//! Completion queues: they hold the completions of any number of queue pairs, in the order they were published.
//!
//! A queue is shared between the NIC that fills it and the threads that poll it, behind its own small lock; an empty
//! queue is seen without taking it.
//!
//! Overflow loses no completion silently: the queue goes in error, reports that once, and refuses everything from then
//! on, as hardware does.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::verbs::work::Completion;
use nonic_wire::Qpn;
use std::collections::VecDeque;
use std::sync::PoisonError;

/// A completion queue's number within its device.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct CqId(pub u32);

/// Which completion wakes an armed queue's waiter.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Arm {
    /// The next one of any kind.
    Next,
    /// The next solicited or failed one.
    Solicited,
}

/// What publishing completions led to.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Published {
    /// The queue was armed for one of them.
    pub(crate) notify: bool,
    /// There was no room for one: the queue has just gone in error, and those behind it are lost too.
    pub(crate) overflow: bool,
}

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    id: CqId,
    /// Number of entries, readable without the lock.
    count: AtomicUsize,
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    entries: VecDeque<Completion>,
    capacity: usize,
    armed: Option<Arm>,
    overflowed: bool,
}

/// Snapshot of a completion queue, for tools that inspect a running process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CqView {
    /// Its number.
    pub id: CqId,
    /// Completions that wait to be polled.
    pub entries: usize,
    /// How many fit.
    pub capacity: usize,
    /// What its program waits to be notified of.
    pub armed: Option<Arm>,
    /// Whether it overflowed.
    pub overflowed: bool,
}

/// The queue overflowed: completions were lost and it can only be destroyed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the completion queue overflowed; poll faster or create it with more entries")]
pub struct CqOverflow;

impl Ring {
    #[inline]
    fn add(&mut self, completion: Completion, wakes: bool, published: &mut Published) {
        if self.overflowed {
            return;
        }
        if self.entries.len() >= self.capacity {
            self.overflowed = true;
            published.overflow = true;
            return;
        }
        self.entries.push_back(completion);
        let notify = match self.armed {
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => wakes,
            None => false,
        };
        if notify {
            self.armed = None;
            published.notify = true;
        }
    }
}

impl CompletionQueue {
    /// An empty queue for `capacity` completions.
    pub fn new(id: CqId, capacity: usize) -> Self {
        let ring = Ring {
            entries: VecDeque::new(),
            capacity: capacity.max(1),
            armed: None,
            overflowed: false,
        };
        CompletionQueue {
            id,
            count: AtomicUsize::new(0),
            ring: Mutex::new(ring),
        }
    }

    /// Its number.
    pub fn id(&self) -> CqId {
        self.id
    }

    /// What it is at.
    pub fn view(&self) -> CqView {
        let ring = self.lock();
        CqView {
            id: self.id,
            entries: ring.entries.len(),
            capacity: ring.capacity,
            armed: ring.armed,
            overflowed: ring.overflowed,
        }
    }

    /// How many completions fit.
    pub fn capacity(&self) -> usize {
        self.lock().capacity
    }

    /// Changes how many fit. Refuses (`false`) fewer than are waiting.
    pub fn resize(&self, capacity: usize) -> bool {
        let mut ring = self.lock();
        let fits = capacity >= ring.entries.len().max(1);
        if fits {
            ring.capacity = capacity;
        }
        fits
    }

    /// How many completions wait. May change at any moment.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves up to `max` completions to `sink`, oldest first; returns how many.
    pub fn poll(&self, max: usize, mut sink: impl FnMut(Completion)) -> Result<usize, CqOverflow> {
        // Completions are published before the count, so a zero here is only ever a moment old.
        if self.is_empty() {
            return Ok(0);
        }
        let mut ring = self.lock();
        if ring.overflowed {
            return Err(CqOverflow);
        }
        let taken = max.min(ring.entries.len());
        ring.entries.drain(..taken).for_each(&mut sink);
        self.count.store(ring.entries.len(), Ordering::Release);
        Ok(taken)
    }

    /// Asks for one notification. Completions already waiting do not count: poll after arming.
    pub fn arm(&self, arm: Arm) {
        let mut ring = self.lock();
        // Asking for any completion is the stronger wish and is not weakened by a later one.
        if ring.armed != Some(Arm::Next) {
            ring.armed = Some(arm);
        }
    }

    /// Removes what waits for a queue pair that is being destroyed.
    pub fn purge(&self, qpn: Qpn) {
        let mut ring = self.lock();
        ring.entries.retain(|completion| completion.qpn != qpn);
        self.count.store(ring.entries.len(), Ordering::Release);
    }

    /// Adds completions. Each comes with whether it wakes a waiter that armed for solicited ones.
    #[inline]
    pub(crate) fn publish(&self, completions: impl Iterator<Item = (Completion, bool)>) -> Published {
        let mut ring = self.lock();
        let mut published = Published::default();
        for (completion, wakes) in completions {
            ring.add(completion, wakes, &mut published);
        }
        self.count.store(ring.entries.len(), Ordering::Release);
        published
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // Every change to the ring is complete before anything in it could panic.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::verbs::work::{CompletionOpcode, Status};
    use loom::sync::Arc;
    use loom::thread;

    fn completion(wr_id: u64) -> Completion {
        Completion {
            wr_id,
            status: Status::Success,
            opcode: CompletionOpcode::Recv,
            byte_len: 0,
            immediate: None,
            invalidated_rkey: None,
            qpn: Qpn::new(5),
            src_qp: Qpn::new(0),
            grh: false,
            ipv4: false,
        }
    }

    /// Arm, then poll: either the poll finds the completion or its publication notifies. Never neither.
    #[test]
    fn no_completion_is_missed_between_arming_and_sleeping() {
        loom::model(|| {
            let queue = Arc::new(CompletionQueue::new(CqId(1), 4));
            let publisher = {
                let queue = queue.clone();
                thread::spawn(move || queue.publish(std::iter::once((completion(1), false))))
            };
            queue.arm(Arm::Next);
            let mut found = 0;
            queue.poll(4, |_| found += 1).unwrap();
            let published = publisher.join().unwrap();
            assert!(found == 1 || published.notify, "found {found}, {published:?}");
        });
    }

    /// What the unlocked count announces is there, and what is written before publishing is seen after polling.
    #[test]
    fn memory_written_before_publishing_is_seen_after_polling() {
        use loom::cell::UnsafeCell;
        struct Buffer(UnsafeCell<u64>);
        // SAFETY: the model checks exactly that accesses to the cell are ordered.
        unsafe impl Sync for Buffer {}
        // SAFETY: as above.
        unsafe impl Send for Buffer {}
        loom::model(|| {
            let queue = Arc::new(CompletionQueue::new(CqId(1), 4));
            let buffer = Arc::new(Buffer(UnsafeCell::new(0)));
            let nic = {
                let (queue, buffer) = (queue.clone(), buffer.clone());
                thread::spawn(move || {
                    // SAFETY: the poller reads only after it has seen the completion.
                    buffer.0.with_mut(|bytes| unsafe { *bytes = 42 });
                    queue.publish(std::iter::once((completion(1), false)));
                })
            };
            let mut found = false;
            queue.poll(1, |_| found = true).unwrap();
            if found {
                // SAFETY: the completion says that the NIC is done with it.
                buffer.0.with(|bytes| assert_eq!(unsafe { *bytes }, 42));
            }
            nic.join().unwrap();
        });
    }
}
