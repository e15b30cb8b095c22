//! Who drives the NIC, and when.
//!
//! While the program polls, its own thread drives ([`Progress::inline`]): an operation costs no hand-over
//! between threads. While it does not, a background thread sleeps on every descriptor the NIC has, and so
//! serves peers without the program's help. The two must not both wake for every packet, so the background
//! thread keeps away while the program polls, for a nap at a time ([`Restraint`]). A program about to sleep on a
//! channel calls it back at once ([`Progress::resume`]). One that stops polling without a word, because it waits for
//! bytes to change in memory, is found out after a nap: something waits, the program is given a moment more, and still
//! has not polled. No clock decides that, since nobody knows how long a poll takes on a given machine.
//!
//! Idle means asleep: with nothing to do and no timer running, the background thread waits without a
//! timeout.

use crate::attention::{Attention, Wake};
use crate::clock::Clock;
use crate::eventfd::EventFd;
use crate::restraint::{Restraint, SHORTEST_NAP};
use crate::shard::{Effort, Shard};
use nonic_core::{Qpn, Time};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// How many short naps a program is given to fetch what waits for it, before it counts as one that no longer polls: waking
/// up may have taken the processor from it.
const CHANCES: u32 = 3;
/// A polling program does what is not about packets once in so many polls, since the background thread keeps away from it:
/// peers have little patience with a port whose holder has died, and people look at captures while they grow.
const POLLS_PER_CHORE: u32 = 1024;
/// After so many polls in a row without work, a polling thread lets others have the processor.
const IDLE_POLLS_BEFORE_YIELD: u32 = 64;
/// When something waits to be sent, go on after this.
const STALL_RETRY: Duration = Duration::from_micros(100);

impl Wake for EventFd {
    fn wake(&self) {
        // Fails only if the descriptor is not ours, which it is.
        let _ = self.signal();
    }
}

/// A shard and the threads that drive it.
pub(crate) struct Progress {
    shard: Mutex<Shard>,
    clock: Clock,
    epoll: OwnedFd,
    attention: Attention<EventFd>,
    /// Polls in a row that found nothing.
    idle: AtomicU32,
    stop: AtomicBool,
}

