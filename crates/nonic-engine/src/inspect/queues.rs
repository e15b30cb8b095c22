//! The list of a device's completion queues, which is kept nowhere else: they belong to the program and to their queue
//! pairs.

use nonic_core::CompletionQueue;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Below so many, those that are gone are not looked for.
const FEW: usize = 64;

/// Weak references to the completion queues that a program made.
#[derive(Debug, Default)]
pub(crate) struct CompletionQueues {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    queues: Vec<Weak<CompletionQueue>>,
    /// With so many, those that are gone are taken out.
    tidy_at: usize,
}

impl CompletionQueues {
    /// One was made.
    pub(crate) fn add(&self, queue: &Arc<CompletionQueue>) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.queues.len() >= list.tidy_at.max(FEW) {
            list.queues.retain(|queue| queue.strong_count() > 0);
            list.tidy_at = 2 * list.queues.len();
        }
        // Without memory for the list, a queue works and is not shown.
        if list.queues.try_reserve(1).is_ok() {
            list.queues.push(Arc::downgrade(queue));
        }
    }

    /// All of them, some of which may be gone.
    pub(super) fn all(&self) -> Vec<Weak<CompletionQueue>> {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.queues.clone()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use nonic_core::CqId;

    #[test]
    fn the_list_does_not_grow_with_queues_that_are_gone() {
        let queues = CompletionQueues::default();
        let kept: Vec<_> = (0..10)
            .map(|number| Arc::new(CompletionQueue::new(CqId(number), 1)))
            .collect();
        kept.iter().for_each(|queue| queues.add(queue));
        for number in 0..10_000 {
            queues.add(&Arc::new(CompletionQueue::new(CqId(number), 1)));
        }
        let all = queues.all();
        assert!(all.len() <= FEW + 1, "{}", all.len());
        assert_eq!(all.iter().filter_map(Weak::upgrade).count(), kept.len());
    }
}
