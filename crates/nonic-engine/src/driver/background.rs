//! The background thread: it serves peers while the program's threads do something else.
//!
//! It sleeps on every descriptor of the shard. While the program polls it keeps away, in naps ([`nap_after`]). At the end of each nap
//! it counts the program's polls, which takes no lock; if there were any, it naps on. So it notices after two naps that a program has
//! stopped polling. A program that only waits for a processor has not: where there are more of them than processors, each is away for
//! milliseconds. While threads sleep that rely on another thread of the program ([`Waiters`](super::waiters::Waiters)), the
//! naps are the shortest.
//!
//! A program may stop because it waits for bytes to change in memory, which no poll would ever report. The thread
//! recognises such a program by the packets that are waiting at the end of the nap, and does not keep away from it for a
//! while ([`Watchful`]).
//!
//! Before it sleeps on the descriptors it polls for a moment, if packets have come quickly one after the other
//! ([`Spin`](super::spin::Spin)).

use super::Driver;
use super::spin::DISTURBANCE;
use crate::os::poller::timespec;
use crate::os::scheduling::ask_for_short_slices;
use crate::shard::Effort;
use nonic_core::Time;
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long it keeps away before it first counts polls. A program that polls at all does so at least this often: it has
/// completions to look at and requests to post in between.
const SHORTEST_NAP: Duration = Duration::from_micros(200);
/// How long it keeps away from a program that has done nothing but poll for long, or that waits for a processor. Where there is no
/// processor to spare, the end of each nap takes one from the program for some microseconds.
const LONGEST_NAP: Duration = Duration::from_millis(2);
/// What the program leaves undone when it stops polling waits for two naps. That may take this part of the time for which it polled
/// before, twice.
const NAP_OF_POLLING: u32 = 16;
/// How long it keeps away in all while the program's thread waits for a processor. If it came back instead, it would do that thread's
/// work, record by record, each with a wake-up, on a processor that nobody has to spare: eight ranks of MPI on two processors then took
/// twice as long to exchange 64 KiB.
const WAITING_PATIENCE: Duration = Duration::from_millis(10);
/// After so long it looks at everything, however eagerly the program polls: captures and counters have readers outside the program.
const LONGEST_ABSENCE: Duration = Duration::from_millis(16);
/// Looks for packets between two readings of the clock.
const LOOKS: u32 = 4;

/// How often the descriptors are checked by a thread that is awake anyway.
const DESCRIPTOR_CHECK: Duration = Duration::from_secs(1);
/// How long it sleeps when it has no descriptors left to sleep on.
const FAILED_NAP: Duration = Duration::from_millis(100);

/// What the background thread found when it looked.
struct Found {
    at: Time,
    /// Packets or messages had been waiting.
    work: bool,
    /// There are no descriptors left to sleep on.
    failed: bool,
}

/// How a time of keeping away ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Nap {
    /// Another thread woke it.
    Called,
    /// The program still polls.
    Polled,
    /// It does not.
    Unpolled,
}

/// How long it naps while a program polls that has polled for so long already.
fn nap_after(polled: Duration) -> Duration {
    (polled / NAP_OF_POLLING).clamp(SHORTEST_NAP, LONGEST_NAP)
}

/// For how long the thread stays although the program polls, and for how long the program has polled.
///
/// Packets had waited for it before. That may have been an accident: a polling program was not given its processor for a
/// moment. So it does not stay for long at first, and longer each time that happens again as soon as it turns away.
struct Watchful {
    until: Time,
    next: Duration,
    /// How long the program has polled without a pause.
    polled: Duration,
}

impl Watchful {
    const SHORTEST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_millis(64);
    /// A program that has polled for so long does nothing else.
    const CERTAINTY: Duration = Duration::from_millis(1);

    fn new() -> Self {
        Watchful {
            until: Time::ZERO,
            next: Self::SHORTEST,
            polled: Duration::ZERO,
        }
    }

    /// Packets had waited.
    fn begin(&mut self, now: Time) {
        self.until = now + self.next;
        self.next = (2 * self.next).min(Self::LONGEST);
    }

