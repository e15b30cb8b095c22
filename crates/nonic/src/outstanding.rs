//! Requests under way: whose buffers the NIC has, by the number it knows them by.
//!
//! The requests of one work queue (the send or the receive queue of a queue pair) are linked, so that its end costs
//! what *it* has under way, however many other queue pairs share the completion queue. Nothing here is allocated per
//! queue pair but a few bytes.

use crate::memory::Buffers;
use slab::Slab;

/// No request.
const NONE: u32 = u32::MAX;

/// One send or receive queue, as far as its requests are concerned.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct WorkQueueId(u32);

impl WorkQueueId {
    /// Of a shared receive queue, whose requests belong to no queue pair yet and end with the completion queue.
    pub(crate) const SHARED: WorkQueueId = WorkQueueId(NONE);
}

/// The requests of all queue pairs that complete to one queue.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    requests: Slab<Request>,
    /// The latest request of each work queue.
    work_queues: Slab<u32>,
}

#[derive(Debug)]
struct Request {
    id: u64,
    buffers: Buffers,
    work_queue: WorkQueueId,
    /// Its neighbours in the work queue.
    newer: u32,
    older: u32,
}

impl Outstanding {
    /// A place for the requests of a new work queue.
    pub(crate) fn open(&mut self) -> WorkQueueId {
        WorkQueueId(self.work_queues.insert(NONE) as u32)
    }

    /// A queue pair is gone: so are its requests. Whoever called lets go of their buffers, unlocked: the end of
    /// registered memory waits for the locks of the device's shards.
    #[must_use = "to be dropped when nothing is locked"]
    pub(crate) fn close(&mut self, work_queue: WorkQueueId) -> Vec<Buffers> {
        let mut next = self.work_queues.remove(work_queue.0 as usize);
        let mut given_up = Vec::new();
        while next != NONE {
            let request = self.requests.remove(next as usize);
            given_up.push(request.buffers);
            next = request.older;
        }
        given_up
    }

    /// Keeps a request; the number to post it under.
    pub(crate) fn admit(&mut self, work_queue: WorkQueueId, id: u64, buffers: Buffers) -> u64 {
        let older = self
            .work_queues
            .get(work_queue.0 as usize)
            .copied()
            .unwrap_or(NONE);
        let key = self.requests.insert(Request {
            id,
            buffers,
            work_queue,
            newer: NONE,
            older,
        });
        if older != NONE {
            self.requests[older as usize].newer = key as u32;
        }
        self.set_latest(work_queue, key as u32);
        key as u64
    }

    /// Takes a request out: what the program calls it, and its buffers.
    pub(crate) fn take(&mut self, wr_id: u64) -> (u64, Buffers) {
        let Request {
            id,
            buffers,
            work_queue,
            newer,
            older,
        } = self.requests.remove(wr_id as usize);
        if newer == NONE {
            self.set_latest(work_queue, older);
        } else {
            self.requests[newer as usize].older = older;
        }
        if older != NONE {
            self.requests[older as usize].newer = newer;
        }
        (id, buffers)
    }

    fn set_latest(&mut self, work_queue: WorkQueueId, key: u32) {
        if work_queue != WorkQueueId::SHARED {
            self.work_queues[work_queue.0 as usize] = key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(outstanding: &mut Outstanding, work_queue: WorkQueueId, id: u64) -> u64 {
        outstanding.admit(work_queue, id, Buffers::default())
    }

    #[test]
    fn requests_are_found_in_any_order() {
        let mut all = Outstanding::default();
        let work_queue = all.open();
        let keys: Vec<u64> = (0..5).map(|id| admit(&mut all, work_queue, id)).collect();
        // The middle, both ends, and what is left between them.
        for id in [2, 0, 4, 3, 1] {
            assert_eq!(all.take(keys[id as usize]).0, id);
        }
        assert!(all.requests.is_empty());
        assert_eq!(all.work_queues[work_queue.0 as usize], NONE);
    }

    #[test]
    fn closing_a_work_queue_gives_up_its_requests_and_no_others() {
        let mut all = Outstanding::default();
        let (left, right) = (all.open(), all.open());
        let taken = admit(&mut all, left, 1);
        admit(&mut all, left, 2);
        let kept = admit(&mut all, right, 3);
        admit(&mut all, left, 4);
        let shared = admit(&mut all, WorkQueueId::SHARED, 5);
        all.take(taken);
        assert_eq!(all.close(left).len(), 2);
        assert_eq!(all.requests.len(), 2);
        assert_eq!(all.take(shared).0, 5);
        assert_eq!(all.take(kept).0, 3);
        assert!(all.close(right).is_empty());
        assert!(all.work_queues.is_empty());
    }
}
