//! Who drives a shard, and when.
//!
//! While the program polls, its own thread drives ([`Driver::inline`]): an operation costs no hand-over
//! between threads. While it does not, a background thread sleeps on every descriptor the shard has, and so
//! serves peers without the program's help. Each shard has a [`Driver`] and a thread of its own. The two must not both wake for every packet, so the background
//! thread keeps away while it sees the program polling, in naps that double from [`SHORTEST_NAP`] to
//! [`LONGEST_NAP`]. A program about to sleep on a channel calls it back at once ([`Driver::resume`]). One that
//! stops polling without a word, because it waits for bytes to change in memory, is noticed after a nap: then
//! the background thread does not turn away for [`WATCHFUL`].
//!
//! Idle means asleep: with nothing to do and no timer running, the background thread waits without a
//! timeout.
//!
//! Everybody, this file included, reaches the shard through a [`Turn`](turn::Turn). What the two sides know of each other
//! is [`park`]; whether a polling thread had better sleep is [`contention`]; how a device and its process end is [`exit`].

mod contention;
pub(crate) mod exit;
pub(crate) mod machine;
pub(crate) mod park;
pub(crate) mod turn;

use crate::driver::machine::Machine as _;
use crate::eventfd::EventFd;
use crate::os::clock::Clock;
use crate::os::poller::{Poller, timespec};
use crate::os::scheduling::ask_for_short_slices;
use crate::os::signals::with_signals_blocked;
use crate::shard::{Effort, Shard};
use contention::Contention;
use nonic_core::Time;
use park::Wake;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use turn::Turns;

/// How long the background thread keeps away before it first looks whether the program still polls.
const SHORTEST_NAP: Duration = Duration::from_micros(50);
/// How long it keeps away from a program that never does anything else.
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// How long it stays after packets had waited for it while the program did not poll.
const WATCHFUL: Duration = Duration::from_millis(10);
/// After so many polls in a row without work, a polling thread lets others have the processor.
const IDLE_POLLS_BEFORE_YIELD: u32 = 64;
/// How long it sleeps where others want the processor, unless a packet comes. What the program's other threads have for it
/// waits so long.
const CONTENDED_NAP: Duration = Duration::from_micros(100);

/// How often the descriptors are checked by a thread that is awake anyway.
const DESCRIPTOR_CHECK: Duration = Duration::from_secs(1);
/// How long the background thread sleeps when it has no descriptors left to sleep on.
const FAILED_NAP: Duration = Duration::from_millis(100);

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
    /// Polls in a row that found nothing.
    idle: AtomicU32,
    contention: Contention,
    stop: AtomicBool,
}

/// What the background thread found when it looked.
struct Found {
    at: Time,
    /// Packets or messages had been waiting.
    work: bool,
    /// The program polled a moment ago.
    program_polls: bool,
    /// There are no descriptors left to sleep on.
    failed: bool,
}

impl Driver {
    /// Takes over a shard, whose links are watched by `poller`. The background thread is started by [`Driver::spawn`].
    pub(crate) fn new(shard: Shard, poller: Arc<Poller>, clock: Clock) -> io::Result<Arc<Self>> {
        let wake = Waker {
            fd: EventFd::internal()?,
            lost: AtomicBool::new(false),
        };
        poller.watch_waker(&wake)?;
        Ok(Arc::new(Driver {
            turns: Turns::new(shard, wake, clock),
            poller,
            idle: AtomicU32::new(0),
            contention: Contention::default(),
            stop: AtomicBool::new(false),
        }))
    }

