//! The driver: which thread runs a shard's I/O loop, and when.
//!
//! The thread that holds the shard lock runs the loop. That can be
//! - a thread of the program that posts: it sends what it posted before the call returns;
//! - a thread of the program that polls ([`Driver::inline`]), so that an operation costs no hand-over between threads;
//! - a thread of the program that sleeps until a completion comes: one of them sleeps on the shard's descriptors ([`waiters`]);
//! - the [background] thread, of which each shard has one: while none of those is at it, it sleeps on the descriptors, and so serves
//!   peers without the program's help.
//!
//! The program and the background thread must not both wake for every packet, so the background thread keeps away while it sees the
//! program polling. A program about to sleep on a channel, without a thread in a call of ours, calls it back at once
//! ([`Driver::resume`]).
//!
//! Idle means asleep: with nothing to do and no timer running, the background thread waits without a
//! timeout.
//!
//! All code, this file included, reaches the shard through a [`Turn`](turn::Turn), which holds the shard lock. [`park`] is
//! what the two sides know of each other. [`contention`] decides whether a polling thread should sleep instead. [`spin`]
//! decides whether a thread about to sleep should poll first. [`exit`] is how a device and its process end.

mod background;
mod contention;
pub(crate) mod exit;
pub(crate) mod machine;
pub(crate) mod park;
pub(crate) mod spin;
pub(crate) mod turn;
pub(crate) mod waiters;

use crate::driver::machine::Machine as _;
use crate::eventfd::EventFd;
use crate::os::clock::Clock;
use crate::os::poller::Poller;
use crate::os::signals::with_signals_blocked;
use crate::os::thread::ThreadNumber;
use crate::shard::{Effort, Glance, Shard};
use contention::Contention;
use nonic_core::Time;
use park::Wake;
use rustix::fd::{AsFd, BorrowedFd};
use spin::Spin;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use turn::Turns;
use waiters::Waiters;

/// After a yield, so many polls without work at most until the next one.
const POLLS_PER_YIELD: u32 = 4;
/// Which thread polls is noted with every so many polls.
const POLLS_PER_NOTE: u32 = 16;
/// A look at lanes is no system call: so many take as long as one at a socket.
const LOOKS_AT_LANES: u32 = 16;
/// How long a polling thread sleeps where other threads want the processor, unless a packet comes. What the program's other
/// threads have for it waits so long.
const CONTENDED_NAP: Duration = Duration::from_micros(100);

/// A turn at a shard.
pub(crate) type Turn<'a> = turn::Turn<'a, Shard, Waker>;

/// What wakes the background thread.
pub(crate) struct Waker {
    fd: EventFd,
    /// The program has closed it.
    lost: AtomicBool,
}

impl Wake for Waker {
    fn wake(&self) {
        if self.fd.signal().is_err() {
            self.lost.store(true, Ordering::Relaxed);
        }
    }
}

impl Waker {
    fn drain(&self) {
        if self.fd.drain().is_err() {
            self.lost.store(true, Ordering::Relaxed);
        }
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A shard and the threads that drive it.
pub(crate) struct Driver {
    turns: Turns<Shard, Waker>,
    poller: Arc<Poller>,
    /// The device's, for all its shards.
    waiters: Arc<Waiters>,
    /// Polls in a row that found nothing.
    idle: AtomicU32,
    /// How many polls take as long as one that looks at a socket.
    looks_per_poll: AtomicU32,
    contention: Contention,
    /// The number of a thread that polls, noted now and then.
    polling_thread: AtomicI32,
    /// Whether the background thread had better look for packets before it sleeps.
    spin: Spin,
    stop: AtomicBool,
}

impl Driver {
    /// Takes over a shard, whose links are watched by `poller`. The background thread is started by [`Driver::spawn`].
    pub(crate) fn new(
        shard: Shard,
        poller: Arc<Poller>,
        waiters: Arc<Waiters>,
        clock: Clock,
    ) -> io::Result<Arc<Self>> {
        let wake = Waker {
            fd: EventFd::internal()?,
            lost: AtomicBool::new(false),
        };
        poller.watch_waker(&wake)?;
        Ok(Arc::new(Driver {
            turns: Turns::new(shard, wake, clock),
            poller,
            waiters,
            idle: AtomicU32::new(0),
            looks_per_poll: AtomicU32::new(1),
            contention: Contention::default(),
            polling_thread: AtomicI32::new(0),
            spin: Spin::default(),
            stop: AtomicBool::new(false),
        }))
    }

    /// Takes the shard lock, for posting and for control. Waits for the thread that holds it.
    pub(crate) fn turn(&self) -> Turn<'_> {
        self.turns.take()
    }

    /// The same for a caller that cannot wait for ever: `None` if another thread holds the shard lock until the deadline.
    pub(crate) fn turn_until(&self, deadline: Instant) -> Option<Turn<'_>> {
        self.turns.take_until(deadline)
    }

