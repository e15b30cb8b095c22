//! The outcome of one awaited request, and its waiter: a future, or a thread that sleeps.
//!
//! A thread that takes completions out of the queue delivers them here, so it need not know which task a completion is for.

use crate::completion::Completion;
use crate::refused::Refused;
use crate::span::Span;
use nonic_core::CqOverflow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The NIC is done with it, well or not; if not, with the peer of its connection.
    Completed(Completion, Option<SocketAddr>),
    /// The NIC did not take it.
    Refused(Refused),
    /// Its queue pair is gone.
    Closed(crate::memory::Buffers),
    /// It was none: no request of a work queue is under way any more.
    Drained,
    /// Completions were lost, and this may have been one.
    Overflow(CqOverflow),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Completed(completion, _) => match completion.result {
                Ok(_) => f.write_str("success"),
                Err(status) => status.fmt(f),
            },
            Outcome::Refused(refused) => refused.error.fmt(f),
            Outcome::Closed(_) => f.write_str("the queue pair was dropped"),
            Outcome::Drained => f.write_str("drained"),
            Outcome::Overflow(overflow) => overflow.fmt(f),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ticket {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
    /// Whether a thread sleeps until it is there.
    sleeper: bool,
    /// Whether the queue's doorbell wakes it.
    at_the_doorbell: bool,
    /// Open until it is delivered.
    span: Span,
}

impl Ticket {
    /// For a request that `span` covers.
    pub(crate) fn told_by(span: Span) -> Self {
        let state = State {
            span,
            ..State::default()
        };
        Ticket {
            state: Mutex::new(state),
        }
    }

    /// Stores the outcome and wakes the task. Whether a sleeping thread must be woken, too.
    pub(crate) fn deliver(&self, outcome: Outcome) -> bool {
        let (waker, sleeper) = {
            let mut state = self.lock();
            state.span.end(&outcome);
            state.outcome = Some(outcome);
            (state.waker.take(), state.sleeper)
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        sleeper
    }

    /// The outcome, once.
    pub(crate) fn take(&self) -> Option<Outcome> {
        self.lock().outcome.take()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.lock().outcome.is_some()
    }

    /// The outcome; if there is none yet, `waker` is woken when there is.
    pub(crate) fn take_or_wake(&self, waker: &Waker) -> Option<Outcome> {
        let mut state = self.lock();
        let outcome = state.outcome.take();
        if outcome.is_none() {
            match &mut state.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
        outcome
    }

    /// A thread is about to sleep until it is done.
    pub(crate) fn will_sleep(&self) {
        self.lock().sleeper = true;
    }

    /// From now on the queue's doorbell wakes it. Whether it did not before.
    pub(crate) fn is_new_at_the_doorbell(&self) -> bool {
        !std::mem::replace(&mut self.lock().at_the_doorbell, true)
    }

    /// The doorbell rang: the waiting task should poll the queue.
    pub(crate) fn rouse(&self) {
        let waker = {
            let mut state = self.lock();
            state.at_the_doorbell = false;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
