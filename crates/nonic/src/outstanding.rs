//! The table of requests under way: their buffers, by the number (`wr_id`) that the NIC knows them by. A buffer is moved here when its
//! request is posted, and comes back to the program with the completion.
//!
//! The requests of one work queue (the send or receive queue of a queue pair, or a shared receive queue) are linked, so
//! closing it costs what *it* has under way, however many other work queues share the completion queue. A request
//! counts until its completion was taken, and no more are admitted than the work queue holds. So a completion queue
//! with room for all of its work queues never overflows.
//!
//! An awaited request is admitted even if its queue is full: it joins a backlog and is posted in its turn, when there is room.

use crate::cm_dispatcher::EventChannel;
use crate::memory::Buffers;
use crate::ticket::Ticket;
use nonic_core::{CompletionOpcode, Destination, Qpn, SendFlags, SendOp, Sge};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// No request.
const NONE: u32 = u32::MAX;

/// One send or receive queue, as far as its requests are concerned. Its number is never given to another.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct WorkQueueId {
    index: u32,
    generation: u32,
}

/// The requests of all queue pairs that complete to one queue.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    requests: Slab<Request>,
    work_queues: Slab<WorkQueue>,
    /// Completions that all work queues together can have. Kept as they come and go: adding them up for each new one would make
    /// the cost of a queue pair grow with their number.
    capacity: usize,
    /// Counts whatever was put into either.
    generation: u32,
}

#[derive(Debug)]
struct WorkQueue {
    generation: u32,
    /// Of which queue pair; a shared receive queue has none, and no backlog.
    qpn: Option<Qpn>,
    /// The connection that it belongs to, if it does to one.
    connection: Option<Arc<EventChannel>>,
    /// Its latest request.
    latest: u32,
    /// Requests that were posted and whose completion was not taken yet, and how many there may be.
    count: u32,
    capacity: u32,
    /// Requests that found it full, oldest first.
    backlog: VecDeque<Later>,
    /// Whether one of them is just being posted: nothing may overtake it.
    is_posting: bool,
    /// Whether a thread waits for that to be over.
    is_posting_awaited: bool,
    /// Tickets of waiters for the work queue to become idle.
    drainers: Vec<Arc<Ticket>>,
}

#[derive(Debug)]
struct Request {
    generation: u32,
    id: u64,
    buffers: Buffers,
    /// The waiter's ticket; none if the program polls.
    ticket: Option<Arc<Ticket>>,
    work_queue: WorkQueueId,
    /// Its neighbours in the work queue.
    newer: u32,
    older: u32,
}

/// What a request asks for.
#[derive(Debug)]
pub(crate) enum Work {
    Send {
        op: SendOp,
        flags: SendFlags,
        destination: Option<Destination>,
        /// What is sent, if it is not in the buffers.
        inline: Option<Box<[u8]>>,
    },
    Receive,
}

impl Work {
    /// What its completion will say that it was.
    pub(crate) fn opcode(&self) -> CompletionOpcode {
        match self {
            Work::Send { op, .. } => op.completion_opcode(),
            Work::Receive => CompletionOpcode::Recv,
        }
    }

    /// How many bytes are sent that are not in buffers.
    pub(crate) fn inline_bytes(&self) -> u64 {
        match self {
            Work::Send { inline, .. } => inline.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Work::Receive => 0,
        }
    }
}

#[derive(Debug)]
struct Later {
    wr_id: u64,
    work: Work,
}

/// Whose turn it is to post to a work queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// That of a new request; the work queue may be full.
    Own,
    /// That of the backlog, which there is room for.
    Due,
    /// That of a request of the backlog, which another thread is just posting.
    Posting,
}

/// A request that is to be posted now.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) qpn: Qpn,
    pub(crate) wr_id: u64,
    pub(crate) work: Work,
    pub(crate) sges: SmallVec<[Sge; 4]>,
}

/// A request that is done with.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) id: u64,
    pub(crate) buffers: Buffers,
    pub(crate) ticket: Option<Arc<Ticket>>,
    pub(crate) work_queue: WorkQueueId,
    /// Whether there is a backlog to be looked at.
    pub(crate) others_wait: bool,
    /// Waiters for the work queue to become idle, if it just did.
    pub(crate) drainers: Vec<Arc<Ticket>>,
}