    /// Looks at the shard, unless another thread holds its lock. Nothing is sent or shown afterwards: nothing happened.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Shard) -> T) -> Option<T> {
        let turn = self.turns.try_take()?;
        let seen = look(&turn);
        turn.end_settled();
        Some(seen)
    }

    /// Waits until every access to registered memory that was under way when it was called has ended, and has the shard let go of keys.
    pub(crate) fn fence(&self) {
        self.turns.fence(|shard| shard.nic.let_go_of_keys());
    }

    /// The background thread looks soon, whatever it does.
    pub(crate) fn nudge(&self) {
        self.wake().wake();
    }

    /// Polls the shard on the program's own thread, unless another thread holds the lock. Whether there was work.
    pub(crate) fn inline(&self) -> bool {
        self.turns.park.polled();
        if self.turns.park.polls() % POLLS_PER_NOTE == 0 {
            let ThreadNumber(number) = ThreadNumber::current();
            self.polling_thread.store(number, Ordering::Relaxed);
        }
        let turn = self.turns.try_take();
        let worked = turn.is_some_and(|turn| {
            let backed = self.turns.park.is_aside();
            self.glance(turn, Effort::Light { backed })
        });
        // Threads that count at the same time lose a count, which changes nothing.
        let idle = if worked {
            0
        } else {
            self.idle.load(Ordering::Relaxed) + 1
        };
        self.idle.store(idle, Ordering::Relaxed);
        self.contention.polled(worked);
        let looks = self.looks_per_poll.load(Ordering::Relaxed);
        let patience = looks * self.contention.patience();
        // A runtime's thread has other tasks to turn to.
        if idle > patience && !self.has_runtime() {
            // Not with every poll from now on: a yield costs as much as a look.
            let next = patience.saturating_sub(looks * POLLS_PER_YIELD);
            self.idle.store(next, Ordering::Relaxed);
            self.make_room();
        }
        worked
    }

    /// A thread that has polled lately.
    fn polling_thread(&self) -> ThreadNumber {
        ThreadNumber(self.polling_thread.load(Ordering::Relaxed))
    }

    /// The same for a thread that waits for completions. It says itself that it watches ([`Driver::watch_asleep`]). It
    /// yields the lock to any thread that waits for it.
    pub(crate) fn glance_for_waiter(&self) -> bool {
        let Some(turn) = self.turns.try_take_spare() else {
            return false;
        };
        let backed = self.turns.park.is_aside();
        self.glance(turn, Effort::Light { backed })
    }

    /// The same for a task of a runtime, which may not look again for a while: timers are looked after.
    pub(crate) fn drive_for_runtime(&self) -> bool {
        self.turns.park.polled();
        let mut turn = self.turn();
        let now = turn.now();
        let worked = turn.drive(now, Effort::Light { backed: false });
        if !worked {
            turn.end_settled();
        }
        worked
    }

    /// A task of a runtime watches the descriptors, or does not any more.
    pub(crate) fn runtime_came(&self) {
        self.turns.park.runtime_came();
    }

    pub(crate) fn runtime_left(&self) {
        self.turns.park.runtime_left();
    }

    pub(crate) fn has_runtime(&self) -> bool {
        self.turns.park.has_runtime()
    }

    /// Drives thoroughly, for a thread that was woken and does not know what by. Whether there was work.
    pub(crate) fn look_everywhere(&self) -> bool {
        let mut turn = self.turn();
        let now = turn.now();
        let worked = turn.drive(now, Effort::Full);
        drop(turn);
        if !worked && self.poller.is_lost() {
            // It would be woken again and again.
            self.fail();
        }
        worked
    }

    /// A thread of the program's is about to sleep on the descriptors. If it is `brisk`, it is back so soon that the
    /// background thread keeps away. Whether there is something to do already.
    #[must_use]
    pub(crate) fn watch_asleep(&self, brisk: bool) -> bool {
        let mut turn = self.turn();
        turn.flush_deferred(|| self.turns.now());
        let work = turn.fall_asleep();
        drop(turn);
        if brisk {
            self.turns.park.watched();
        }
        work
    }

    /// It is awake.
    ///
    /// What it was woken by does not wake the others that sleep. The program may have no use for this thread now, so the thread takes at
    /// once what there is. If that is more than a look takes, the end of the turn wakes the background thread.
    pub(crate) fn watch_awake(&self) {
        let mut turn = self.turn();
        if turn.wake() {
            let now = turn.now();
            turn.drive(now, Effort::Light { backed: false });
        }
    }

    /// The program polled and found completions that were there already. What it posted before does not wait for it to find none.
    pub(crate) fn found(&self) {
        self.turns.park.polled();
        if self.turns.has_deferred() {
            self.turn().found(|| self.turns.now());
        }
    }

    /// Where the count of the program's polls is.
    pub(crate) fn polls(&self) -> u32 {
        self.turns.park.polls()
    }

    /// What the shard's threads sleep on.
    pub(crate) fn poller(&self) -> &Poller {
        &self.poller
    }

    /// The time.
    pub(crate) fn now(&self) -> Time {
        self.turns.now()
    }

    /// Whether other threads want the processors.
    pub(crate) fn is_contended(&self) -> bool {
        self.contention.is_known(self.turns.now())
    }

    /// Lets other threads have the processor. With fewer processors than spinning threads, the peer may be waiting for this
    /// one.
    fn make_room(&self) {
        let at = self.turns.now();
        if self.contention.is_known(at) {
            self.nap();
        } else {
            std::thread::yield_now();
            self.contention.yielded(at, self.turns.now());
        }
    }

    /// Sleeps until a packet comes, but not for long.
    fn nap(&self) {
        let mut turn = self.turn();
        let work = turn.fall_asleep();
        turn.end_settled();
        if !work {
            // If the descriptors are lost, it does not sleep; the next turn finds out.
            let _ = self.poller.wait(Some(CONTENDED_NAP));
        }
        self.watch_awake();
    }

    /// Looks for work where it is likely, and does it. Whether there was any.
    fn glance(&self, mut turn: Turn<'_>, effort: Effort) -> bool {
        if self.wake().is_lost() {
            let now = turn.now();
            turn.fail(now);
        }
        let found = turn.glance(|| self.turns.now(), effort);
        let looks = if turn.is_on_lanes() { LOOKS_AT_LANES } else { 1 };
        self.looks_per_poll.store(looks, Ordering::Relaxed);
        if found != Glance::Work {
            turn.end_settled();
        }
        found != Glance::Nothing
    }

    fn wake(&self) -> &Waker {
        &self.turns.park.wake
    }

    /// Whether nothing but a packet or another thread's turn wakes the background thread.
    #[cfg(test)]
    pub(crate) fn sleeps_without_timer(&self) -> bool {
        self.turns.park.sleeps_without_timer()
    }

    /// The program is about to sleep: the background thread must watch the descriptors now.
    pub(crate) fn resume(&self) {
        self.send_deferred();
        self.turns.park.call_back();
        self.fail_unless_it_comes();
    }

    /// The program is about to sleep and relies on another of its threads, which watches the descriptors.
    pub(crate) fn follow(&self) {
        self.send_deferred();
        self.turns.park.call_back_from_long_nap();
        self.fail_unless_it_comes();
    }

    /// The background thread does not come if the program has closed what wakes it.
    fn fail_unless_it_comes(&self) {
        if self.wake().is_lost() {
            self.fail();
        }
    }

    fn send_deferred(&self) {
        if self.turns.has_deferred() {
            self.turn().flush_deferred(|| self.turns.now());
        }
    }

    /// Starts the background thread.
    pub(crate) fn spawn(self: &Arc<Self>, name: &str) -> io::Result<std::thread::JoinHandle<()>> {
        let driver = Arc::clone(self);
        let builder = std::thread::Builder::new().name(format!("nonic-{name}"));
        with_signals_blocked(|| builder.spawn(move || driver.run()))
    }

    /// Ends the background thread. Whether it will notice: without its descriptors it may sleep for ever.
    pub(crate) fn stop(&self) -> bool {
        self.stop.store(true, Ordering::SeqCst);
        self.wake().wake();
        !self.wake().is_lost()
    }

    /// The program has closed descriptors that the driver sleeps on: the device fails.
    fn fail(&self) {
        let mut turn = self.turn();
        let now = turn.now();
        turn.fail(now);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shard::tests::lone_writer;

    /// Their call was drained with it, and nothing calls them a second time.
    #[test]
    fn a_thread_that_wakes_beside_sleepers_takes_what_they_were_not_woken_for() {
        let side = lone_writer();
        let link = side.link();
        let poller = Arc::new(Poller::new().expect("a descriptor"));
        let driver = Driver::new(side.shard, poller, Arc::default(), Clock::new()).expect("a descriptor");
        driver.turn().end_asleep();
        assert!(!driver.watch_asleep(false), "nothing has come");
        link.arrive_in_lane(3);
        driver.watch_awake();
        assert_eq!(link.left_in_lane(), 0);
    }
}
