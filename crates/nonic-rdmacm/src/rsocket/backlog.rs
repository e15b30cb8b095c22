//! The queue of a socket that listens: requests that wait for room, and connections that wait for the program.

use super::identifier::Identifier;
use super::protocol::Hello;
use libc::c_int;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests that may wait for room. More are refused.
const MAX_WAITING: usize = 1024;

/// For so long after it began to listen a socket accepts no connection. A connection has the options that its listener
/// has when it is accepted, and some programs set them only after they began to listen: riostream says how much may be
/// mapped then. With sockets of the kernel that works, since the options of a connection can be changed at any time.
const SETTLING: Duration = Duration::from_millis(5);

/// The connections of a socket that listens. `S` is the socket of one.
pub(crate) struct Backlog<S> {
    identifier: Identifier,
    since: Instant,
    limit: usize,
    /// Accepted, and not established yet.
    accepting: usize,
    pub(super) established: VecDeque<Arc<S>>,
    waiting: VecDeque<Request>,
    /// The program has had enough.
    pub(super) is_shut_down: bool,
}

/// A peer's request to connect.
pub(super) struct Request {
    pub(super) identifier: Identifier,
    pub(super) hello: Hello,
}

impl<S> Backlog<S> {
    pub(super) fn new(identifier: Identifier, backlog: c_int) -> Self {
        Backlog {
            identifier,
            since: Instant::now(),
            limit: limit_of(backlog),
            accepting: 0,
            established: VecDeque::new(),
            waiting: VecDeque::new(),
            is_shut_down: false,
        }
    }

    /// For how much longer no connection is accepted.
    pub(super) fn settles_for(&self) -> Duration {
        SETTLING.saturating_sub(self.since.elapsed())
    }

    /// Whether another request may wait.
    pub(super) fn takes_requests(&self) -> bool {
        !self.is_shut_down && self.waiting.len() < MAX_WAITING
    }

    pub(super) fn push(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    pub(super) fn identifier(&self) -> &Identifier {
        &self.identifier
    }

    pub(super) fn set_backlog(&mut self, backlog: c_int) {
        self.limit = limit_of(backlog);
    }

    fn has_room(&self) -> bool {
        self.accepting + self.established.len() < self.limit
    }

    /// The next request that there is room for. It counts as accepted.
    pub(super) fn next_request(&mut self) -> Option<Request> {
        if !self.has_room() {
            return None;
        }
        let request = self.waiting.pop_front()?;
        self.accepting += 1;
        Some(request)
    }

    /// An accepted connection is established, or is not to be.
    pub(super) fn one_less_accepting(&mut self) {
        self.accepting = self.accepting.saturating_sub(1);
    }
}

/// How many connections wait at most: as many as the program says, and one at least.
fn limit_of(backlog: c_int) -> usize {
    backlog.max(1) as usize
}