    /// The program polled during a nap.
    fn polled(&mut self, nap: Duration) {
        self.polled += nap;
        if self.polled >= Self::CERTAINTY {
            self.next = Self::SHORTEST;
        }
    }

    /// It did not.
    fn paused(&mut self) {
        self.polled = Duration::ZERO;
    }
}

impl Driver {
    pub(super) fn run(&self) {
        // Without, peers only wait longer while the program spins.
        ask_for_short_slices();
        let mut watchful = Watchful::new();
        let mut check_at = Time::ZERO;
        let mut worked_at = self.turns.now();
        let mut failed = false;
        while !self.stop.load(Ordering::SeqCst) {
            let mut nap = None;
            let mut slept = false;
            if failed {
                std::thread::sleep(FAILED_NAP);
            } else if self.turns.park.program_polls() && self.turns.now() >= watchful.until {
                nap = Some(self.stand_aside(&mut watchful));
            } else {
                if !self.has_runtime() && self.look_before_sleeping(&mut worked_at) {
                    continue;
                }
                let mut turn = self.turn();
                turn.sync_links();
                turn.publish_counters();
                let timeout = turn.end_asleep();
                let due = timeout.map(|timeout| self.turns.now() + timeout);
                self.sleep(timeout);
                slept = true;
                let early = |now| now >= watchful.until && due.is_none_or(|due| now < due);
                if self.has_runtime() && early(self.turns.now()) {
                    nap = Some(self.leave_to_runtime(&mut watchful));
                    slept = nap == Some(Nap::Unpolled);
                }
            }
            self.turns.park.woke();
            let found = match slept {
                true => self.take_likely().unwrap_or_else(|| self.serve()),
                false => self.serve(),
            };
            failed = found.failed;
            if found.at >= check_at {
                check_at = found.at + DESCRIPTOR_CHECK;
                self.check_descriptors();
            }
            if found.work {
                match nap {
                    None => self.spin.waited(found.at.since(worked_at)),
                    Some(Nap::Unpolled) => watchful.begin(found.at),
                    Some(Nap::Called | Nap::Polled) => {}
                }
                worked_at = found.at;
            }
        }
    }

    /// What woke the thread from its sleep is most likely where packets came from last. If so, the thread does not look at
    /// the rest: whatever else is readable ends the next sleep at once. `None` if there was nothing.
    fn take_likely(&self) -> Option<Found> {
        let mut turn = self.turn();
        turn.wake();
        let worked = !turn.nic.has_failed() && self.glance(turn, Effort::Watch);
        worked.then(|| Found {
            at: self.turns.now(),
            work: true,
            failed: false,
        })
    }

    /// Everything the program's thread seldom gets to: all sockets and inboxes.
    fn serve(&self) -> Found {
        let mut turn = self.turn();
        let at = turn.now();
        let work = turn.drive(at, Effort::Full);
        turn.sync_links();
        turn.publish_counters_when_due(at);
        Found {
            at,
            work,
            failed: turn.nic.has_failed(),
        }
    }

    /// What woke this thread has woken a task of the program's runtime as well: keeps away if that task drives the shard.
    fn leave_to_runtime(&self, watchful: &mut Watchful) -> Nap {
        self.turns.park.woke();
        let timeout = timespec(SHORTEST_NAP);
        let called = poll(&mut [PollFd::new(self.wake(), PollFlags::IN)], Some(&timeout));
        if called != Ok(0) {
            self.wake().drain();
        }
        if !self.turns.park.program_polled() {
            return Nap::Unpolled;
        }
        self.turn().wake();
        match self.stand_aside(watchful) {
            // The thread does not sleep any more, as far as the shard knows.
            Nap::Unpolled => Nap::Polled,
            nap => nap,
        }
    }

