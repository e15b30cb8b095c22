//! Doorbells, by which a thread or a task learns that a completion queue has something.
//!
//! There is one [`Doorbell`] per completion queue. The engine rings it and wakes sleepers (threads, tasks, a descriptor).
//! Rings are counted. A thread reads the count before it looks for what it waits for, and does not sleep if the bell has
//! rung since. So no ring is lost between looking and sleeping, and no thread takes a ring away from another.

use super::channel::Notify;
use crate::eventfd::EventFd;
use crate::os::poller::timespec;
#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};
use nonic_core::CqId;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::BorrowedFd;
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};
use std::sync::{OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

/// Wakes the threads and tasks that wait for a completion queue.
#[derive(Debug, Default)]
pub struct Doorbell {
    state: Mutex<State>,
    rung: Condvar,
    /// Made when a caller first asks for it.
    fd: OnceLock<EventFd>,
    /// The same for threads that sleep on other descriptors as well. No other code sees it, so it is only signalled while
    /// one of them sleeps.
    bedside: OnceLock<EventFd>,
}

#[derive(Debug, Default)]
struct State {
    /// How often it rang.
    rings: u64,
    wakers: Vec<Waker>,
    /// Threads that sleep on nothing else. Without any, ringing is no system call.
    asleep: u32,
    /// Threads that sleep on other descriptors as well.
    beside: u32,
}

impl Doorbell {
    /// How often it rang so far. Ask before looking for what a ring would announce, then sleep.
    pub fn rings(&self) -> u64 {
        self.lock().rings
    }

    /// Sleeps until the bell has rung more often than `seen`, at most `timeout`.
    pub fn sleep(&self, seen: u64, timeout: Option<Duration>) {
        let mut state = self.lock();
        state.asleep += 1;
        while state.rings == seen {
            state = match timeout {
                None => self.rung.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    let waited = self.rung.wait_timeout(state, timeout);
                    let (mut state, result) = waited.unwrap_or_else(PoisonError::into_inner);
                    if result.timed_out() {
                        state.asleep -= 1;
                        return;
                    }
                    // Woken for nothing: waits anew. Callers look at the clock themselves.
                    state
                }
            };
        }
        state.asleep -= 1;
    }

    /// Sleeps until the bell has rung more often than `seen` or one of `others` is readable, at most `timeout`. May end early.
    pub fn sleep_beside(
        &self,
        seen: u64,
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let bedside = made_once(&self.bedside)?;
        {
            let mut state = self.lock();
            if state.rings != seen {
                return Ok(());
            }
            state.beside += 1;
        }
        let bell = std::iter::once(PollFd::new(bedside, PollFlags::IN));
        let others = others.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> = bell.chain(others).collect();
        let slept = poll(&mut fds, timeout.map(timespec).as_ref());
        let mut state = self.lock();
        state.beside -= 1;
        // The last one up: those that sleep from now on have not been rung for. Under the lock, as ringing is.
        if state.beside == 0 {
            let _ = bedside.drain();
        }
        match slept {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Wakes `waker` at the next ring.
    pub fn subscribe(&self, waker: &Waker) {
        let mut state = self.lock();
        if !state.wakers.iter().any(|known| known.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
    }

    /// A descriptor that is readable from a ring until it is drained.
    pub fn fd(&self) -> io::Result<&EventFd> {
        made_once(&self.fd)
    }

    /// Wakes every sleeper, for a reason other than a completion.
    pub fn ring(&self) {
        let (wakers, asleep) = {
            let mut state = self.lock();
            state.rings += 1;
            if state.beside > 0 {
                if let Some(bedside) = self.bedside.get() {
                    let _ = bedside.signal();
                }
            }
            (std::mem::take(&mut state.wakers), state.asleep)
        };
        if asleep > 0 {
            self.rung.notify_all();
        }
        wakers.into_iter().for_each(Waker::wake);
        if let Some(fd) = self.fd.get() {
            let _ = fd.signal();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn made_once(place: &OnceLock<EventFd>) -> io::Result<&EventFd> {
    if let Some(fd) = place.get() {
        return Ok(fd);
    }
    let fd = EventFd::new()?;
    Ok(place.get_or_init(|| fd))
}

impl Notify for Doorbell {
    fn notify(&self, _cq: CqId) {
        self.ring();
    }

    fn descriptors(&self) -> usize {
        [&self.bedside, &self.fd]
            .into_iter()
            .filter(|made| made.get().is_some())
            .count()
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
            doorbell.sleep(0, None);
            ringer.join().unwrap();
        });
    }

    /// Two threads that wait for the same ring both get it.
    #[test]
    fn nobody_takes_a_ring_away_from_somebody_else() {
        loom::model(|| {
            let doorbell = Arc::new(Doorbell::default());
            let sleeper = {
                let doorbell = doorbell.clone();
                thread::spawn(move || doorbell.sleep(0, None))
            };
            let ringer = {
                let doorbell = doorbell.clone();
                thread::spawn(move || doorbell.ring())
            };
            doorbell.sleep(0, None);
            sleeper.join().unwrap();
            ringer.join().unwrap();
        });
    }
}
