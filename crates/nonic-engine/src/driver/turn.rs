//! Turns: the shard lock, and the only way to a shard.
//!
//! A thread that wants something of a shard takes a [`Turn`], which holds the lock. Ending the turn sends queued packets,
//! shows completions, and wakes the background thread if a timer is due before it would wake by itself. The lock is private
//! to this file, so no caller can forget any of this: a path to the shard without a turn does not compile. Only
//! [`Turns::fence`] takes the lock without a turn, and lets go of it at once.
//!
//! No thread holds turns at two shards at a time, except at the end of a device ([`exit`](super::exit)), in the order of
//! the shards.
//!
//! The models at the end (`cargo xtask loom`) explore the turn itself, on a machine that has nothing but a timer.

use super::machine::Machine;
use super::park::{ParkProtocol, Wake};
use crate::os::clock::Clock;
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use nonic_core::Time;
use std::ops::{Deref, DerefMut};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{LazyLock, PoisonError, TryLockError};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// When packets wait for room in the kernel, go on after this.
const STALL_RETRY: Duration = Duration::from_micros(100);

/// How often a thread tries the lock before it sleeps until the lock is free: for about as long as several turns take,
/// which is less than falling asleep and being woken does. On one processor a thread does not spin: the lock's holder
/// cannot run meanwhile.
static LOOKS: LazyLock<u32> = LazyLock::new(|| match std::thread::available_parallelism() {
    _ if cfg!(loom) => 0,
    Ok(processors) if processors.get() > 1 => 500,
    _ => 0,
});

/// A machine behind its lock, the threads that wait for the lock, and the background thread's sleep.
pub(crate) struct Turns<M, W> {
    machine: Mutex<M>,
    /// How many threads wait for a turn.
    waiting: AtomicU32,
    /// Whether the last turn left something to be sent with the program's next call.
    deferred: AtomicBool,
    pub(super) park: ParkProtocol<W>,
    clock: Clock,
}

impl<M: Machine, W: Wake> Turns<M, W> {
    pub(super) fn new(machine: M, wake: W, clock: Clock) -> Self {
        Turns {
            machine: Mutex::new(machine),
            waiting: AtomicU32::new(0),
            deferred: AtomicBool::new(false),
            park: ParkProtocol::new(wake),
            clock,
        }
    }

    /// Takes a turn. Waits for the thread that has one.
    pub(crate) fn take(&self) -> Turn<'_, M, W> {
        Turn::new(self, self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, M> {
        if let Some(machine) = self.try_lock() {
            return machine;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let free = (0..*LOOKS).find_map(|_| {
            std::hint::spin_loop();
            self.try_lock()
        });
        // A panic while driving is a bug that has been reported by then; the machine stays usable enough to be destroyed.
        let wait = || self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let machine = free.unwrap_or_else(wait);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        machine
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, M>> {
        match self.machine.try_lock() {
            Ok(machine) => Some(machine),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes a turn unless another thread has one or waits for one. For a thread that takes turns in a loop: it would
    /// otherwise have the lock back before a waiting thread has woken up.
    pub(crate) fn try_take_spare(&self) -> Option<Turn<'_, M, W>> {
        match self.waiting.load(Ordering::Relaxed) {
            0 => self.try_take(),
            _ => None,
        }
    }

    /// Takes a turn unless another thread has one.
    pub(crate) fn try_take(&self) -> Option<Turn<'_, M, W>> {
        self.try_lock().map(|machine| Turn::new(self, machine))
    }

    /// Takes a turn, or gives up if another thread keeps the lock until the deadline.
    pub(crate) fn take_until(&self, deadline: Instant) -> Option<Turn<'_, M, W>> {
        loop {
            match self.try_take() {
                None if Instant::now() < deadline => std::thread::yield_now(),
                turn => return turn,
            }
        }
    }

    /// Waits until every access that was under way when it was called has ended. Accesses to registered memory are made in
    /// turns, so a thread with a later turn sees what was changed before this call. `forget` is done in between.
    pub(crate) fn fence(&self, forget: impl FnOnce(&mut M)) {
        forget(&mut self.lock());
    }

    /// Whether something waits for the program's next call. What the calling thread left in a turn of its own, it sees.
    pub(super) fn has_deferred(&self) -> bool {
        self.deferred.load(Ordering::Relaxed)
    }

    /// The time, as the machine counts it.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }
}

/// The right to use the machine, until it is dropped.
pub(crate) struct Turn<'a, M: Machine, W: Wake> {
    turns: &'a Turns<M, W>,
    machine: MutexGuard<'a, M>,
    /// There is nothing to see to at the end.
    settled: bool,
}

impl<'a, M: Machine, W: Wake> Turn<'a, M, W> {
    fn new(turns: &'a Turns<M, W>, machine: MutexGuard<'a, M>) -> Self {
        Turn {
            turns,
            machine,
            settled: false,
        }
    }

