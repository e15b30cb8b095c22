//! A timer: wakes tasks at a time, on any runtime.
//!
//! One thread for the whole process, which exists only while a task waits. It does nothing but wake; the task it wakes drives.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

static TIMER: Timer = Timer {
    state: Mutex::new(State {
        due: BinaryHeap::new(),
        running: false,
    }),
    changed: Condvar::new(),
};

struct Timer {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    due: BinaryHeap<Reverse<Due>>,
    running: bool,
}

struct Due {
    at: Instant,
    waker: Waker,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

/// Has `waker` woken at a time. It cannot be cancelled: the woken task looks at the clock.
pub(crate) fn wake_at(at: Instant, waker: Waker) {
    let mut state = TIMER.lock();
    state.due.push(Reverse(Due { at, waker }));
    if !state.running {
        let thread = std::thread::Builder::new().name("nonic-timer".into());
        // Without a thread, tasks that wait for a time wait for the next event instead.
        state.running = thread.spawn(run).is_ok();
    }
    drop(state);
    TIMER.changed.notify_one();
}

fn run() {
    let mut state = TIMER.lock();
    while let Some(Reverse(first)) = state.due.peek() {
        let left = first.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let first = state.due.pop();
            drop(state);
            if let Some(Reverse(due)) = first {
                due.waker.wake();
            }
            state = TIMER.lock();
        } else {
            let waited = TIMER.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
    state.running = false;
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
