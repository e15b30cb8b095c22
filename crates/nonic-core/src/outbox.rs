//! Completions that wait until the packets they depend on have left.

use crate::verbs::cq::{CompletionQueue, Published};
use crate::verbs::work::Completion;
use nonic_wire::Qpn;
use std::sync::Arc;

/// So many queues are kept from one turn to the next. Most programs have one or two; counting a reference to one for each completion would
/// take longer than adding it.
const KEPT: usize = 8;

/// Completions that are not visible yet, in their order.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pending: Vec<Pending>,
    /// The queues they go to, and those of earlier turns.
    queues: Vec<Arc<CompletionQueue>>,
}

#[derive(Debug)]
struct Pending {
    /// Which of the queues it goes to.
    queue: usize,
    completion: Completion,
    wakes: bool,
}

impl Outbox {
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Adds a completion, and whether it wakes a waiter that armed for solicited ones.
    #[inline]
    pub(crate) fn add(&mut self, cq: &Arc<CompletionQueue>, completion: Completion, wakes: bool) {
        // Of very many queues, some may stand here several times.
        let mut known = self.queues.iter().take(KEPT);
        let known = known.position(|queue| Arc::ptr_eq(queue, cq));
        let queue = known.unwrap_or_else(|| self.keep(cq));
        self.pending.push(Pending {
            queue,
            completion,
            wakes,
        });
    }

    #[cold]
    fn keep(&mut self, cq: &Arc<CompletionQueue>) -> usize {
        self.queues.push(Arc::clone(cq));
        self.queues.len() - 1
    }

    /// Drops the completions of a queue pair that is being destroyed, and the queues: they may be next.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.pending.retain(|pending| pending.completion.qpn != qpn);
        if self.pending.is_empty() {
            self.queues.clear();
        }
    }

    /// Makes the completion after so many visible, together with those behind it that go to the same queue, and counts them. `None` if
    /// there are no more.
    #[inline]
    pub(crate) fn publish(&self, done: &mut usize) -> Option<(&Arc<CompletionQueue>, Published)> {
        let rest = self.pending.get(*done..)?;
        let queue = rest.first()?.queue;
        let together = rest.iter().take_while(|pending| pending.queue == queue);
        let cq = self.queues.get(queue)?;
        let published = cq.publish(together.map(|pending| {
            *done += 1;
            (pending.completion, pending.wakes)
        }));
        Some((cq, published))
    }

    /// All of them are visible.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
        if self.queues.len() > KEPT {
            self.queues.clear();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::verbs::cq::CqId;
    use crate::verbs::work::{CompletionOpcode, Status};

    fn completion(wr_id: u64, qpn: u32) -> Completion {
        Completion {
            wr_id,
            status: Status::Success,
            opcode: CompletionOpcode::Send,
            byte_len: 0,
            immediate: None,
            invalidated_rkey: None,
            qpn: Qpn::new(qpn),
            src_qp: Qpn::new(0),
            grh: false,
            ipv4: false,
        }
    }

    fn queue(id: u32) -> Arc<CompletionQueue> {
        Arc::new(CompletionQueue::new(CqId(id), 16))
    }

    fn take(cq: &CompletionQueue) -> Vec<u64> {
        let mut taken = Vec::new();
        cq.poll(16, |completion| taken.push(completion.wr_id))
            .expect("no overflow");
        taken
    }

    fn publish(outbox: &mut Outbox) -> usize {
        let mut done = 0;
        while outbox.publish(&mut done).is_some() {}
        outbox.clear();
        done
    }

    #[test]
    fn completions_become_visible_in_their_order_each_in_its_queue() {
        let (one, other) = (queue(1), queue(2));
        let mut outbox = Outbox::default();
        for (wr_id, cq) in [(1, &one), (2, &one), (3, &other), (4, &one)] {
            outbox.add(cq, completion(wr_id, 9), false);
        }
        assert!(one.is_empty());
        assert_eq!(publish(&mut outbox), 4);
        assert_eq!((take(&one), take(&other)), (vec![1, 2, 4], vec![3]));
        assert!(outbox.is_empty());
        assert_eq!(publish(&mut outbox), 0);
    }

    #[test]
    fn those_of_a_destroyed_queue_pair_do_not() {
        let cq = queue(1);
        let mut outbox = Outbox::default();
        for (wr_id, qpn) in [(1, 9), (2, 10), (3, 9)] {
            outbox.add(&cq, completion(wr_id, qpn), false);
        }
        outbox.forget(Qpn::new(9));
        assert_eq!(outbox.len(), 1);
        assert_eq!(publish(&mut outbox), 1);
        assert_eq!(take(&cq), [2]);
    }

    #[test]
    fn queues_are_not_kept_for_ever() {
        let mut outbox = Outbox::default();
        let queues: Vec<_> = (0..=KEPT as u32).map(queue).collect();
        let weak: Vec<_> = queues.iter().map(Arc::downgrade).collect();
        for cq in &queues {
            outbox.add(cq, completion(1, 9), false);
        }
        publish(&mut outbox);
        drop(queues);
        assert!(weak.iter().all(|queue| queue.upgrade().is_none()));
        let last = queue(1);
        outbox.add(&last, completion(1, 9), false);
        publish(&mut outbox);
        outbox.forget(Qpn::new(9));
        assert_eq!(Arc::strong_count(&last), 1);
    }
}