impl Outstanding {
    /// A place for the requests of a new work queue.
    pub(crate) fn open(&mut self, qpn: Option<Qpn>, capacity: u32) -> WorkQueueId {
        let generation = self.next_generation();
        self.capacity += capacity as usize;
        let index = self.work_queues.insert(WorkQueue {
            generation,
            qpn,
            connection: None,
            latest: NONE,
            count: 0,
            capacity,
            backlog: VecDeque::new(),
            is_posting: false,
            is_posting_awaited: false,
            drainers: Vec::new(),
        }) as u32;
        WorkQueueId { index, generation }
    }

    /// Its queue pair belongs to a connection.
    pub(crate) fn ends_with(&mut self, work_queue: WorkQueueId, connection: &Arc<EventChannel>) {
        if let Some(found) = self.work_queue(work_queue) {
            found.connection = Some(Arc::clone(connection));
        }
    }

    /// The connection that it belongs to, if it does to one.
    pub(crate) fn connection(&mut self, work_queue: WorkQueueId) -> Option<Arc<EventChannel>> {
        self.work_queue(work_queue)?.connection.clone()
    }

    /// Has `ticket` told when no request of it is under way or waits for room. Whether that is so already.
    pub(crate) fn tell_when_drained(&mut self, work_queue: WorkQueueId, ticket: &Arc<Ticket>) -> bool {
        match self.work_queue(work_queue) {
            Some(found) if !found.is_drained() => {
                found.drainers.push(Arc::clone(ticket));
                false
            }
            _ => true,
        }
    }

    /// Completions that all work queues together can have.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// A queue pair is gone, and so are its requests. The caller drops their buffers with nothing locked: deregistering
    /// memory waits for the locks of the device's shards.
    #[must_use = "to be dropped when nothing is locked"]
    pub(crate) fn close(&mut self, work_queue: WorkQueueId) -> Vec<(Buffers, Option<Arc<Ticket>>)> {
        let closed = self.work_queues.remove(work_queue.index as usize);
        self.capacity -= closed.capacity as usize;
        let mut next = closed.latest;
        let drainers = closed.drainers.into_iter();
        let mut given_up: Vec<_> = drainers
            .map(|ticket| (Buffers::default(), Some(ticket)))
            .collect();
        while next != NONE {
            let request = self.requests.remove(next as usize);
            given_up.push((request.buffers, request.ticket));
            next = request.older;
        }
        given_up
    }

    /// What a new request must wait for that is to be neither early nor refused.
    pub(crate) fn turn(&mut self, work_queue: WorkQueueId) -> Turn {
        match self.work_queue(work_queue) {
            Some(found) if found.is_posting => {
                found.is_posting_awaited = true;
                Turn::Posting
            }
            Some(found) if found.is_due() => Turn::Due,
            _ => Turn::Own,
        }
    }

    /// Keeps a request that the program polls for; the number to post it under, or its buffers back if there is no room.
    pub(crate) fn admit(
        &mut self,
        work_queue: WorkQueueId,
        id: u64,
        buffers: Buffers,
    ) -> Result<u64, Buffers> {
        match self.work_queue(work_queue) {
            Some(found) if found.has_room() => found.count += 1,
            _ => return Err(buffers),
        }
        Ok(self.insert(work_queue, id, buffers, None))
    }

    /// Keeps a request of a batch, which is refused as a whole if there is no room: see [`Outstanding::excess`].
    pub(crate) fn admit_to_batch(&mut self, work_queue: WorkQueueId, id: u64, buffers: Buffers) -> u64 {
        if let Some(found) = self.work_queue(work_queue) {
            found.count += 1;
        }
        self.insert(work_queue, id, buffers, None)
    }

    /// How many of the requests that were let in are too many: the last ones of a batch, of so many.
    pub(crate) fn excess(&mut self, work_queue: WorkQueueId, batch: usize) -> usize {
        match self.work_queue(work_queue) {
            Some(found) if found.backlog.is_empty() && !found.is_posting => {
                found.count.saturating_sub(found.capacity) as usize
            }
            _ => batch,
        }
        .min(batch)
    }