    /// The time.
    pub(crate) fn now(&self) -> Time {
        self.turns.now()
    }

    /// Ends a turn that has left nothing to see to: mostly because nothing happened.
    #[inline]
    pub(crate) fn end_settled(mut self) {
        self.settled = true;
    }

    /// Ends a turn of the background thread, which goes to sleep: for how long at most, `None` is until something happens.
    /// The park protocol learns of it with the turn still held, so a thread that sets an earlier timer has a later turn and
    /// sees it.
    pub(super) fn end_asleep(mut self) -> Option<Duration> {
        self.settled = true;
        let now = self.now();
        let timer = self.machine.next_timeout().map(|at| at.since(now));
        let stall = self.machine.is_behind().then_some(STALL_RETRY);
        let work = self.machine.fall_asleep().then_some(Duration::ZERO);
        let timeout = [timer, stall, work].into_iter().flatten().min();
        let until_ns = timeout.map_or(u64::MAX, |timeout| (now + timeout).as_ns());
        self.turns.park.fall_asleep(until_ns);
        timeout
    }
}

impl<M: Machine, W: Wake> Deref for Turn<'_, M, W> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.machine
    }
}

impl<M: Machine, W: Wake> DerefMut for Turn<'_, M, W> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.machine
    }
}

impl<M: Machine, W: Wake> Drop for Turn<'_, M, W> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        if self.machine.needs_flush() {
            let now = self.now();
            self.machine.flush(now);
        }
        let deferred = self.machine.has_deferred();
        if deferred != self.turns.has_deferred() {
            self.turns.deferred.store(deferred, Ordering::Relaxed);
        }
        // A background thread that is awake asks for the timers before it sleeps, in a turn of its own.
        if !self.turns.park.is_asleep() {
            return;
        }
        if self.machine.is_behind() {
            self.turns.park.timer_set(0);
        }
        if let Some(at) = self.machine.next_timeout() {
            self.turns.park.timer_set(at.as_ns());
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::super::park::models::Bell;
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Nothing but a timer, and something that was posted and not sent yet.
    #[derive(Default)]
    struct Alarm {
        posted: u32,
        sent: u32,
        due: Option<Time>,
    }

    impl Machine for Alarm {
        fn needs_flush(&self) -> bool {
            self.sent < self.posted
        }

        /// What is sent has to be sent again some time.
        fn flush(&mut self, _: Time) {
            self.sent = self.posted;
            let due = Time::from_ns(u64::MAX - u64::from(self.posted));
            self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
        }

        fn is_behind(&self) -> bool {
            false
        }

        fn has_deferred(&self) -> bool {
            false
        }

        fn next_timeout(&self) -> Option<Time> {
            self.due
        }

        fn fall_asleep(&mut self) -> bool {
            false
        }
    }

    fn turns() -> Arc<Turns<Alarm, Bell>> {
        Arc::new(Turns::new(Alarm::default(), Bell::default(), Clock::new()))
    }

    /// Runs the background thread until it knows of the timer that `posts` requests lead to. It is not woken by time here,
    /// so loom reports a deadlock if there is an interleaving in which it oversleeps.
    fn background(turns: &Turns<Alarm, Bell>, posts: u32) {
        loop {
            let turn = turns.take();
            let known = turn.sent == posts;
            turn.end_asleep();
            if known {
                return;
            }
            turns.park.wake.sleep();
            turns.park.woke();
        }
    }

    /// A request posted in a turn is sent when the turn ends, and the background thread learns of its timer, however the
    /// two run.
    #[test]
    fn the_end_of_a_turn_sends_and_wakes() {
        loom::model(|| {
            let turns = turns();
            let sleeper = {
                let turns = turns.clone();
                thread::spawn(move || background(&turns, 1))
            };
            turns.take().posted = 1;
            sleeper.join().unwrap();
            assert_eq!(turns.take().sent, 1);
        });
    }

    /// Two turns end while the background thread goes to sleep or sleeps already, the second with an earlier timer than
    /// the thread may know of. It may find that the first has woken the thread, and rely on that.
    #[test]
    fn of_several_turns_the_earliest_timer_counts() {
        loom::model(|| {
            let turns = turns();
            let sleeper = {
                let turns = turns.clone();
                thread::spawn(move || background(&turns, 2))
            };
            let other = {
                let turns = turns.clone();
                thread::spawn(move || turns.take().posted += 1)
            };
            turns.take().posted += 1;
            other.join().unwrap();
            sleeper.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shard::tests::{Side, Writer, lone_writer};
    use crate::shard::{Effort, Shard};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts how often it is rung.
    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Sleeper {
        turns: Turns<Shard, Bell>,
        write: Writer,
    }

    impl Sleeper {
        /// A background thread that sleeps without a timer, beside a program that can write.
        fn new() -> Self {
            let side: Side = lone_writer();
            let write = side.writer();
            let turns = Turns::new(side.shard, Bell::default(), Clock::new());
            assert_eq!(turns.take().end_asleep(), None, "there is nothing to wait for");
            Sleeper { turns, write }
        }

        fn rings(&self) -> usize {
            self.turns.park.wake.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_turn_that_sets_a_timer_wakes_the_sleeping_thread_once() {
        let sleeper = Sleeper::new();
        drop(sleeper.turns.take());
        assert_eq!(sleeper.rings(), 0, "nothing happened");
        for _ in 0..2 {
            let mut turn = sleeper.turns.take();
            let now = turn.now();
            (sleeper.write)(&mut turn, now);
        }
        assert_eq!(sleeper.rings(), 1, "it is up and will ask for timers itself");
    }

    #[test]
    fn a_thread_that_wakes_early_enough_is_left_alone() {
        let sleeper = Sleeper::new();
        let mut turn = sleeper.turns.take();
        let now = turn.now();
        (sleeper.write)(&mut turn, now);
        drop(turn);
        assert_eq!(sleeper.rings(), 1);
        sleeper.turns.park.woke();
        let timeout = sleeper.turns.take().end_asleep();
        assert!(timeout.is_some_and(|timeout| timeout <= Duration::from_secs(1)));
        drop(sleeper.turns.take());
        assert_eq!(sleeper.rings(), 1, "it knows of that timer");
    }

    #[test]
    fn what_a_look_leaves_in_lanes_wakes_the_sleeping_thread() {
        let side = lone_writer();
        let link = side.link();
        let turns = Turns::new(side.shard, Bell::default(), Clock::new());
        let look = || {
            assert_eq!(turns.take().end_asleep(), None);
            let mut turn = turns.take();
            let now = turn.now();
            assert!(turn.drive(now, Effort::Light { backed: false }));
            drop(turn);
            turns.park.woke();
            turns.park.wake.0.swap(0, Ordering::Relaxed)
        };
        link.arrive_in_lane(3);
        assert_eq!(look(), 0, "there is nothing left");
        link.arrive_in_lane(20);
        assert_eq!(look(), 1);
        assert_eq!(link.left_in_lane(), 4);
    }

    #[test]
    fn a_thread_sleeps_briefly_beside_packets_there_is_no_room_for() {
        let side = lone_writer();
        let (write, link) = (side.writer(), side.link());
        let turns = Turns::new(side.shard, Bell::default(), Clock::new());
        assert_eq!(turns.take().end_asleep(), None);
        link.set_room(0);
        let mut turn = turns.take();
        let now = turn.now();
        write(&mut turn, now);
        drop(turn);
        assert_eq!(turns.park.wake.0.load(Ordering::Relaxed), 1);
        turns.park.woke();
        assert_eq!(turns.take().end_asleep(), Some(STALL_RETRY));
        link.set_room(usize::MAX);
        let mut turn = turns.take();
        let now = turn.now();
        assert!(turn.drive(now, Effort::Full));
        assert!(!turn.is_behind());
    }
}