impl Progress {
    /// Takes over a shard. The background thread is started by [`Progress::spawn`].
    pub(crate) fn new(shard: Shard) -> io::Result<Arc<Self>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = EventFd::new()?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Arc::new(Progress {
            clock: shard.clock,
            shard: Mutex::new(shard),
            epoll,
            attention: Attention::new(wake),
            idle: AtomicU32::new(0),
            stop: AtomicBool::new(false),
        }))
    }

    /// The shard, for posting and for control. Waits for whoever drives it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shard> {
        // A panic while driving is a bug that has been reported by then; the shard stays usable enough to
        // be destroyed.
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock itself, for who cannot wait for it.
    pub(crate) fn shard(&self) -> &Mutex<Shard> {
        &self.shard
    }

    /// Drives from the program's own thread, if nobody else is at it. Whether there was work.
    pub(crate) fn inline(&self) -> bool {
        self.attention.polled();
        let worked = match self.shard.try_lock() {
            Ok(mut shard) => self.drive_light(&mut shard),
            Err(TryLockError::Poisoned(poisoned)) => self.drive_light(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => false,
        };
        if worked {
            self.idle.store(0, Ordering::Relaxed);
        } else if self.idle.fetch_add(1, Ordering::Relaxed) >= IDLE_POLLS_BEFORE_YIELD {
            // With fewer processors than spinning threads, the peer may be waiting for this one.
            std::thread::yield_now();
        }
        worked
    }

    fn drive_light(&self, shard: &mut Shard) -> bool {
        if shard.calls.is_multiple_of(POLLS_PER_CHORE) {
            self.do_chores(shard);
        }
        let backed = self.attention.is_aside();
        let worked = shard.drive(Effort::Light { backed });
        self.attention.owes(shard.is_owing());
        if worked {
            self.check_alarm(shard);
        }
        worked
    }

    /// The program posted `bytes` to a queue pair: sends them, now or with what it posts next.
    pub(crate) fn posted(&self, shard: &mut Shard, now: Time, qpn: Qpn, bytes: u64) {
        let backed = self.attention.is_aside();
        shard.flush_posted(now, qpn, bytes, backed);
        self.attention.owes(shard.is_owing());
        self.check_alarm(shard);
    }

    /// Wakes the background thread if a timer is due before it would wake by itself, or if there is more to
    /// send than one call sends.
    pub(crate) fn check_alarm(&self, shard: &Shard) {
        if shard.is_behind() {
            self.attention.timer_set(0);
        }
        if let Some(at) = shard.next_timeout() {
            self.attention.timer_set(at.as_ns());
        }
    }

    /// The program is about to sleep: the background thread must watch the descriptors now.
    pub(crate) fn resume(&self) {
        self.lock().flush_deferred();
        self.attention.call_back();
    }

    /// Watches a descriptor. It is forgotten when it is closed.
    pub(crate) fn watch(&self, fd: impl AsFd) -> io::Result<()> {
        match epoll::add(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(1),
            epoll::EventFlags::IN,
        ) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Starts the background thread.
    pub(crate) fn spawn(self: &Arc<Self>, name: &str) -> io::Result<std::thread::JoinHandle<()>> {
        let progress = Arc::clone(self);
        let builder = std::thread::Builder::new().name(format!("nonic-{name}"));
        with_signals_blocked(|| builder.spawn(move || progress.run()))
    }

    /// Ends the background thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.attention.wake.wake();
    }

    fn run(&self) {
        // Naps are meant to be short: the kernel may add a nanosecond to them, not the usual 50 microseconds.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut restraint = Restraint::new();
        while !self.stop.load(Ordering::SeqCst) {
            if self.attention.program_polls() && restraint.may_nap(self.clock.now()) {
                self.keep_away(&mut restraint);
            } else {
                let timeout = self.timeout();
                self.sleep(timeout);
                self.attention.woke();
                self.serve();
            }
        }
    }

    /// Leaves everything to the program for a nap, then sees whether that was right.
    fn keep_away(&self, restraint: &mut Restraint) {
        self.attention.set_aside(true);
        self.nap(restraint.nap());
        let woken_at = self.clock.now();
        let right = self.attention.is_polling() && !self.is_somebody_waiting();
        self.attention.set_aside(false);
        let now = self.clock.now();
        if right {
            restraint.was_right(now.since(woken_at));
        } else {
            let waited = self.serve();
            restraint.was_wrong(now, waited);
        }
    }

    /// Whether there is something to do that a program which polls would have done a moment later.
    fn is_somebody_waiting(&self) -> bool {
        let polls = self.attention.polls();
        if !self.attention.is_owing() && !self.is_readable() {
            return false;
        }
        (0..CHANCES).all(|_| {
            self.nap(SHORTEST_NAP);
            self.attention.polls() <= polls
        })
    }

    /// Everything the program's thread seldom gets to: all sockets, seats and inboxes. Whether there was work.
    fn serve(&self) -> bool {
        let mut shard = self.lock();
        let work = shard.drive(Effort::Full);
        self.do_chores(&mut shard);
        work
    }

    /// What is not about packets: seats, and what was captured.
    fn do_chores(&self, shard: &mut Shard) {
        self.attend_seats(shard);
        if let Some(capture) = &mut shard.capture {
            capture.flush();
        }
    }

    /// Takes the port if its holder has died, lets in who waits for us to.
    fn attend_seats(&self, shard: &mut Shard) {
        let now = shard.clock.now();
        let mut changed = false;
        for attachment in &mut shard.attachments {
            changed |= attachment.seat.poll(now.as_ns());
        }
        if changed {
            for attachment in &shard.attachments {
                for fd in attachment.fds() {
                    // Out of watches: the socket is still looked at whenever something else wakes us.
                    let _ = self.watch(fd);
                }
            }
        }
    }

    /// How long the background thread may sleep; `None` is until something happens.
    fn timeout(&self) -> Option<Duration> {
        let shard = self.lock();
        let now = shard.clock.now();
        let timer = shard.next_timeout().map(|at| at.since(now));
        let seats = shard
            .attachments
            .iter()
            .filter_map(|attachment| attachment.seat.next_deadline_ns());
        let seat = seats
            .min()
            .map(|at| Duration::from_nanos(at.saturating_sub(now.as_ns())));
        let behind = shard.is_behind() || shard.is_owing();
        let stall = behind.then_some(STALL_RETRY);
        let timeout = [timer, seat, stall].into_iter().flatten().min();
        // Set under the lock: whoever sets an earlier timer holds it after us and sees this.
        let until_ns = timeout.map_or(u64::MAX, |timeout| (now + timeout).as_ns());
        self.attention.fall_asleep(until_ns);
        timeout
    }

    /// Sleeps, blind to everything but a call.
    fn nap(&self, nap: Duration) {
        let timeout = timespec(nap);
        let _ = poll(
            &mut [PollFd::new(&self.attention.wake, PollFlags::IN)],
            Some(&timeout),
        );
        let _ = self.attention.wake.drain();
    }

    /// Whether any descriptor has something.
    fn is_readable(&self) -> bool {
        let timeout = timespec(Duration::ZERO);
        let epoll = PollFd::new(&self.epoll, PollFlags::IN);
        poll(&mut [epoll], Some(&timeout)).is_ok_and(|ready| ready > 0)
    }

    fn sleep(&self, timeout: Option<Duration>) {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
        let timeout = timeout.map(timespec);
        // Which descriptor is ready does not matter: `serve` looks at all of them.
        let _ = epoll::wait(&self.epoll, &mut events, timeout.as_ref());
        let _ = self.attention.wake.drain();
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).unwrap_or(Timespec {
        tv_sec: i64::MAX,
        tv_nsec: 0,
    })
}

/// Signals belong to the program: a thread spawned by `f` inherits a mask that blocks them all.
fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both pointers are to storage of the right type; sigfillset initialises the set it is given.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let result = f();
    if blocked {
        // SAFETY: the successful call above stored the old mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    result
}
