//! Completions for the program that a waiter for another request took out of the queue.

use crate::completion::Completion;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Completions for a polling program, taken out by a thread or task that waits for another request.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// How many there are, readable without the lock.
    count: AtomicUsize,
    completions: Mutex<VecDeque<Completion>>,
}

impl Aside {
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&self, completion: Completion) {
        let mut completions = self.lock();
        completions.push_back(completion);
        self.count.store(completions.len(), Ordering::Release);
    }

    pub(super) fn pop(&self) -> Option<Completion> {
        if self.is_empty() {
            return None;
        }
        let mut completions = self.lock();
        let first = completions.pop_front();
        self.count.store(completions.len(), Ordering::Release);
        first
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Completion>> {
        self.completions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
