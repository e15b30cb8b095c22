//! The park protocol between the program's threads and the background thread: which of them watches the descriptors, and
//! which must be woken.
//!
//! Two promises, explored by the models at the end of this file, of `turn.rs` and of `waiters.rs` (`cargo xtask loom`):
//! - a thread that sets a timer wakes the background thread if that would sleep past the timer;
//! - a program that goes to sleep while the background thread keeps away calls it back. There is one race in which the
//!   program cannot know that the thread keeps away, because it is just about to; then the thread comes back by itself
//!   after a nap.
//!
//! This module takes no lock and never waits.
//!
//! It does not sleep, signal or read clocks either. The caller brings a [`Wake`].

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Polls since the background thread last looked that count as a polling program, which it leaves alone.
const BUSY_POLLS: u32 = 8;

/// Something that ends the background thread's sleep, now or as soon as it tries to sleep.
pub(crate) trait Wake {
    fn wake(&self);
}

/// What both sides know of each other.
#[derive(Debug)]
pub(crate) struct ParkProtocol<W> {
    pub(crate) wake: W,
    /// Polls by the program, ever; wraps.
    polls: AtomicU32,
    /// What it was when the background thread last looked.
    polls_seen: AtomicU32,
    /// A thread of the program's has watched the descriptors since then.
    watched: AtomicBool,
    /// Tasks of the program's that watch the descriptors.
    runtimes: AtomicU32,
    /// The background thread keeps away from the sockets.
    aside: AtomicBool,
    /// It does so for so long that a thread which waits for its return wakes it.
    naps_long: AtomicBool,
    /// Until when the background thread sleeps if nothing happens; zero while it is awake.
    asleep_until_ns: AtomicU64,
}

impl<W: Wake> ParkProtocol<W> {
    pub(crate) fn new(wake: W) -> Self {
        ParkProtocol {
            wake,
            polls: AtomicU32::new(0),
            polls_seen: AtomicU32::new(0),
            watched: AtomicBool::new(false),
            runtimes: AtomicU32::new(0),
            aside: AtomicBool::new(false),
            naps_long: AtomicBool::new(false),
            asleep_until_ns: AtomicU64::new(0),
        }
    }

    /// The program polled. Threads that count at the same time lose a count, which changes nothing.
    #[inline]
    pub(crate) fn polled(&self) {
        let polls = self.polls.load(Ordering::Relaxed);
        self.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
    }

    /// A thread of the program's sleeps on the descriptors itself and seldom for long, which is as good as polling.
    pub(crate) fn watched(&self) {
        self.watched.store(true, Ordering::Relaxed);
    }

    /// A task of the program's watches the descriptors from now on: packets wake its runtime, and the background thread gives it
    /// time to take them.
    pub(crate) fn runtime_came(&self) {
        self.runtimes.fetch_add(1, Ordering::SeqCst);
    }

