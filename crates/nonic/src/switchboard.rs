//! Brings what the connection manager tells to whoever waits for it.
//!
//! The engine calls while it is locked, so nothing here calls the engine: events go to mailboxes, and bells ring.

use nonic_core::Qpn;
use nonic_core::cm::{CmEvent, ConnectionId, ListenerId};
use nonic_engine::{ConnectionSink, Doorbell};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A device's mailboxes.
#[derive(Debug, Default)]
pub(crate) struct Switchboard {
    boxes: Mutex<Boxes>,
}

#[derive(Debug, Default)]
struct Boxes {
    listeners: HashMap<ListenerId, Arc<Mailbox>>,
    connections: HashMap<ConnectionId, Arc<Mailbox>>,
}

impl Switchboard {
    pub(crate) fn listener(&self, id: ListenerId) -> Arc<Mailbox> {
        Arc::clone(self.lock().listeners.entry(id).or_default())
    }

    pub(crate) fn forget_listener(&self, id: ListenerId) -> Option<Arc<Mailbox>> {
        self.lock().listeners.remove(&id)
    }

    /// A connection's mailbox. Its first event may have come before anyone asked.
    pub(crate) fn connection(&self, id: ConnectionId) -> Arc<Mailbox> {
        Arc::clone(self.lock().connections.entry(id).or_default())
    }

    pub(crate) fn forget(&self, id: ConnectionId) {
        self.lock().connections.remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, Boxes> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSink for Switchboard {
    fn deliver(&self, event: CmEvent) -> Option<Qpn> {
        // Nothing comes any more: whoever waits at the queue pair is told there.
        let ended = match &event {
            CmEvent::Disconnected { qpn, .. }
            | CmEvent::Rejected { qpn, .. }
            | CmEvent::Unreachable { qpn, .. } => Some(*qpn),
            _ => None,
        };
        let listener = match &event {
            CmEvent::Request(request) => Some(request.listener),
            CmEvent::SidrRequest(request) => Some(request.listener),
            _ => None,
        };
        let mailbox = match listener {
            Some(listener) => self.listener(listener),
            None => self.connection(event.connection()),
        };
        mailbox.put(event);
        ended
    }
}

/// Events for one listener or connection.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    events: Mutex<VecDeque<CmEvent>>,
    bell: Doorbell,
}

impl Mailbox {
    fn put(&self, event: CmEvent) {
        self.lock().push_back(event);
        self.bell.ring();
    }

    /// The next event of which `pick` makes something; others are dropped.
    pub(crate) fn take<R>(&self, mut pick: impl FnMut(CmEvent) -> Option<R>) -> Option<R> {
        let mut events = self.lock();
        std::iter::from_fn(|| events.pop_front()).find_map(&mut pick)
    }

    /// Waits for such an event, at most `timeout` (for ever without one).
    pub(crate) fn wait<R>(
        &self,
        timeout: Option<Duration>,
        mut pick: impl FnMut(CmEvent) -> Option<R>,
    ) -> Option<R> {
        let start = Instant::now();
        loop {
            if let Some(found) = self.take(&mut pick) {
                return Some(found);
            }
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            self.bell.sleep(left);
        }
    }

    /// The same for a task.
    pub(crate) fn poll<R>(
        &self,
        context: &mut Context<'_>,
        mut pick: impl FnMut(CmEvent) -> Option<R>,
    ) -> Poll<R> {
        self.bell.subscribe(context.waker());
        // What came before subscribing woke nobody.
        match self.take(&mut pick) {
            Some(found) => Poll::Ready(found),
            None => Poll::Pending,
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<CmEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
