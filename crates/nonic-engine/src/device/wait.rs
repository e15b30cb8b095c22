//! Waiting for completions: a thread blocked on a completion queue polls the sockets itself.
//!
//! Were it only to sleep until it is notified, a packet would wake the background thread, and that thread the program's:
//! two wake-ups, one after the other, each several times as long as the packet takes. So a thread that waits
//!
//! 1. polls for packets for a moment, if they have come quickly of late ([`Spin`]);
//! 2. then sleeps on the descriptors of the shards and on its own at once, and runs the I/O loop when it is woken. While
//!    its waits are short, the background thread keeps away as it does from a program that polls.
//!
//! Nothing is lost between polling and sleeping. What arrives stays readable in the shards' descriptors until a thread
//! reads it. The thread that reads it, this one or another, publishes the completions that follow. That makes the waiting
//! thread's own descriptor readable, unless the thread is awake and will look at its queue before it sleeps. The background
//! thread serves timers as ever: asleep it knows when they are due; keeping away it is back after a nap.
//!
//! While another thread of the program polls, that thread runs the I/O loop, and a thread that waits is a bystander: it
//! sleeps until it is notified. Should the other stop polling, the background thread is back after two naps.
//!
//! It costs nothing to wait for long: a thread that finds nothing soon sleeps without a timeout. Several threads that wait
//! do not all wake for each packet ([`Waiters`](crate::driver::waiters::Waiters)). A thread that waits with `epoll` on a
//! descriptor of ours does not come here: there the background thread runs the I/O loop.
//!
//! Read first: [`Device::wait_step`].

use super::{Device, Inner};
use crate::driver::spin::{DISTURBANCE, Spin};
use crate::driver::waiters::Role;
use crate::notify::Doorbell;
use nonic_core::{Arm, CompletionQueue, Time};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A thread sleeps on the descriptors of so many shards at most; with more it leaves them to the background threads.
pub const MAX_WATCHED: usize = 7;
/// Looks for packets between two readings of the clock.
const LOOKS: u32 = 4;
/// A thread that does nothing but poll does so more often than this, and at least so often in any wait that counts.
const EAGER_POLL: Duration = Duration::from_micros(2);
const MIN_POLLS: u32 = 8;

/// What is known of the waits for one channel or queue.
#[derive(Debug, Default)]
pub struct Waits {
    spin: Spin,
    /// Threads have waited here.
    seen: AtomicBool,
    /// The thread that arms next will wait here, so that no other thread needs to watch.
    expected: AtomicBool,
    /// Another thread polled during the last wait.
    bystander: AtomicBool,
}

impl Waits {
    /// What was waited for was there, or came. A thread that has waited here before will do so again.
    fn ended(&self) {
        if self.seen.load(Ordering::Relaxed) {
            self.expected.store(true, Ordering::Relaxed);
        }
    }

    fn began(&self) {
        self.seen.store(true, Ordering::Relaxed);
        self.expected.store(true, Ordering::Relaxed);
    }
}

/// How far one wait of one thread has come.
#[derive(Copy, Clone, Debug, Default)]
pub struct Wait {
    /// When it began, or when the last packet came.
    since: Option<Time>,
    /// The count of polls when it began or at the last step, and when that was.
    polls: u32,
    counted: Time,
    /// What the thread was while it slept, if it did.
    role: Option<Role>,
}

/// What a thread is to sleep on beside its own descriptor: until one of them is readable, for as long as it likes.
#[derive(Copy, Clone, Debug, Default)]
pub struct Watched {
    fds: [RawFd; MAX_WATCHED],
    count: usize,
}

impl Watched {
    /// The descriptors. They are open as long as the device is.
    pub fn fds(&self) -> &[RawFd] {
        &self.fds[..self.count]
    }
}

/// A device that this does not keep open.
#[derive(Clone, Debug)]
pub struct WeakDevice(Weak<Inner>);

