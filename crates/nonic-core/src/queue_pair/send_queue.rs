//! The send queue of a queue pair, as every transport has it.
//!
//! Requests are sent in the order in which they were posted, and complete in that order, from the front. The *cursor* is the request
//! that is being sent; requests before it are sent and wait for their answers. What a request looks like on the wire, and when it is
//! done, is the transport's to know.

use super::context::QpContext;
use crate::resources::NicResources;
use crate::verbs::work::Status;
use crate::verbs::wqe::SendWqe;
use std::collections::VecDeque;

/// A request as a transport queues it.
pub(crate) trait Queued {
    /// What was posted.
    fn wqe(&self) -> &SendWqe;
}

impl Queued for SendWqe {
    fn wqe(&self) -> &SendWqe {
        self
    }
}

/// Requests that were posted and are not complete.
#[derive(Debug)]
pub(crate) struct SendQueue<R> {
    requests: VecDeque<R>,
    cursor: usize,
}

impl<R> Default for SendQueue<R> {
    fn default() -> Self {
        SendQueue {
            requests: VecDeque::new(),
            cursor: 0,
        }
    }
}

impl<R: Queued> SendQueue<R> {
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, request: R) {
        if self.requests.capacity() == 0 {
            // Programs with very many queue pairs have one request under way on most: the next ones make room for more.
            self.requests.reserve_exact(1);
        }
        self.requests.push_back(request);
    }

    /// The oldest request.
    pub(crate) fn front(&self) -> Option<&R> {
        self.requests.front()
    }

    pub(crate) fn get(&self, at: usize) -> Option<&R> {
        self.requests.get(at)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut R> {
        self.requests.get_mut(at)
    }

    /// All requests, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &R> {
        self.requests.iter()
    }

    /// Those from this place on.
    pub(crate) fn iter_from(&self, at: usize) -> impl Iterator<Item = &R> {
        self.requests.range(at.min(self.requests.len())..)
    }

    /// The place of the first request for which `before` does not hold.
    pub(crate) fn partition_point(&self, before: impl FnMut(&R) -> bool) -> usize {
        self.requests.partition_point(before)
    }

    /// The place of the request that is being sent.
    pub(crate) fn cursor(&self) -> usize {
        self.cursor
    }

    /// The request that is being sent.
    pub(crate) fn current(&self) -> Option<&R> {
        self.requests.get(self.cursor)
    }

    pub(crate) fn current_mut(&mut self) -> Option<&mut R> {
        self.requests.get_mut(self.cursor)
    }

    /// Whether a request is yet to be sent, or is half sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.cursor < self.requests.len()
    }

    /// All of the current request is sent.
    pub(crate) fn advance(&mut self) {
        self.cursor += 1;
    }

    /// Requests from this place on are sent again.
    pub(crate) fn go_back_to(&mut self, at: usize) {
        self.cursor = at;
    }

    /// Executes the current request, a local operation, once everything before it is complete. `None` if it has to wait. One that
    /// fails stays at the front.
    pub(crate) fn run_local(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
    ) -> Option<Result<(), Status>> {
        let op = match self.requests.front() {
            Some(request) if self.cursor == 0 => request.wqe().op,
            _ => return None,
        };
        let executed = common.run_local(nic, op);
        if executed.is_ok() {
            self.complete_front(common, nic, Status::Success);
        }
        Some(executed)
    }

    /// Ends the oldest request. Returns whether there was one.
    pub(crate) fn complete_front(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        status: Status,
    ) -> bool {
        // It is not moved out of the queue first: it is long.
        let Some(request) = self.requests.front() else {
            return false;
        };
        common.complete_send(nic, request.wqe(), status);
        self.requests.pop_front();
        if self.requests.is_empty() {
            // The next one goes where this one was, which is in the nearest cache. With many queue pairs, so is the address.
            self.requests.clear();
        }
        self.cursor = self.cursor.saturating_sub(1);
        true
    }

    /// Ends every request as flushed.
    pub(crate) fn flush(&mut self, common: &QpContext, nic: &mut NicResources) {
        while self.complete_front(common, nic, Status::Flushed) {}
    }

    /// Drops all requests without completions.
    pub(crate) fn clear(&mut self) {
        *self = SendQueue::default();
    }
}
