//! The device's connection manager, which stands above its shards.
//!
//! Messages may come to any shard, and any shard may send them; what they say concerns the device. So the manager has a
//! lock of its own. The order of locks is: a shard's turn, then this lock, then whatever the program's [`ConnectionSink`]
//! locks. No thread takes a turn while it holds this lock: a queue pair that is to fail is listed for its shard, and the
//! shard is woken. Atomics beside the lock tell a polling thread without the lock whether there is something to do.

use super::map::ShardMap;
use crate::log;
use crate::os::entropy::KernelEntropy;
use nonic_core::Time;
use nonic_core::cm::{Cm, CmConfig, CmEvent};
use nonic_wire::Qpn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Receives the events of connections. Called in a shard's turn with the connection manager locked: it must not call the
/// device.
pub trait ConnectionSink: Send + Sync {
    /// Something happened. Answers a queue pair that is to go to the error state because of it, so that threads that wait
    /// for its requests learn of it.
    fn deliver(&self, event: CmEvent) -> Option<Qpn>;
}

/// The connection manager, the sink of its events, and what the shards are to do about them.
pub(crate) struct ConnectionManager {
    state: Mutex<State>,
    map: Arc<ShardMap>,
    /// When the manager's next timer is due; `u64::MAX` is never.
    due_ns: AtomicU64,
    /// There are messages to send or events to deliver.
    has_output: AtomicBool,
    /// By shard.
    failing: Box<[Failing]>,
    /// Wakes a shard.
    wake: OnceLock<Box<dyn Fn(usize) + Send + Sync>>,
}

/// Queue pairs of one shard whose connection has ended, and which are to go to the error state.
#[derive(Default)]
struct Failing {
    any: AtomicBool,
    qpns: Mutex<Vec<Qpn>>,
}

struct State {
    cm: Cm,
    sink: Option<Arc<dyn ConnectionSink>>,
}

impl ConnectionManager {
    /// Before it is known which connection identifiers are the device's own; see [`ConnectionManager::install`].
    pub(crate) fn new(map: Arc<ShardMap>) -> Self {
        let cm = Cm::new(CmConfig::default(), Box::new(KernelEntropy::new()));
        ConnectionManager {
            state: Mutex::new(State { cm, sink: None }),
            due_ns: AtomicU64::new(u64::MAX),
            has_output: AtomicBool::new(false),
            failing: (0..map.shards()).map(|_| Failing::default()).collect(),
            map,
            wake: OnceLock::new(),
        }
    }

    /// Takes up the manager that knows them.
    pub(crate) fn install(&self, cm: Cm) {
        self.lock().cm = cm;
    }

    /// Names what wakes a shard.
    pub(crate) fn set_wake(&self, wake: Box<dyn Fn(usize) + Send + Sync>) {
        // There is one device, which does it once.
        let _ = self.wake.set(wake);
    }

    /// Sets the sink that receives the events of connections from now on.
    pub(crate) fn set_sink(&self, sink: Arc<dyn ConnectionSink>) {
        self.lock().sink = Some(sink);
    }

    /// Uses the manager. The shard whose turn it is sends its messages and delivers its events.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut Cm) -> T) -> T {
        let mut state = self.lock();
        let result = call(&mut state.cm);
        let due_ns = state.cm.poll_timeout().map_or(u64::MAX, Time::as_ns);
        self.due_ns.store(due_ns, Ordering::SeqCst);
        self.has_output.store(state.cm.has_output(), Ordering::SeqCst);
        result
    }

    /// When [`ConnectionManager::handle_timeout`] has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        match self.due_ns.load(Ordering::SeqCst) {
            u64::MAX => None,
            due_ns => Some(Time::from_ns(due_ns)),
        }
    }

    /// Runs the manager's timers that are due.
    pub(crate) fn handle_timeout(&self, now: Time) {
        if self.next_timeout().is_some_and(|at| at <= now) {
            self.with(|cm| cm.handle_timeout(now));
        }
    }

    /// Whether there are messages to send or events to deliver.
    pub(crate) fn has_output(&self) -> bool {
        self.has_output.load(Ordering::SeqCst)
    }

    /// Delivers all events to the program's sink, in order whichever shard does it. A queue pair that is to fail because of
    /// one is given to its shard.
    pub(crate) fn tell(&self) {
        if !self.has_output() {
            return;
        }
        let mut state = self.lock();
        while let Some(event) = state.cm.poll_event() {
            log::tell_connection(&event);
            if let Some(qpn) = state.sink.as_ref().and_then(|sink| sink.deliver(event)) {
                self.fail(qpn);
            }
        }
        self.has_output.store(state.cm.has_output(), Ordering::SeqCst);
    }

    /// Delivers an event that is not the manager's to the sink.
    pub(crate) fn tell_of(&self, event: CmEvent) {
        log::tell_connection(&event);
        let sink = self.lock().sink.clone();
        if let Some(qpn) = sink.and_then(|sink| sink.deliver(event)) {
            self.fail(qpn);
        }
    }

    fn fail(&self, qpn: Qpn) {
        let shard = self.map.shard_of(qpn);
        let failing = &self.failing[shard];
        let mut qpns = failing.qpns.lock().unwrap_or_else(PoisonError::into_inner);
        qpns.push(qpn);
        failing.any.store(true, Ordering::SeqCst);
        // With one shard, the caller is at it.
        if let (Some(wake), true) = (self.wake.get(), self.map.shards() > 1) {
            wake(shard);
        }
    }

    /// Wakes all shards.
    pub(crate) fn wake_all(&self) {
        if let Some(wake) = self.wake.get() {
            (0..self.map.shards()).for_each(wake);
        }
    }

    /// Whether there are queue pairs of a shard that are to fail.
    pub(crate) fn has_failing(&self, shard: usize) -> bool {
        self.failing[shard].any.load(Ordering::SeqCst)
    }

    /// Takes the queue pairs of a shard that are to fail.
    pub(crate) fn take_failing(&self, shard: usize) -> Vec<Qpn> {
        let failing = &self.failing[shard];
        let mut qpns = failing.qpns.lock().unwrap_or_else(PoisonError::into_inner);
        failing.any.store(false, Ordering::SeqCst);
        std::mem::take(&mut *qpns)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