    /// The task stopped watching.
    pub(crate) fn runtime_left(&self) {
        self.runtimes.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a task of the program's watches the descriptors.
    pub(crate) fn has_runtime(&self) -> bool {
        self.runtimes.load(Ordering::SeqCst) > 0
    }

    /// The program is about to sleep and relies on the background thread from now on. If it relies on a task of its own,
    /// the thread is left where it is: should the task not come, the thread is back after a nap.
    pub(crate) fn call_back(&self) {
        if self.has_runtime() {
            return;
        }
        self.look();
        if self.aside.load(Ordering::SeqCst) {
            self.wake.wake();
        }
    }

    /// A thread of the program is about to sleep that relies on another, and on the background thread if that other does not
    /// come back. It waits for the end of a short nap. Called after the thread was counted as a follower.
    pub(crate) fn call_back_from_long_nap(&self) {
        fence(Ordering::SeqCst);
        if self.naps_long.load(Ordering::SeqCst) && !self.has_runtime() {
            self.wake.wake();
        }
    }

    /// The background thread is about to nap, for long if it likes. Whether it may: not if there are followers.
    pub(crate) fn begin_nap(&self, long: bool, has_followers: impl FnOnce() -> bool) -> bool {
        self.naps_long.store(long, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if long && has_followers() {
            self.naps_long.store(false, Ordering::SeqCst);
            return false;
        }
        long
    }

    /// Whether the background thread sleeps, or is about to. Called in a turn: it does not fall asleep meanwhile.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep_until_ns.load(Ordering::SeqCst) != 0
    }

    /// A timer is due at `at_ns`. Called in a turn, as [`ParkProtocol::fall_asleep`] is.
    pub(crate) fn timer_set(&self, at_ns: u64) {
        if at_ns < self.asleep_until_ns.load(Ordering::SeqCst) {
            // One wake-up is enough; the background thread asks for the timers again.
            self.asleep_until_ns.store(0, Ordering::SeqCst);
            self.wake.wake();
        }
    }

    /// For the background thread: whether the program polls so eagerly that it is better to keep away. Counts anew.
    pub(crate) fn program_polls(&self) -> bool {
        self.look() >= BUSY_POLLS
    }

    /// The same while it keeps away: whether the program polls at all. Counts anew.
    pub(crate) fn program_polled(&self) -> bool {
        self.look() > 0
    }

    /// Polls since the last look. A thread that watches counts as one that polls.
    fn look(&self) -> u32 {
        let polls = self.polls.load(Ordering::Relaxed);
        let seen = self.polls_seen.swap(polls, Ordering::Relaxed);
        match self.watched.swap(false, Ordering::Relaxed) {
            true => BUSY_POLLS,
            false => polls.wrapping_sub(seen),
        }
    }

    /// The same for a thread that only wants to know, and counts on.
    pub(crate) fn seems_polled(&self) -> bool {
        let seen = self.polls_seen.load(Ordering::Relaxed);
        self.watched.load(Ordering::Relaxed) || self.polls().wrapping_sub(seen) >= BUSY_POLLS
    }

    /// Where the count of polls is.
    pub(crate) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// The background thread keeps away (`true`) or is back.
    pub(crate) fn set_aside(&self, aside: bool) {
        self.aside.store(aside, Ordering::SeqCst);
    }

    /// Whether the background thread keeps away. If so, it has yet to take a turn and look at everything, after its nap:
    /// it does so each time it comes back.
    pub(crate) fn is_aside(&self) -> bool {
        self.aside.load(Ordering::SeqCst)
    }

    /// The background thread will sleep until then. Called in a turn, after the timers were read: a thread that sets an
    /// earlier one has a later turn and sees this.
    pub(crate) fn fall_asleep(&self, until_ns: u64) {
        self.asleep_until_ns.store(until_ns, Ordering::SeqCst);
    }

    /// Whether the background thread sleeps until something happens.
    #[cfg(test)]
    pub(crate) fn sleeps_without_timer(&self) -> bool {
        self.asleep_until_ns.load(Ordering::SeqCst) == u64::MAX
    }

    /// The background thread is awake.
    pub(crate) fn woke(&self) {
        self.asleep_until_ns.store(0, Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
pub(super) mod models {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// An eventfd: sticky until drained.
    #[derive(Default)]
    pub(in super::super) struct Bell {
        rung: Mutex<bool>,
        changed: Condvar,
    }

    impl Wake for Bell {
        fn wake(&self) {
            *self.rung.lock().unwrap() = true;
            self.changed.notify_all();
        }
    }

    impl Bell {
        pub(in super::super) fn sleep(&self) {
            let mut rung = self.rung.lock().unwrap();
            while !*rung {
                rung = self.changed.wait(rung).unwrap();
            }
            *rung = false;
        }
    }

    /// A program sets a timer while the background thread goes to sleep without one. Loom reports a deadlock
    /// if there is an interleaving in which the thread never learns of it.
    #[test]
    fn a_timer_is_never_overslept() {
        loom::model(|| {
            let timer = Arc::new(Mutex::new(None::<u64>));
            let park = Arc::new(ParkProtocol::new(Bell::default()));
            let background = {
                let (timer, park) = (timer.clone(), park.clone());
                thread::spawn(move || {
                    loop {
                        let until = {
                            let timer = timer.lock().unwrap();
                            let until = timer.unwrap_or(u64::MAX);
                            park.fall_asleep(until);
                            until
                        };
                        if until != u64::MAX {
                            return until;
                        }
                        park.wake.sleep();
                        park.woke();
                    }
                })
            };
            {
                let mut timer = timer.lock().unwrap();
                *timer = Some(7);
                park.timer_set(7);
            }
            assert_eq!(background.join().unwrap(), 7);
        });
    }

    /// A program that polled goes to sleep while the background thread is aside: it is called back.
    #[test]
    fn a_thread_that_is_aside_is_called_back() {
        loom::model(|| {
            let park = Arc::new(ParkProtocol::new(Bell::default()));
            park.set_aside(true);
            let background = {
                let park = park.clone();
                thread::spawn(move || {
                    park.wake.sleep();
                    park.set_aside(false);
                })
            };
            park.call_back();
            background.join().unwrap();
        });
    }
}
