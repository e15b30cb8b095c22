//! Who drives the NIC, and when.
//!
//! While the program polls, its own thread drives ([`Progress::inline`]): an operation costs no hand-over
//! between threads. While it does not, a background thread sleeps on every descriptor the NIC has, and so
//! serves peers without the program's help. The two must not both wake for every packet, so the background
//! thread keeps away while it sees the program polling, in naps that double from [`SHORTEST_NAP`] to
//! [`LONGEST_NAP`]. A program about to sleep on a channel calls it back at once ([`Progress::resume`]). One that
//! stops polling without a word, because it waits for bytes to change in memory, is noticed after a nap: then
//! the background thread does not turn away for [`WATCHFUL`].
//!
//! Idle means asleep: with nothing to do and no timer running, the background thread waits without a
//! timeout.
//!
//! Everybody else reaches the shard through a [`Turn`], and whoever ends one has sent and shown what came of it, and has
//! woken the background thread if a timer is due before it would wake by itself. There is no other way to the shard, so
//! none of this can be forgotten.

use crate::attachment::Attachment;
use crate::attention::{Attention, Wake};
use crate::eventfd::EventFd;
use crate::os::descriptors::InternalFd;
use crate::shard::{Effort, Shard};
use nonic_core::Time;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::{AsFd, BorrowedFd};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How long the background thread keeps away before it first looks whether the program still polls.
const SHORTEST_NAP: Duration = Duration::from_micros(50);
/// How long it keeps away from a program that never does anything else.
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// How long it stays after packets had waited for it while the program did not poll.
const WATCHFUL: Duration = Duration::from_millis(10);
/// After so many polls in a row without work, a polling thread lets others have the processor.
const IDLE_POLLS_BEFORE_YIELD: u32 = 64;
/// When packets wait to be sent, go on after this.
const STALL_RETRY: Duration = Duration::from_micros(100);

/// How often the descriptors are checked by a thread that is awake anyway.
const DESCRIPTOR_CHECK: Duration = Duration::from_secs(1);
/// How long the background thread sleeps when it has no descriptors left to sleep on.
const FAILED_NAP: Duration = Duration::from_millis(100);

/// How the epoll names the [`Waker`], and everything else.
const WAKER: u64 = 0;
const OTHERS: u64 = 1;

/// What wakes the background thread.
struct Waker {
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
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A shard and the threads that drive it.
pub(crate) struct Progress {
    shard: Mutex<Shard>,
    epoll: InternalFd,
    attention: Attention<Waker>,
    /// Polls in a row that found nothing.
    idle: AtomicU32,
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

impl Progress {
    /// Takes over a shard. The background thread is started by [`Progress::spawn`].
    pub(crate) fn new(shard: Shard) -> io::Result<Arc<Self>> {
        let epoll = InternalFd::from(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let wake = Waker {
            fd: EventFd::internal()?,
            lost: AtomicBool::new(false),
        };
        epoll::add(
            &epoll,
            &wake,
            epoll::EventData::new_u64(WAKER),
            epoll::EventFlags::IN,
        )?;
        Ok(Arc::new(Progress {
            shard: Mutex::new(shard),
            epoll,
            attention: Attention::new(wake),
            idle: AtomicU32::new(0),
            stop: AtomicBool::new(false),
        }))
    }

    /// A turn at the shard, for posting and for control. Waits for whoever has one.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn {
            driver: self,
            shard: self.lock(),
        }
    }

