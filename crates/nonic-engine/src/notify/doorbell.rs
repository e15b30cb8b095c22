//! How a thread or a task learns that a completion queue has something.
//!
//! One [`Doorbell`] per completion queue. The engine rings it; sleepers (threads, tasks, a descriptor) are
//! woken. Rings are sticky until somebody has looked, so none is lost between arming and sleeping.

use super::channel::Notify;
use crate::eventfd::EventFd;
#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};
use nonic_core::CqId;
use std::io;
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};
use std::sync::{OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

/// Wakes whoever waits for a completion queue.
#[derive(Debug, Default)]
pub struct Doorbell {
    state: Mutex<State>,
    rung: Condvar,
    /// Made when somebody first asks for it.
    fd: OnceLock<EventFd>,
}

#[derive(Debug, Default)]
struct State {
    rung: bool,
    wakers: Vec<Waker>,
}

impl Doorbell {
    /// Sleeps until the bell rings, at most `timeout`.
    pub fn sleep(&self, timeout: Option<Duration>) {
        let mut state = self.lock();
        while !state.rung {
            state = match timeout {
                None => self.rung.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    let waited = self.rung.wait_timeout(state, timeout);
                    let (state, result) = waited.unwrap_or_else(PoisonError::into_inner);
                    if result.timed_out() {
                        return;
                    }
                    // Woken for nothing: waits anew. Callers look at the clock themselves.
                    state
                }
            };
        }
        state.rung = false;
    }

    /// Has `waker` woken at the next ring.
    pub fn subscribe(&self, waker: &Waker) {
        let mut state = self.lock();
        if !state.wakers.iter().any(|known| known.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
    }

    /// A descriptor that is readable from a ring until it is drained.
    pub fn fd(&self) -> io::Result<&EventFd> {
        if let Some(fd) = self.fd.get() {
            return Ok(fd);
        }
        let fd = EventFd::new()?;
        Ok(self.fd.get_or_init(|| fd))
    }

    /// Everyone should look, for a reason other than a completion.
    pub fn ring(&self) {
        let wakers = {
            let mut state = self.lock();
            state.rung = true;
            std::mem::take(&mut state.wakers)
        };
        self.rung.notify_all();
        wakers.into_iter().for_each(Waker::wake);
        if let Some(fd) = self.fd.get() {
            let _ = fd.signal();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notify for Doorbell {
    fn notify(&self, _cq: CqId) {
        self.ring();
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// A ring before, during or after falling asleep ends the sleep. Loom reports a deadlock otherwise.
    #[test]
    fn no_ring_is_lost() {
        loom::model(|| {
            let doorbell = Arc::new(Doorbell::default());
            let ringer = {
                let doorbell = doorbell.clone();
                thread::spawn(move || doorbell.ring())
            };
            doorbell.sleep(None);
            ringer.join().unwrap();
        });
    }
}
