//! Waiting for a socket: a thread polls for a moment, then sleeps.

use super::patience::Wait;
use super::settings::Defaults;
use super::wait_limit::WaitLimit;
use super::waker::{Waiters, Waker};
use libc::pollfd;
use nonic_abi::errno::{Errno, expected};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

/// A socket that can be waited for.
pub(crate) trait Waitable {
    type State: Progress;

    fn lock(&self) -> MutexGuard<'_, Self::State>;
}

/// What happens to a socket's state by itself.
pub(crate) trait Progress {
    /// Takes what has completed; tells whether anything had.
    fn advance(&mut self) -> bool;

    /// The next completion makes one of the descriptors readable that are added to `polled`.
    fn arm(&mut self, polled: &mut Vec<pollfd>);

    /// Takes the events of these descriptors.
    fn disarm(&mut self, polled: &[pollfd]);

    fn waiters(&mut self) -> &mut Waiters;

    /// What `poll` would say of it.
    fn events(&mut self, wanted: i16) -> i16;

    /// After how long a silence its peer should be asked whether it is alive.
    fn silence(&self) -> Option<Duration>;

    /// Asks it. A peer that is not there makes the connection end.
    fn probe(&mut self);

    /// Lets it move; wakes the threads that may care.
    fn progress(&mut self) {
        if self.advance() {
            self.waiters().wake();
        }
    }

    /// Asks to be woken. What the caller waits for may be there already: it has to look again.
    fn prepare_to_wait(&mut self, waker: &Waker, polled: &mut Vec<pollfd>) {
        self.arm(polled);
        // What completed before it was armed makes no event.
        self.progress();
        self.waiters().add(waker);
    }

    /// Done waiting: `polled` is what [`prepare_to_wait`](Self::prepare_to_wait) added.
    fn waited(&mut self, waker: &Waker, polled: &[pollfd]) {
        self.waiters().remove(waker);
        if polled.iter().any(|polled| polled.revents != 0) {
            self.disarm(polled);
        }
    }
}

/// A socket that can be waited for beside others, of whatever kind they are.
pub(crate) trait Pollable {
    /// What there is now.
    fn check(&self, wanted: i16) -> i16;

    /// What there is now. The thread will be woken when there is more.
    fn prepare_to_wait(&self, wanted: i16, waker: &Waker, polled: &mut Vec<pollfd>) -> i16;

    /// Done waiting: `polled` is what [`prepare_to_wait`](Self::prepare_to_wait) added.
    fn waited(&self, waker: &Waker, polled: &[pollfd]);

    /// After how long a silence its peer should be asked whether it is alive.
    fn silence(&self) -> Option<Duration>;

    /// Asks it.
    fn probe(&self);
}

impl<S: Waitable> Pollable for S {
    fn check(&self, wanted: i16) -> i16 {
        let mut state = self.lock();
        state.progress();
        state.events(wanted)
    }

    fn prepare_to_wait(&self, wanted: i16, waker: &Waker, polled: &mut Vec<pollfd>) -> i16 {
        let mut state = self.lock();
        state.prepare_to_wait(waker, polled);
        state.events(wanted)
    }

    fn waited(&self, waker: &Waker, polled: &[pollfd]) {
        self.lock().waited(waker, polled);
    }

    fn silence(&self) -> Option<Duration> {
        self.lock().silence()
    }

    fn probe(&self) {
        self.lock().probe();
    }
}

/// Waits until `ready`; `EAGAIN` if it may not wait, or not any longer.
pub(crate) fn wait<'a, S: Waitable>(
    socket: &'a S,
    mut state: MutexGuard<'a, S::State>,
    limit: WaitLimit,
    ready: impl Fn(&mut S::State) -> bool,
) -> Result<MutexGuard<'a, S::State>, Errno> {
    let mut wait = None;
    loop {
        state.progress();
        if ready(&mut state) {
            return Ok(state);
        }
        if limit.is_over() {
            return Err(expected(libc::EAGAIN));
        }
        let now = Instant::now();
        if wait
            .get_or_insert_with(|| Wait::begin(now, Defaults::read().polling_time))
            .looks(now)
        {
            // Others may use the socket meanwhile.
            drop(state);
            std::hint::spin_loop();
            state = socket.lock();
            continue;
        }
        state = sleep(socket, state, limit.deadline, &ready)?;
    }
}

/// Sleeps until something happens, unless `ready`.
fn sleep<'a, S: Waitable>(
    socket: &'a S,
    mut state: MutexGuard<'a, S::State>,
    deadline: Option<Instant>,
    ready: &impl Fn(&mut S::State) -> bool,
) -> Result<MutexGuard<'a, S::State>, Errno> {
    let waker = Waker::own()?;
    let mut polled = Vec::with_capacity(2);
    state.prepare_to_wait(&waker, &mut polled);
    if ready(&mut state) {
        state.waited(&waker, &[]);
        return Ok(state);
    }
    let probe_at = state.silence().map(|silence| Instant::now() + silence);
    drop(state);
    let waited = waker.wait(&mut polled, earlier(deadline, probe_at));
    let mut state = socket.lock();
    state.waited(&waker, &polled);
    if waited == Ok(false) && probe_at.is_some_and(|probe_at| Instant::now() >= probe_at) {
        state.probe();
    }
    waited.map(|_| state)
}

/// The earlier of two moments that may never come.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