    /// Keeps a request that has a waiter. It is due at once, or joins the backlog.
    pub(crate) fn admit_awaited(
        &mut self,
        work_queue: WorkQueueId,
        buffers: Buffers,
        ticket: Arc<Ticket>,
        work: Work,
    ) {
        let wr_id = self.insert(work_queue, 0, buffers, Some(ticket));
        if let Some(found) = self.work_queue(work_queue) {
            found.backlog.push_back(Later { wr_id, work });
        }
    }

    /// The next request of a backlog, if there is room for it. [`Outstanding::posted`] must follow.
    pub(crate) fn next_due(&mut self, work_queue: WorkQueueId) -> Option<Due> {
        let found = self.work_queue(work_queue)?;
        if found.is_posting || !found.is_due() {
            return None;
        }
        let (qpn, Later { wr_id, work }) = (found.qpn?, found.backlog.pop_front()?);
        found.count += 1;
        found.is_posting = true;
        let sges = self.requests[index_of(wr_id)].buffers.sges();
        Some(Due {
            qpn,
            wr_id,
            work,
            sges,
        })
    }

    /// The request that was due has been posted, or refused. Whether a thread waits for that.
    #[must_use = "who waits must be told"]
    pub(crate) fn posted(&mut self, work_queue: WorkQueueId) -> bool {
        self.work_queue(work_queue).is_some_and(|found| {
            found.is_posting = false;
            std::mem::take(&mut found.is_posting_awaited)
        })
    }

    /// Takes a request out; nothing if its work queue is gone.
    pub(crate) fn take(&mut self, wr_id: u64) -> Option<Taken> {
        let generation = (wr_id >> 32) as u32;
        let known = self.requests.get(index_of(wr_id))?;
        if known.generation != generation {
            return None;
        }
        let request = self.requests.remove(index_of(wr_id));
        let Request { newer, older, .. } = request;
        if newer != NONE {
            self.requests[newer as usize].older = older;
        }
        if older != NONE {
            self.requests[older as usize].newer = newer;
        }
        let work_queue = self.work_queue(request.work_queue)?;
        work_queue.count -= 1;
        if newer == NONE {
            work_queue.latest = older;
        }
        let others_wait = !work_queue.backlog.is_empty();
        let drainers = match work_queue.is_drained() {
            true => std::mem::take(&mut work_queue.drainers),
            false => Vec::new(),
        };
        Some(Taken {
            id: request.id,
            buffers: request.buffers,
            ticket: request.ticket,
            work_queue: request.work_queue,
            others_wait,
            drainers,
        })
    }

    fn insert(
        &mut self,
        work_queue: WorkQueueId,
        id: u64,
        buffers: Buffers,
        ticket: Option<Arc<Ticket>>,
    ) -> u64 {
        let generation = self.next_generation();
        let older = self.work_queue(work_queue).map_or(NONE, |found| found.latest);
        let key = self.requests.insert(Request {
            generation,
            id,
            buffers,
            ticket,
            work_queue,
            newer: NONE,
            older,
        });
        if older != NONE {
            self.requests[older as usize].newer = key as u32;
        }
        if let Some(found) = self.work_queue(work_queue) {
            found.latest = key as u32;
        }
        u64::from(generation) << 32 | key as u64
    }

    fn work_queue(&mut self, id: WorkQueueId) -> Option<&mut WorkQueue> {
        let found = self.work_queues.get_mut(id.index as usize)?;
        (found.generation == id.generation).then_some(found)
    }

    fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }
}

impl WorkQueue {
    /// Whether one more may be posted without overtaking the backlog.
    fn has_room(&self) -> bool {
        self.count < self.capacity && self.backlog.is_empty() && !self.is_posting
    }

    /// Whether there is room for the next of its backlog.
    fn is_due(&self) -> bool {
        self.count < self.capacity && !self.backlog.is_empty()
    }

    /// Whether it has nothing to do.
    fn is_drained(&self) -> bool {
        self.count == 0 && self.backlog.is_empty() && !self.is_posting
    }
}

