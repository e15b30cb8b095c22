//! Requests under way: whose buffers the NIC has, by the number it knows them by.
//!
//! The requests of one queue pair are linked, so that its end costs what *it* has under way, however many other
//! queue pairs share the completion queue. Nothing here is allocated per queue pair but a few bytes.

use crate::memory::Buffers;
use slab::Slab;

/// No request.
const NONE: u32 = u32::MAX;

/// The requests of one queue pair.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lane(u32);

impl Lane {
    /// Of a shared receive queue, whose requests belong to no queue pair yet and end with the completion queue.
    pub(crate) const SHARED: Lane = Lane(NONE);
}

/// The requests of all queue pairs that complete to one queue.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    requests: Slab<Request>,
    /// The latest request of each lane.
    lanes: Slab<u32>,
}

#[derive(Debug)]
struct Request {
    id: u64,
    buffers: Buffers,
    lane: Lane,
    /// Its neighbours in the lane.
    newer: u32,
    older: u32,
}

impl Outstanding {
    /// A lane for a new queue pair.
    pub(crate) fn open(&mut self) -> Lane {
        Lane(self.lanes.insert(NONE) as u32)
    }

    /// A queue pair is gone: so are its requests. Whoever called lets go of their buffers, unlocked: the end of
    /// registered memory takes the device's lock.
    #[must_use = "to be dropped when nothing is locked"]
    pub(crate) fn close(&mut self, lane: Lane) -> Vec<Buffers> {
        let mut next = self.lanes.remove(lane.0 as usize);
        let mut given_up = Vec::new();
        while next != NONE {
            let request = self.requests.remove(next as usize);
            given_up.push(request.buffers);
            next = request.older;
        }
        given_up
    }

    /// Keeps a request; the number to post it under.
    pub(crate) fn admit(&mut self, lane: Lane, id: u64, buffers: Buffers) -> u64 {
        let older = self.lanes.get(lane.0 as usize).copied().unwrap_or(NONE);
        let key = self.requests.insert(Request {
            id,
            buffers,
            lane,
            newer: NONE,
            older,
        });
        if older != NONE {
            self.requests[older as usize].newer = key as u32;
        }
        self.set_latest(lane, key as u32);
        key as u64
    }

    /// Takes a request out: what the program calls it, and its buffers.
    pub(crate) fn take(&mut self, wr_id: u64) -> (u64, Buffers) {
        let Request {
            id,
            buffers,
            lane,
            newer,
            older,
        } = self.requests.remove(wr_id as usize);
        if newer == NONE {
            self.set_latest(lane, older);
        } else {
            self.requests[newer as usize].older = older;
        }
        if older != NONE {
            self.requests[older as usize].newer = newer;
        }
        (id, buffers)
    }

    fn set_latest(&mut self, lane: Lane, key: u32) {
        if lane != Lane::SHARED {
            self.lanes[lane.0 as usize] = key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(outstanding: &mut Outstanding, lane: Lane, id: u64) -> u64 {
        outstanding.admit(lane, id, Buffers::default())
    }

    #[test]
    fn requests_are_found_in_any_order() {
        let mut all = Outstanding::default();
        let lane = all.open();
        let keys: Vec<u64> = (0..5).map(|id| admit(&mut all, lane, id)).collect();
        // The middle, both ends, and what is left between them.
        for id in [2, 0, 4, 3, 1] {
            assert_eq!(all.take(keys[id as usize]).0, id);
        }
        assert!(all.requests.is_empty());
        assert_eq!(all.lanes[lane.0 as usize], NONE);
    }

    #[test]
    fn closing_a_lane_gives_up_its_requests_and_no_others() {
        let mut all = Outstanding::default();
        let (left, right) = (all.open(), all.open());
        let taken = admit(&mut all, left, 1);
        admit(&mut all, left, 2);
        let kept = admit(&mut all, right, 3);
        admit(&mut all, left, 4);
        let shared = admit(&mut all, Lane::SHARED, 5);
        all.take(taken);
        assert_eq!(all.close(left).len(), 2);
        assert_eq!(all.requests.len(), 2);
        assert_eq!(all.take(shared).0, 5);
        assert_eq!(all.take(kept).0, 3);
        assert!(all.close(right).is_empty());
        assert!(all.lanes.is_empty());
    }
}
