//! Keepalive: probes of connections that may be idle for a long time, so that a dead peer is noticed.
//!
//! A probe is a request without bytes that the peer's NIC answers by itself: a WRITE, or over iWARP a READ, since an
//! iWARP WRITE completes as soon as it was sent. At most one probe per connection is under way. One that is not answered
//! in time ends the connection. Probes are a background task of each connection ([`crate::background`]).

use crate::background::{before, sleep_until, spawn};
use crate::cm_dispatcher::{CloseReason, EventChannel};
use crate::request::Pending;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
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
    let connection = Arc::clone(connection);
    // Without a thread the connection is as one that is not probed.
    let _ = spawn(probe_until_ended(target, connection, interval));
}

async fn probe_until_ended(target: Weak<dyn Probed>, connection: Arc<EventChannel>, interval: Duration) {
    loop {
        sleep_until(Instant::now() + interval).await;
        if connection.ended().is_some() {
            return;
        }
        // A peer that has not heard yet that it was accepted cannot answer. The connection manager sees to it meanwhile.
        if !connection.is_established() {
            continue;
        }
        // The connection is not kept alive by its probe.
        let Some(probe) = target.upgrade().map(|target| target.probe()) else {
            return;
        };
        let deadline = Instant::now() + interval.max(LEAST_PATIENCE);
        let answer = before(deadline, poll_fn(|context| probe.poll(context))).await;
        if matches!(answer, Some(Ok(_))) {
            continue;
        }
        if let Some(target) = target.upgrade().filter(|_| connection.ended().is_none()) {
            connection.end(CloseReason::Unreachable);
            target.give_up();
        }
        return;
    }
}