/// Where a request is, by the number it was posted under.
fn index_of(wr_id: u64) -> usize {
    (wr_id & u64::from(u32::MAX)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(outstanding: &mut Outstanding, work_queue: WorkQueueId, id: u64) -> u64 {
        outstanding
            .admit(work_queue, id, Buffers::default())
            .expect("there is room")
    }

    fn await_one(outstanding: &mut Outstanding, work_queue: WorkQueueId) {
        outstanding.admit_awaited(work_queue, Buffers::default(), Arc::default(), Work::Receive);
    }

    fn qpn() -> Option<Qpn> {
        Some(Qpn::new(0x11))
    }

    #[test]
    fn requests_are_found_in_any_order() {
        let mut all = Outstanding::default();
        let work_queue = all.open(qpn(), 5);
        let keys: Vec<u64> = (0..5).map(|id| admit(&mut all, work_queue, id)).collect();
        // The middle, both ends, and what is left between them.
        for id in [2, 0, 4, 3, 1] {
            assert_eq!(all.take(keys[id as usize]).expect("there").id, id);
        }
        assert!(all.requests.is_empty());
        assert_eq!(all.work_queues[work_queue.index as usize].latest, NONE);
        assert!(all.take(keys[0]).is_none(), "taken once");
    }

    #[test]
    fn closing_a_work_queue_gives_up_its_requests_and_no_others() {
        let mut all = Outstanding::default();
        let (left, right) = (all.open(qpn(), 4), all.open(qpn(), 4));
        let taken = admit(&mut all, left, 1);
        let given_up = admit(&mut all, left, 2);
        let kept = admit(&mut all, right, 3);
        admit(&mut all, left, 4);
        all.take(taken);
        assert_eq!(all.close(left).len(), 2);
        assert_eq!(all.requests.len(), 1);
        // Its place is another's now, and its number is not.
        let next = all.open(qpn(), 4);
        admit(&mut all, next, 5);
        assert!(all.take(given_up).is_none());
        assert_eq!(all.take(kept).expect("there").id, 3);
        assert!(all.close(right).is_empty());
        assert_eq!(all.capacity(), 4);
        assert_eq!(all.close(next).len(), 1);
        assert!(all.work_queues.is_empty());
        assert_eq!(all.capacity(), 0);
    }

    #[test]
    fn no_more_are_let_in_than_the_work_queue_holds_until_a_completion_is_taken() {
        let mut all = Outstanding::default();
        let work_queue = all.open(qpn(), 2);
        let first = admit(&mut all, work_queue, 1);
        admit(&mut all, work_queue, 2);
        assert!(all.admit(work_queue, 3, Buffers::default()).is_err());
        assert_eq!(all.capacity(), 2);
        all.take(first);
        admit(&mut all, work_queue, 3);
    }

    #[test]
    fn what_waits_for_room_is_posted_in_its_turn_and_overtaken_by_nothing() {
        let mut all = Outstanding::default();
        let work_queue = all.open(qpn(), 1);
        for _ in 0..3 {
            await_one(&mut all, work_queue);
        }
        let first = all.next_due(work_queue).expect("there is room");
        assert!(all.next_due(work_queue).is_none(), "one is being posted");
        assert!(!all.posted(work_queue), "nobody waits for it");
        assert!(all.next_due(work_queue).is_none(), "full");
        assert_eq!(all.turn(work_queue), Turn::Own, "to be refused");
        assert!(all.take(first.wr_id).expect("there").others_wait);
        assert!(
            all.admit(work_queue, 9, Buffers::default()).is_err(),
            "others were here before"
        );
        assert_eq!(all.turn(work_queue), Turn::Due);
        let second = all.next_due(work_queue).expect("there is room");
        assert!(
            all.admit(work_queue, 9, Buffers::default()).is_err(),
            "one is being posted"
        );
        assert_eq!(index_of(second.wr_id), 1);
        assert_eq!(all.turn(work_queue), Turn::Posting);
        assert!(all.posted(work_queue), "who asked is told");
        // The backlog ends with the work queue, too.
        assert_eq!(all.close(work_queue).len(), 2);
        assert!(all.next_due(work_queue).is_none());
        assert!(!all.posted(work_queue));
    }
}