    /// The same for who cannot wait for ever: `None` if somebody keeps the shard until the deadline.
    pub(crate) fn turn_until(&self, deadline: Instant) -> Option<Turn<'_>> {
        loop {
            let shard = match self.shard.try_lock() {
                Ok(shard) => shard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::yield_now();
                    continue;
                }
                Err(TryLockError::WouldBlock) => return None,
            };
            return Some(Turn { driver: self, shard });
        }
    }

    /// Waits until every access that was under way when it was called has ended: accesses to registered memory are made
    /// with the lock held, so whoever has it afterwards sees what was changed before this call.
    pub(crate) fn fence(&self) {
        drop(self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Shard> {
        // A panic while driving is a bug that has been reported by then; the shard stays usable enough to
        // be destroyed.
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
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
        if self.attention.wake.lost.load(Ordering::Relaxed) {
            let now = shard.clock.now();
            shard.fail(now);
        }
        let backed = self.attention.is_aside();
        let worked = shard.drive(Effort::Light { backed });
        if worked {
            self.watch_new(shard);
            self.check_alarm(shard);
        }
        worked
    }

    /// Wakes the background thread if a timer is due before it would wake by itself, or if there is more to
    /// send than one call sends.
    fn check_alarm(&self, shard: &Shard) {
        if shard.is_behind() {
            self.attention.timer_set(0);
        }
        if let Some(at) = shard.next_timeout() {
            self.attention.timer_set(at.as_ns());
        }
    }

    /// Whether nothing but a packet or somebody's turn wakes the background thread.
    #[cfg(test)]
    pub(crate) fn sleeps_without_timer(&self) -> bool {
        self.attention.sleeps_without_timer()
    }

    /// The program is about to sleep: the background thread must watch the descriptors now.
    pub(crate) fn resume(&self) {
        self.turn().flush_deferred();
        self.attention.call_back();
        if self.attention.wake.lost.load(Ordering::Relaxed) {
            // Nobody would come.
            self.fail();
        }
    }

    /// Watches a descriptor. It is forgotten when it is closed.
    pub(crate) fn watch(&self, fd: impl AsFd) -> io::Result<()> {
        match epoll::add(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(OTHERS),
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

    /// Ends the background thread. Whether it will notice: without its descriptors it may sleep for ever.
    pub(crate) fn stop(&self) -> bool {
        self.stop.store(true, Ordering::SeqCst);
        self.attention.wake.wake();
        !self.attention.wake.lost.load(Ordering::Relaxed)
    }

    /// The program has closed descriptors that we sleep on.
    fn fail(&self) {
        let mut shard = self.lock();
        let now = shard.clock.now();
        shard.fail(now);
        shard.flush(now);
    }

    fn is_lost(&self) -> bool {
        self.epoll.is_lost() || self.attention.wake.fd.is_lost()
    }

    fn run(&self) {
        let mut nap = SHORTEST_NAP;
        let mut watchful_until = Time::ZERO;
        let mut check_at = Time::ZERO;
        let mut failed = false;
        while !self.stop.load(Ordering::SeqCst) {
            let aside = self.attention.program_polls() && self.lock().clock.now() >= watchful_until;
            if failed {
                std::thread::sleep(FAILED_NAP);
            } else if aside {
                self.stand_aside(nap);
            } else {
                let timeout = self.timeout();
                self.sleep(timeout);
            }
            self.attention.woke();
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
        let mut shard = self.lock();
        let at = shard.clock.now();
        let program_polls = shard.is_polled(at);
        let work = shard.drive(Effort::Full);
        self.watch_new(&mut shard);
        if let Some(capture) = &mut shard.capture {
            capture.flush();
        }
        Found {
            at,
            work,
            program_polls,
            failed: shard.nic.has_failed(),
        }
    }

    /// Fails the device if it has lost a descriptor.
    fn check_descriptors(&self) {
        if self.is_lost() {
            return self.fail();
        }
        let mut shard = self.lock();
        let now = shard.clock.now();
        shard.check_descriptors(now);
        if shard.nic.has_failed() {
            shard.flush(now);
        }
    }

    /// Watches sockets that have come since.
    fn watch_new(&self, shard: &mut Shard) {
        if shard.take_unwatched() {
            for fd in shard.attachments.iter().flat_map(Attachment::fds) {
                // Out of watches: the socket is still looked at whenever something else wakes us.
                let _ = self.watch(fd);
            }
        }
    }

    /// How long the background thread may sleep; `None` is until something happens.
    fn timeout(&self) -> Option<Duration> {
        let shard = self.lock();
        let now = shard.clock.now();
        let timer = shard.next_timeout().map(|at| at.since(now));
        let stall = shard.is_behind().then_some(STALL_RETRY);
        let timeout = [timer, stall].into_iter().flatten().min();
        // Set under the lock: whoever sets an earlier timer holds it after us and sees this.
        let until_ns = timeout.map_or(u64::MAX, |timeout| (now + timeout).as_ns());
        self.attention.fall_asleep(until_ns);
        timeout
    }

    fn stand_aside(&self, nap: Duration) {
        self.attention.set_aside(true);
        let timeout = timespec(nap);
        let _ = poll(
            &mut [PollFd::new(&self.attention.wake, PollFlags::IN)],
            Some(&timeout),
        );
        self.attention.wake.drain();
        self.attention.set_aside(false);
        if self.attention.wake.lost.load(Ordering::Relaxed) {
            self.fail();
        }
    }

    fn sleep(&self, timeout: Option<Duration>) {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
        let timeout = timeout.map(timespec);
        // Which of the others is ready does not matter: `serve` looks at all of them.
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => {
                if events.iter().any(|event| event.data.u64() == WAKER) {
                    self.attention.wake.drain();
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            // A descriptor that is no epoll: it would never sleep again.
            Err(_) => return self.fail(),
        }
        if self.attention.wake.lost.load(Ordering::Relaxed) {
            self.fail();
        }
    }
}

/// The right to use the shard. Ending it sends what is to be sent, shows what completed and sees to it that somebody is
/// awake when the next timer is due.
pub(crate) struct Turn<'a> {
    driver: &'a Progress,
    shard: MutexGuard<'a, Shard>,
}

impl Deref for Turn<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.shard.needs_flush() {
            let now = self.shard.clock.now();
            self.shard.flush(now);
        }
        self.driver.watch_new(&mut self.shard);
        self.driver.check_alarm(&self.shard);
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).unwrap_or(Timespec {
        tv_sec: i64::MAX,
        tv_nsec: 0,
    })
}

/// Signals belong to the program: a thread spawned by `f` inherits a mask that blocks them all, but for those that its
/// own instructions cause. Where one of these is blocked the kernel ends the process instead of calling a handler, and
/// accesses to the program's memory rely on theirs.
fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both pointers are to storage of the right type; sigfillset initialises the set it is given.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for caused in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
        ] {
            libc::sigdelset(all.as_mut_ptr(), caused);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let result = f();
    if blocked {
        // SAFETY: the successful call above stored the old mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    result
}