    /// A turn at the shard, for posting and for control. Waits for whoever has one.
    pub(crate) fn turn(&self) -> Turn<'_> {
        self.turns.take()
    }

    /// The same for who cannot wait for ever: `None` if somebody keeps the shard until the deadline.
    pub(crate) fn turn_until(&self, deadline: Instant) -> Option<Turn<'_>> {
        self.turns.take_until(deadline)
    }

    /// Waits until every access to registered memory that was under way when it was called has ended.
    pub(crate) fn fence(&self) {
        self.turns.fence();
    }

    /// The background thread looks soon, whatever it does.
    pub(crate) fn nudge(&self) {
        self.wake().wake();
    }

    /// Drives from the program's own thread, if nobody else is at it. Whether there was work.
    pub(crate) fn inline(&self) -> bool {
        self.turns.park.polled();
        let worked = self.turns.try_take().is_some_and(|turn| self.drive_light(turn));
        if worked {
            self.idle.store(0, Ordering::Relaxed);
        } else if self.idle.fetch_add(1, Ordering::Relaxed) >= IDLE_POLLS_BEFORE_YIELD {
            self.make_room();
        }
        worked
    }

    /// Lets others have the processor: with fewer of them than spinning threads, the peer may be waiting for this one.
    fn make_room(&self) {
        let at = self.turns.now();
        if self.contention.is_known(at) {
            let work = self.turns.try_take().is_some_and(|mut turn| {
                let work = turn.fall_asleep();
                turn.end_idle();
                work
            });
            if !work {
                // If the descriptors are lost, it does not sleep; the next turn finds out.
                let _ = self.poller.wait(Some(CONTENDED_NAP));
            }
        } else {
            std::thread::yield_now();
            self.contention.yielded(at, self.turns.now());
        }
    }

    fn drive_light(&self, mut turn: Turn<'_>) -> bool {
        let now = turn.now();
        if self.wake().is_lost() {
            turn.fail(now);
        }
        let backed = self.turns.park.is_aside();
        let worked = turn.drive(now, Effort::Light { backed });
        if !worked {
            turn.end_idle();
        }
        worked
    }

    fn wake(&self) -> &Waker {
        &self.turns.park.wake
    }

    /// Whether nothing but a packet or somebody's turn wakes the background thread.
    #[cfg(test)]
    pub(crate) fn sleeps_without_timer(&self) -> bool {
        self.turns.park.sleeps_without_timer()
    }

    /// The program is about to sleep: the background thread must watch the descriptors now.
    pub(crate) fn resume(&self) {
        let mut turn = self.turn();
        turn.flush_deferred(|| self.turns.now());
        drop(turn);
        self.turns.park.call_back();
        if self.wake().is_lost() {
            // Nobody would come.
            self.fail();
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

    /// The program has closed descriptors that we sleep on.
    fn fail(&self) {
        let mut turn = self.turn();
        let now = turn.now();
        turn.fail(now);
    }

    fn run(&self) {
        // Without, peers only wait longer while the program spins.
        ask_for_short_slices();
        let mut nap = SHORTEST_NAP;
        let mut watchful_until = Time::ZERO;
        let mut check_at = Time::ZERO;
        let mut failed = false;
        while !self.stop.load(Ordering::SeqCst) {
            let aside = self.turns.park.program_polls() && self.turns.now() >= watchful_until;
            if failed {
                std::thread::sleep(FAILED_NAP);
            } else if aside {
                self.stand_aside(nap);
            } else {
                let mut turn = self.turn();
                turn.publish_counters();
                let timeout = turn.end_asleep();
                self.sleep(timeout);
            }
            self.turns.park.woke();
            let found = self.serve();
            failed = found.failed;
            if found.at >= check_at {
                check_at = found.at + DESCRIPTOR_CHECK;
                self.check_descriptors();
            }
            if found.program_polls {
                nap = (2 * nap).min(LONGEST_NAP);
            } else {
                nap = SHORTEST_NAP;
                if aside && found.work {
                    watchful_until = found.at + WATCHFUL;
                }
            }
        }
    }

    /// Everything the program's thread seldom gets to: all sockets and inboxes.
    fn serve(&self) -> Found {
        let mut turn = self.turn();
        turn.wake();
        let at = turn.now();
        let program_polls = turn.is_polled(at);
        let work = turn.drive(at, Effort::Full);
        turn.sync_links();
        turn.publish_counters_when_due(at);
        Found {
            at,
            work,
            program_polls,
            failed: turn.nic.has_failed(),
        }
    }

    /// Fails the device if it has lost a descriptor.
    fn check_descriptors(&self) {
        if self.poller.is_lost() || self.wake().fd.is_lost() {
            return self.fail();
        }
        let mut turn = self.turn();
        let now = turn.now();
        turn.check_descriptors(now);
    }

    fn stand_aside(&self, nap: Duration) {
        self.turns.park.set_aside(true);
        let timeout = timespec(nap);
        let _ = poll(&mut [PollFd::new(self.wake(), PollFlags::IN)], Some(&timeout));
        self.wake().drain();
        self.turns.park.set_aside(false);
        if self.wake().is_lost() {
            self.fail();
        }
    }

    fn sleep(&self, timeout: Option<Duration>) {
        // Which of the others is ready does not matter: `serve` looks at all of them.
        match self.poller.wait(timeout) {
            Ok(true) => self.wake().drain(),
            Ok(false) => {}
            Err(_) => return self.fail(),
        }
        if self.wake().is_lost() {
            self.fail();
        }
    }
}
