//! Routes events of the connection manager to their waiters: each listener and each connection has an [`EventChannel`]
//! of its own.
//!
//! The engine delivers with its lock held, so nothing here calls the engine: it queues the event and wakes the waiter.

use nonic_core::Qpn;
use nonic_core::cm::{CmEvent, ConnectionId, ListenerId};
use nonic_engine::{ConnectionSink, Doorbell};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A device's event channels, by listener and connection.
#[derive(Debug, Default)]
pub(crate) struct CmDispatcher {
    channels: Mutex<Channels>,
}

#[derive(Debug, Default)]
struct Channels {
    listeners: HashMap<ListenerId, Arc<EventChannel>>,
    connections: HashMap<ConnectionId, Arc<EventChannel>>,
}

impl CmDispatcher {
    pub(crate) fn listener(&self, id: ListenerId) -> Arc<EventChannel> {
        Arc::clone(self.lock().listeners.entry(id).or_default())
    }

    pub(crate) fn forget_listener(&self, id: ListenerId) -> Option<Arc<EventChannel>> {
        self.lock().listeners.remove(&id)
    }

    /// A connection's channel. Its first event may have been queued before this is called.
    pub(crate) fn connection(&self, id: ConnectionId) -> Arc<EventChannel> {
        Arc::clone(self.lock().connections.entry(id).or_default())
    }

    pub(crate) fn forget(&self, id: ConnectionId) {
        self.lock().connections.remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSink for CmDispatcher {
    fn deliver(&self, event: CmEvent) -> Option<Qpn> {
        // These events are a connection's last. The engine fails the queue pair, so that its waiters learn of it there.
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
        let channel = match listener {
            Some(listener) => self.listener(listener),
            None => self.connection(event.connection()),
        };
        channel.put(event);
        ended
    }
}

/// Why a connection ended.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let listener = nonic::Listener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let connecting = nonic::connect(domain.pair_builder::<nonic::Rc>(), listener.local_addr(), b"")?;
/// # let incoming = listener.accept_within(patience).ok_or("nobody came")?;
/// # let server = incoming.accept(domain.pair_builder::<nonic::Rc>(), b"")?;
/// # let client = connecting.wait()?;
/// let closed = server.closed();
/// client.disconnect();
/// assert_eq!(closed.wait(Some(patience)), Some(nonic::CloseReason::Disconnected));
/// # Ok(()) }
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer's program ended it, or the peer's process ended.
    #[error("the peer disconnected")]
    Disconnected,
    /// The peer took its acceptance back.
    #[error("the peer rejected the connection")]
    Rejected,
    /// The peer does not answer any more.
    #[error("the peer does not answer any more")]
    Unreachable,
    /// This program dropped the connection or shut it down.
    #[error("the connection was dropped or shut down by this program")]
    Local,
}

impl CloseReason {
    /// What an event says of the end, if it is one.
    fn of(event: &CmEvent) -> Option<Self> {
        match event {
            CmEvent::Disconnected { .. } => Some(CloseReason::Disconnected),
            CmEvent::Rejected { .. } => Some(CloseReason::Rejected),
            CmEvent::Unreachable { .. } => Some(CloseReason::Unreachable),
            _ => None,
        }
    }
}

/// Events for one listener or connection.
#[derive(Debug, Default)]
pub(crate) struct EventChannel {
    events: Mutex<VecDeque<CmEvent>>,
    /// The peer of a connection.
    peer: OnceLock<SocketAddr>,
    /// Whether both sides know of the connection. The accepting side learns it last.
    established: AtomicBool,
    /// Why the connection ended, if it has. Unlike an event it stays.
    ended: OnceLock<CloseReason>,
    doorbell: Doorbell,
}

impl EventChannel {
    fn put(&self, event: CmEvent) {
        if let Some(reason) = CloseReason::of(&event) {
            let _ = self.ended.set(reason);
        }
        if let CmEvent::Established { .. } = event {
            self.establish();
        }
        self.lock().push_back(event);
        self.doorbell.ring();
    }

    /// It is that of a connection to `peer`.
    pub(crate) fn belongs_to(&self, peer: SocketAddr) {
        let _ = self.peer.set(peer);
    }

    /// The peer of the connection, once there is one.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer.get().copied()
    }

    /// Both sides know of the connection.
    pub(crate) fn establish(&self) {
        self.established.store(true, Ordering::Relaxed);
    }

    /// Whether they do.
    pub(crate) fn is_established(&self) -> bool {
        self.established.load(Ordering::Relaxed)
    }

    /// The connection ends here, if it has not before.
    pub(crate) fn end(&self, reason: CloseReason) {
        let _ = self.ended.set(reason);
        self.doorbell.ring();
    }

    /// Why the connection ended, if it has.
    pub(crate) fn ended(&self) -> Option<CloseReason> {
        self.ended.get().copied()
    }

    /// Waits until it has, at most `timeout` (for ever without one).
    pub(crate) fn wait_ended(&self, timeout: Option<Duration>) -> Option<CloseReason> {
        let start = Instant::now();
        loop {
            let rings = self.doorbell.rings();
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            if self.ended().is_some() || left.is_some_and(|left| left.is_zero()) {
                return self.ended();
            }
            self.doorbell.sleep(rings, left);
        }
    }

    /// The same for a task.
    pub(crate) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<CloseReason> {
        self.doorbell.subscribe(context.waker());
        // An event that came before the subscription woke no task.
        self.ended().map_or(Poll::Pending, Poll::Ready)
    }

    /// The next event of which `pick` makes something; others are dropped.
    pub(crate) fn take<R>(&self, mut pick: impl FnMut(CmEvent) -> Option<R>) -> Option<R> {
        let mut events = self.lock();
        let found = std::iter::from_fn(|| events.pop_front()).find_map(&mut pick);
        if events.is_empty() {
            // Few come after the first, and there may be a hundred thousand connections.
            events.shrink_to_fit();
        }
        found
    }

    /// Waits for such an event, at most `timeout` (for ever without one).
    pub(crate) fn wait<R>(
        &self,
        timeout: Option<Duration>,
        mut pick: impl FnMut(CmEvent) -> Option<R>,
    ) -> Option<R> {
        let start = Instant::now();
        loop {
            let rings = self.doorbell.rings();
            if let Some(found) = self.take(&mut pick) {
                return Some(found);
            }
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            self.doorbell.sleep(rings, left);
        }
    }

    /// The same for a task.
    pub(crate) fn poll<R>(
        &self,
        context: &mut Context<'_>,
        mut pick: impl FnMut(CmEvent) -> Option<R>,
    ) -> Poll<R> {
        self.doorbell.subscribe(context.waker());
        // An event that came before the subscription woke no task.
        match self.take(&mut pick) {
            Some(found) => Poll::Ready(found),
            None => Poll::Pending,
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<CmEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