impl WeakDevice {
    /// The device, unless it is closed.
    pub fn upgrade(&self) -> Option<Device> {
        self.0.upgrade().map(|inner| Device { inner })
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl Device {
    /// A handle that does not keep the device open.
    pub fn downgrade(&self) -> WeakDevice {
        WeakDevice(Arc::downgrade(&self.inner))
    }

    /// Asks for a notification for a thread that will probably wait for it in [`Device::wait_step`]; if it did not the last
    /// time, makes sure that the background thread is awake to give it. Poll once more afterwards.
    ///
    /// If it waits elsewhere after all, the notification may be a nap of the background thread late, once.
    pub fn arm_to_wait(&self, cq: &CompletionQueue, arm: Arm, waits: &Waits) {
        match waits.expected.swap(false, Ordering::Relaxed) {
            true => cq.arm(arm),
            false => self.arm(cq, arm),
        }
    }

    /// Goes on with a wait: polls until there is something, or until it is better to sleep. `None` if `ready` says so; else
    /// what to sleep on, and then to call this again.
    ///
    /// A thread that makes `ready` true from now on must make a descriptor readable that the waiting thread sleeps on as
    /// well. A wait that is given up ends with [`Device::end_wait`].
    pub fn wait_step(&self, waits: &Waits, wait: &mut Wait, ready: impl Fn() -> bool) -> Option<Watched> {
        waits.began();
        let watched = self.wake_up(wait);
        if ready() {
            self.finish_wait(waits, wait);
            return None;
        }
        if wait.since.is_none() {
            let now = self.now();
            wait.since = Some(now);
            (wait.polls, wait.counted) = (self.polls(), now);
        } else {
            self.look_for_others(waits, wait);
        }
        let mut worked = self.glance();
        if watched && !worked && !ready() {
            // What woke us is somewhere else.
            worked = self.look_everywhere();
        }
        if worked {
            self.note_wait(waits, wait);
        }
        if ready() {
            return None;
        }
        let was_for_another = watched && worked;
        let role = self.role(waits, was_for_another);
        wait.role = role;
        if role == Some(Role::Watcher) && self.look_before_sleeping(waits, wait, &ready) {
            wait.role = None;
            self.inner.waiters.leave(Role::Watcher);
            return None;
        }
        Some(self.prepare_to_sleep(waits, role))
    }

    /// What the thread is to be while it waits. `None` for one that is no use as a watcher.
    fn role(&self, waits: &Waits, was_for_another: bool) -> Option<Role> {
        let inner = &self.inner;
        if waits.bystander.load(Ordering::Relaxed)
            || inner.drivers.len() > MAX_WATCHED
            || inner.common.failed.load(Ordering::Relaxed)
        {
            return None;
        }
        if was_for_another && !waits.spin.is_brisk() && inner.waiters.has_followers() {
            // One of them was served, and will be the next to come.
            let role = inner.waiters.follow();
            inner.drivers.iter().for_each(|driver| driver.resume());
            return Some(role);
        }
        Some(inner.waiters.join())
    }

    /// What was waited for was there when the thread looked, before the first step or instead of the next.
    pub fn finish_wait(&self, waits: &Waits, wait: &mut Wait) {
        self.wake_up(wait);
        if wait.since.is_some() {
            self.look_for_others(waits, wait);
            self.note_wait(waits, wait);
        }
        waits.ended();
    }

    /// Gives up a wait.
    pub fn end_wait(&self, wait: &mut Wait) {
        self.wake_up(wait);
    }

    /// Waits until `ready` says so, at most for `timeout`. A completion in a queue whose notifications ring the doorbell
    /// makes it true, or a thread that rings the doorbell. Another thread may have taken the completion when this returns.
    pub fn wait(
        &self,
        waits: &Waits,
        cq: &CompletionQueue,
        doorbell: &Doorbell,
        timeout: Option<Duration>,
        ready: impl Fn() -> bool,
    ) -> io::Result<()> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut wait = Wait::default();
        while let Some(watched) = self.wait_step(waits, &mut wait, &ready) {
            let rings = doorbell.rings();
            // Each time: another thread that waits may have had what the last notification was for.
            cq.arm(Arm::Next);
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            // What came before arming does not ring the doorbell.
            let over = ready() || left.is_some_and(|left| left.is_zero());
            let slept = match over {
                true => Ok(()),
                false => doorbell.sleep_beside(rings, &self.pollers(&watched), left),
            };
            if over || slept.is_err() {
                self.end_wait(&mut wait);
                return slept;
            }
        }
        Ok(())
    }

    /// The descriptors in `watched`, borrowed.
    fn pollers(&self, watched: &Watched) -> Vec<BorrowedFd<'_>> {
        let drivers = self.inner.drivers.iter().take(watched.count);
        drivers.map(|driver| driver.poller().as_fd()).collect()
    }