    /// Keeps away while the program polls.
    fn stand_aside(&self, watchful: &mut Watchful) -> Nap {
        let mut nap = nap_after(watchful.polled);
        let mut outcome = Nap::Polled;
        let (mut unpolled, mut ran) = (Duration::ZERO, None);
        let mut absence = Duration::ZERO;
        self.turns.park.set_aside(true);
        while absence < LONGEST_ABSENCE {
            let long = nap > SHORTEST_NAP;
            if !self.turns.park.begin_nap(long, || self.waiters.has_followers()) {
                nap = SHORTEST_NAP;
            }
            absence += nap;
            let timeout = timespec(nap);
            let called = poll(&mut [PollFd::new(self.wake(), PollFlags::IN)], Some(&timeout));
            if called != Ok(0) {
                outcome = Nap::Called;
                break;
            }
            if !self.turns.park.program_polled() {
                unpolled += nap;
                let patient = unpolled < WAITING_PATIENCE && !self.waiters.has_followers();
                if !patient || !self.waits_for_processor(&mut ran) {
                    outcome = Nap::Unpolled;
                    break;
                }
                nap = (2 * nap).min(LONGEST_NAP);
                continue;
            }
            (unpolled, ran) = (Duration::ZERO, None);
            watchful.polled(nap);
            nap = nap_after(watchful.polled);
        }
        match outcome {
            Nap::Polled => {}
            Nap::Unpolled => watchful.paused(),
            Nap::Called => {
                watchful.paused();
                self.wake().drain();
            }
        }
        self.turns.park.set_aside(false);
        self.turns.park.begin_nap(false, || false);
        if self.wake().is_lost() {
            self.fail();
        }
        outcome
    }

    /// Whether the thread that polled last wants to run and does not. `ran` is for how long it had run when this was asked before.
    fn waits_for_processor(&self, ran: &mut Option<Duration>) -> bool {
        let thread = self.polling_thread();
        let Some(runs) = thread.run_time() else {
            return false;
        };
        let before = ran.replace(runs);
        before.is_none_or(|before| runs - before < SHORTEST_NAP / 2) && thread.is_runnable()
    }

    /// Looks for packets as long as they come quickly one after the other. `worked_at` is when the last one came. Whether
    /// there is a reason not to sleep: the program polls, or the end has come.
    fn look_before_sleeping(&self, worked_at: &mut Time) -> bool {
        while let Some(duration) = self.spin.duration() {
            let Some(found) = self.look_for(duration) else {
                return false;
            };
            self.spin.paid_off();
            self.spin.waited(found.since(*worked_at));
            *worked_at = found;
            if self.turns.park.seems_polled() || self.stop.load(Ordering::SeqCst) {
                return true;
            }
        }
        false
    }

    /// Looks for packets until one comes, and when that was.
    fn look_for(&self, duration: Duration) -> Option<Time> {
        let mut now = self.turns.now();
        let deadline = now + duration;
        loop {
            let last = now;
            let worked = (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                self.turns
                    .try_take_spare()
                    .is_some_and(|turn| self.glance(turn, Effort::Watch))
            });
            now = self.turns.now();
            if worked {
                return Some(now);
            }
            if now.since(last) >= DISTURBANCE {
                self.spin.was_disturbed();
                return None;
            }
            if now >= deadline {
                self.spin.was_in_vain();
                return None;
            }
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_neglected_again_is_watched_for_longer_until_it_polls() {
        let mut watchful = Watchful::new();
        let mut now = Time::ZERO;
        let mut last = Duration::ZERO;
        for _ in 0..10 {
            watchful.begin(now);
            let length = watchful.until.since(now);
            assert!(length > last || length == Watchful::LONGEST);
            (now, last) = (watchful.until, length);
        }
        assert_eq!(last, Watchful::LONGEST);
        watchful.polled(Watchful::CERTAINTY);
        watchful.begin(now);
        assert_eq!(watchful.until.since(now), Watchful::SHORTEST);
    }

    #[test]
    fn the_longer_a_program_polls_the_longer_the_naps() {
        let mut watchful = Watchful::new();
        let mut naps = Vec::new();
        while watchful.polled < Duration::from_millis(100) {
            let nap = nap_after(watchful.polled);
            watchful.polled(nap);
            naps.push(nap);
        }
        assert!(naps.is_sorted());
        assert_eq!((naps[0], naps[naps.len() - 1]), (SHORTEST_NAP, LONGEST_NAP));
        watchful.paused();
        assert_eq!(nap_after(watchful.polled), SHORTEST_NAP);
    }
}
