//! Waiting: tasks and threads that drive a channel until what they want is there, and that notice when the peer is gone.

use super::{PROBE, Shared, State};
use crate::error::Lost;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Before a thread sleeps in [`block_on`], it polls for so long.
const SPIN: Duration = Duration::from_micros(50);

/// The tasks that wait at a channel. All are woken: any of them might have been dropped, and then the others would sleep for ever.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    waiting: Mutex<Vec<Waker>>,
}

impl Tasks {
    fn join(&self, waker: &Waker) {
        let mut waiting = self.lock();
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    /// Wakes all tasks but the one that is awake, which stays on the list.
    fn wake_others(&self, awake: Option<&Waker>) {
        let others: Vec<Waker> = {
            let mut waiting = self.lock();
            if waiting.is_empty() {
                return;
            }
            let is_awake = |waker: &Waker| awake.is_some_and(|awake| awake.will_wake(waker));
            // It is listed once, if at all.
            let stays = waiting.iter().position(is_awake);
            if let Some(at) = stays {
                waiting.swap(0, at);
            }
            waiting.split_off(usize::from(stays.is_some()))
        };
        others.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Tasks {
    fn wake(self: Arc<Self>) {
        self.wake_others(None);
    }
}

/// How long nothing was heard of a peer that is waited for. A READ of nothing asks it; its NIC answers, whatever its program does.
#[derive(Debug)]
pub(super) struct Silence {
    interval: Duration,
    limit: Duration,
    /// Completions seen when it began, and when that was.
    completions: u64,
    since: Option<Instant>,
    asked: Option<Instant>,
    /// When tasks will be woken to look again.
    timer: Option<Instant>,
}

impl Silence {
    pub(super) fn new(interval: Duration, limit: Duration) -> Self {
        Silence {
            interval,
            limit,
            completions: 0,
            since: None,
            asked: None,
            timer: None,
        }
    }

    /// The peer's NIC has answered.
    pub(super) fn answered(&mut self) {
        self.asked = None;
    }
}

impl State {
    /// Called while a task or thread waits: probes the peer after a long silence. When to look again.
    fn watch(&mut self, now: Instant) -> Option<Instant> {
        if self.lost.is_some() {
            return None;
        }
        let silence = &mut self.silence;
        if silence.completions != self.completions || silence.since.is_none() {
            silence.completions = self.completions;
            silence.since = Some(now);
        }
        let since = silence.since.unwrap_or(now);
        match silence.asked {
            Some(asked) if now >= asked + silence.limit => self.fail(Lost::Silent),
            Some(asked) => return Some(asked + silence.limit),
            None if now >= since + silence.interval => {
                silence.asked = Some(now);
                silence.since = Some(now);
                let again = now + silence.limit;
                // Where there is no room, other requests ask as well.
                if self.read_nothing(PROBE).is_err() {
                    self.silence.asked = None;
                }
                return Some(again);
            }
            None => return Some(since + silence.interval),
        }
        None
    }
}

impl Shared {
    /// What is there without waiting; what `step` asked for is posted.
    pub(crate) fn with<R>(&self, step: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = step(&mut state);
        state.pump();
        result
    }

    /// Drives until `step` has an answer; if it has none yet, the task is woken when to ask again. `step` must do all or nothing.
    pub(crate) fn poll_with<R>(
        &self,
        context: &mut Context<'_>,
        mut step: impl FnMut(&mut State) -> Poll<R>,
    ) -> Poll<R> {
        let mut state = self.lock();
        let mut drove = false;
        let result = loop {
            let result = step(&mut state);
            state.pump();
            if result.is_ready() {
                break result;
            }
            if state.drive(&self.queue) {
                drove = true;
                continue;
            }
            self.tasks.join(context.waker());
            let waker = Waker::from(Arc::clone(&self.tasks));
            let next = pin!(self.queue.completion()).poll(&mut Context::from_waker(&waker));
            match next {
                Poll::Ready(Ok(completion)) => state.complete(completion),
                Poll::Ready(Err(_)) => state.fail(Lost::Exhausted),
                Poll::Pending => {
                    if !self.set_timer(&mut state, &waker) {
                        break result;
                    }
                }
            }
            drove = true;
        };
        drop(state);
        if drove {
            self.tell_others(Some(context.waker()), 0);
        }
        result
    }

    /// Has the tasks woken when it is time to look after the peer. Whether it is lost just now.
    fn set_timer(&self, state: &mut State, waker: &Waker) -> bool {
        let (now, alive) = (Instant::now(), state.lost.is_none());
        let Some(at) = state.watch(now) else {
            return alive;
        };
        if state.silence.timer.is_none_or(|timer| timer <= now || timer > at) {
            state.silence.timer = Some(at);
            nonic::background::wake_at(at, waker.clone());
        }
        false
    }

    /// The same for a thread, at most until `deadline`.
    pub(crate) fn wait_with<R>(
        &self,
        deadline: Option<Instant>,
        mut step: impl FnMut(&mut State) -> Poll<R>,
    ) -> Option<R> {
        if let Poll::Ready(result) = self.with(&mut step) {
            return Some(result);
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let result = self.drive_until(deadline, step);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn drive_until<R>(
        &self,
        deadline: Option<Instant>,
        mut step: impl FnMut(&mut State) -> Poll<R>,
    ) -> Option<R> {
        loop {
            let seen = self.generation.load(Ordering::SeqCst);
            let mut state = self.lock();
            let drove = state.drive(&self.queue);
            let result = step(&mut state);
            state.pump();
            let watch = match result {
                Poll::Pending if !drove => Some(state.watch(Instant::now())),
                _ => None,
            };
            drop(state);
            if drove {
                self.tell_others(None, 1);
            }
            if let Poll::Ready(result) = result {
                return Some(result);
            }
            // Sleeps only when there was nothing to do.
            let Some(look_again) = watch else {
                continue;
            };
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return None;
            }
            let until = [deadline, look_again].into_iter().flatten().min();
            let left = until.map(|until| until.saturating_duration_since(now));
            let woken = || self.generation.load(Ordering::SeqCst) != seen;
            if self.queue.wait_until(left, woken).is_err() {
                self.lock().fail(Lost::Exhausted);
            }
        }
    }

    /// Something was found that may be for others: tasks, and threads beyond so many.
    pub(crate) fn tell_others(&self, awake: Option<&Waker>, own: usize) {
        self.tasks.wake_others(awake);
        if self.sleepers.load(Ordering::SeqCst) > own {
            self.generation.fetch_add(1, Ordering::SeqCst);
            self.queue.wake();
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a future: polls for a moment, which drives the NIC, and then sleeps until it is woken.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    let poll = |future: &mut Pin<&mut F>| future.as_mut().poll(&mut Context::from_waker(&waker));
    loop {
        let start = Instant::now();
        // At least once: what woke us is not announced again.
        loop {
            if let Poll::Ready(result) = poll(&mut future) {
                return result;
            }
            if start.elapsed() >= SPIN {
                break;
            }
        }
        std::thread::park();
    }
}