    fn now(&self) -> Time {
        self.inner.drivers[super::HOME].now()
    }

    /// The thread is awake. Whether it watched while it slept.
    fn wake_up(&self, wait: &mut Wait) -> bool {
        let Some(role) = wait.role.take() else {
            return false;
        };
        if role == Role::Watcher {
            self.inner.drivers.iter().for_each(|driver| driver.watch_awake());
        }
        self.inner.waiters.leave(role);
        role == Role::Watcher
    }

    fn polls(&self) -> u32 {
        self.inner.drivers[super::HOME].polls()
    }

    /// Finds out whether another thread has polled all the time while this one slept. A few polls prove nothing: other
    /// waiting threads poll as well when they were woken.
    fn look_for_others(&self, waits: &Waits, wait: &mut Wait) {
        let (polls, now) = (self.polls(), self.now());
        let polled = polls.wrapping_sub(wait.polls);
        let eager = polled >= MIN_POLLS && now.since(wait.counted) < polled * EAGER_POLL;
        waits.bystander.store(eager, Ordering::Relaxed);
        (wait.polls, wait.counted) = (polls, now);
    }

    /// Something came.
    fn note_wait(&self, waits: &Waits, wait: &mut Wait) {
        let now = self.now();
        if let Some(since) = wait.since.replace(now) {
            waits.spin.waited(now.since(since));
        }
    }

    /// Drives every shard a little.
    fn glance(&self) -> bool {
        let drivers = self.inner.drivers.iter();
        drivers.fold(false, |worked, driver| driver.glance_for_waiter() | worked)
    }

    fn look_everywhere(&self) -> bool {
        let drivers = self.inner.drivers.iter();
        drivers.fold(false, |worked, driver| driver.look_everywhere() | worked)
    }

    /// Looks for packets as long as they come quickly one after the other. Whether `ready`. For the watcher: the others do
    /// not look beside it.
    fn look_before_sleeping(&self, waits: &Waits, wait: &mut Wait, ready: &impl Fn() -> bool) -> bool {
        if self.inner.drivers[super::HOME].is_contended() {
            return false;
        }
        while let Some(duration) = waits.spin.duration() {
            let mut now = self.now();
            let deadline = now + duration;
            loop {
                let last = now;
                let worked = (0..LOOKS).any(|_| self.glance());
                now = self.now();
                if worked || ready() {
                    waits.spin.paid_off();
                    self.note_wait(waits, wait);
                    if ready() {
                        return true;
                    }
                    break;
                }
                if now.since(last) >= DISTURBANCE {
                    waits.spin.was_disturbed();
                    return false;
                }
                if now >= deadline {
                    waits.spin.was_in_vain();
                    return false;
                }
            }
        }
        false
    }

    /// What to sleep on. A thread that watches the descriptors itself has sent what waited to be sent.
    fn prepare_to_sleep(&self, waits: &Waits, role: Option<Role>) -> Watched {
        let drivers = &self.inner.drivers;
        let mut watched = Watched::default();
        match role {
            None if waits.bystander.load(Ordering::Relaxed) => {}
            None => drivers.iter().for_each(|driver| driver.resume()),
            Some(Role::Follower) => drivers.iter().for_each(|driver| driver.follow()),
            Some(Role::Watcher) => {
                let brisk = waits.spin.is_brisk();
                for (driver, fd) in drivers.iter().zip(&mut watched.fds) {
                    // A packet that is there already is in a lane, whose sender thought us awake: nothing would wake us.
                    if driver.watch_asleep(brisk) {
                        driver.nudge();
                    }
                    *fd = driver.poller().as_fd().as_raw_fd();
                }
                watched.count = drivers.len();
            }
        }
        watched
    }
}
