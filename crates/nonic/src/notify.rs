//! How a thread or a task learns that a completion queue has something.
//!
//! One [`Doorbell`] per completion queue. The engine rings it; sleepers (threads, tasks, a descriptor) are
//! woken. Rings are sticky until somebody has looked, so none is lost between arming and sleeping.

use nonic_core::CqId;
use nonic_engine::Notify;
use nonic_engine::eventfd::EventFd;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

/// A doorbell.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
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
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        let state = self.lock();
        let mut state = match timeout {
            None => self
                .rung
                .wait_while(state, |state| !state.rung)
                .unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.rung.wait_timeout_while(state, timeout, |state| !state.rung);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.rung = false;
    }

    /// Has `waker` woken at the next ring.
    pub(crate) fn subscribe(&self, waker: &Waker) {
        let mut state = self.lock();
        if !state.wakers.iter().any(|known| known.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
    }

    /// A descriptor that is readable from a ring until it is drained.
    pub(crate) fn fd(&self) -> io::Result<&EventFd> {
        if let Some(fd) = self.fd.get() {
            return Ok(fd);
        }
        let fd = EventFd::new()?;
        Ok(self.fd.get_or_init(|| fd))
    }

    /// Everyone should look, for a reason other than a completion.
    pub(crate) fn ring(&self) {
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
