//! Keepalive: probes of connections that may be idle for a long time, so that a dead peer is noticed.
//!
//! One thread probes for the whole process, as long as there is a connection to probe. A probe is a request without
//! bytes that the peer's NIC answers by itself: a WRITE, or over iWARP a READ, since an iWARP WRITE completes as soon
//! as it was sent. At most one probe per connection is under way; one that is not answered in time ends the connection.

use crate::cm_dispatcher::{CloseReason, EventChannel};
use crate::request::Pending;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// The shortest wait for an answer: a peer with a busy processor is not dead.
const LEAST_PATIENCE: Duration = Duration::from_secs(2);

/// What is probed.
pub(crate) trait Probed: Send + Sync {
    /// Asks the peer for an answer.
    fn probe(&self) -> Pending;

    /// The peer does not answer: nothing is of use any more.
    fn give_up(&self);
}

/// Has a connection probed every `interval`, until it ends or is dropped.
pub(crate) fn keep_alive(target: Weak<dyn Probed>, connection: &Arc<EventChannel>, interval: Duration) {
    // As often as a thread can do it for many.
    let interval = interval.max(Duration::from_millis(1));
    let watch = Watch {
        target,
        connection: Arc::clone(connection),
        interval,
        next: Instant::now() + interval,
        probe: None,
    };
    prober().add(watch);
}

/// A connection that is probed.
struct Watch {
    target: Weak<dyn Probed>,
    connection: Arc<EventChannel>,
    interval: Duration,
    /// When the next probe is sent.
    next: Instant,
    /// The probe that is not answered yet, and when it is given up.
    probe: Option<(Pending, Instant)>,
}

impl Watch {
    /// When to look again; `None` if that is not needed any more.
    fn look(&mut self, now: Instant, waker: &Waker) -> Option<Instant> {
        let target = self.target.upgrade()?;
        if self.connection.ended().is_some() {
            return None;
        }
        if self.probe.is_none() && now < self.next {
            return Some(self.next);
        }
        let (probe, deadline) = self.probe.get_or_insert_with(|| {
            let patience = self.interval.max(LEAST_PATIENCE);
            (target.probe(), now + patience)
        });
        match probe.poll(&mut Context::from_waker(waker)) {
            Poll::Ready(Ok(_)) => {
                self.probe = None;
                self.next = now + self.interval;
                Some(self.next)
            }
            Poll::Pending if now < *deadline => Some(*deadline),
            _ => {
                self.connection.end(CloseReason::Unreachable);
                target.give_up();
                None
            }
        }
    }
}

fn prober() -> &'static Prober {
    static PROBER: OnceLock<Prober> = OnceLock::new();
    PROBER.get_or_init(Prober::default)
}

/// All connections that are probed.
#[derive(Default)]
struct Prober {
    watches: Mutex<Watches>,
    changed: Condvar,
}

#[derive(Default)]
struct Watches {
    /// By number, with when they are to be looked at.
    all: HashMap<u64, (Instant, Watch)>,
    /// The same in order.
    due: BTreeSet<(Instant, u64)>,
    /// Numbers of watches whose probe may have been answered.
    answered: Vec<u64>,
    next: u64,
    has_thread: bool,
}

impl Prober {
    fn add(&'static self, watch: Watch) {
        let mut watches = self.lock();
        let number = watches.next;
        watches.next += 1;
        watches.insert(number, watch.next, watch);
        if !watches.has_thread {
            let thread = std::thread::Builder::new().name("nonic-keepalive".to_owned());
            // Without a thread the connection is as one that is not probed; the next one tries again.
            watches.has_thread = thread.spawn(|| self.run()).is_ok();
        }
        self.changed.notify_one();
    }

    fn run(&'static self) {
        let mut watches = self.lock();
        loop {
            let now = Instant::now();
            let Some((number, mut watch)) = watches.next_due(now) else {
                let Some((at, _)) = watches.due.first().copied() else {
                    watches.has_thread = false;
                    return;
                };
                let left = at.saturating_duration_since(now);
                let slept = self.changed.wait_timeout(watches, left);
                watches = slept.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            };
            // Probing takes the device's locks, and the device's threads wake us.
            drop(watches);
            let waker = Waker::from(Arc::new(Answered(number)));
            let again = watch.look(now, &waker);
            watches = self.lock();
            match again {
                Some(at) => watches.insert(number, at, watch),
                // The last share of a device may be in it, and with that its threads end.
                None => {
                    drop(watches);
                    drop(watch);
                    watches = self.lock();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watches> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watches {
    /// Takes out one that is to be looked at now.
    fn next_due(&mut self, now: Instant) -> Option<(u64, Watch)> {
        while let Some(number) = self.answered.pop() {
            if let Some(watch) = self.remove(number) {
                return Some((number, watch));
            }
        }
        let (at, number) = *self.due.first()?;
        match at <= now {
            true => self.remove(number).map(|watch| (number, watch)),
            false => None,
        }
    }

    fn insert(&mut self, number: u64, at: Instant, watch: Watch) {
        self.due.insert((at, number));
        self.all.insert(number, (at, watch));
    }

    fn remove(&mut self, number: u64) -> Option<Watch> {
        let (at, watch) = self.all.remove(&number)?;
        self.due.remove(&(at, number));
        Some(watch)
    }
}

/// Wakes the thread for the one of this number.
struct Answered(u64);

impl Wake for Answered {
    fn wake(self: Arc<Self>) {
        let prober = prober();
        prober.lock().answered.push(self.0);
        prober.changed.notify_one();
    }
}
