//! What waits for the program's next call, or for more to travel with.
//!
//! A request leaves inside the call that posts it, with three exceptions:
//! - While the program polls, a plain acknowledgement may wait for its next call: a program that answers what it received then sends both
//!   with one system call.
//! - A short request that is posted while the peer owes an answer to an earlier one of the same queue pair may wait for others, up to a
//!   batch; the answer, a timer or any poll of the program sends it.
//! - While the program polls, a WRITE or READ that this thread executes in the memory of a peer on this host may wait for others, so that
//!   one system call executes all of them ([`Gathering`]); any poll of the program, or a timer, has it executed.
//!
//! With `NONIC_PROMPT_ACKS=on` nothing waits. docs/decisions/11-batching.md has the price of each.
//!
//! This module counts what waits. The shard sends it.

use nonic_core::{MAX_BATCH_PACKETS, Qpn, Time};
use std::time::Duration;

/// After so many posts, or bytes, requests are held back no longer: they fill a batch.
const HELD_POSTS: u32 = MAX_BATCH_PACKETS as u32;
const HELD_BYTES: u64 = 60 * 1024;

/// A program with several completion queues takes what is in each of them before it answers. Acknowledgements wait on while it has taken
/// completions so often.
const FOUND_POLLS: u32 = 2;

/// So many WRITEs and READs that follow a poll do not wait: the program may post no more of them.
const EAGER_POSTS: u32 = 4;
/// For so long requests wait to be executed together, if the program leaves them.
const LONGEST_WAIT: Duration = Duration::from_micros(500);
/// After they were left waiting, none waits until the program has polled so often with requests posted in between. Twice as often
/// each time that happens again, up to so many times.
const SHORTEST_REST: u32 = 64;
const MOST_DOUBLINGS: u32 = 14;
/// After so many batches that were not left, those that were are forgotten.
const BATCHES_TO_FORGET: u32 = 1024;

/// Acknowledgements and requests that are held back.
#[derive(Debug)]
pub(super) struct Batching {
    /// Whether anything may wait at all.
    allowed: bool,
    /// Acknowledgements wait, and after so many polls that found completions no longer.
    acknowledgements: bool,
    found_polls: u32,
    /// Requests that wait, whether for packets or to be executed here, and how many bytes they have.
    posts: u32,
    bytes: u64,
    /// By when those that were gathered must be executed, and the queue pair of the first.
    due: Option<(Time, Qpn)>,
    gathering: Gathering,
}

impl Batching {
    /// With `prompt`, nothing waits.
    pub(super) fn new(prompt: bool) -> Self {
        Batching {
            allowed: !prompt,
            acknowledgements: false,
            found_polls: 0,
            posts: 0,
            bytes: 0,
            due: None,
            gathering: Gathering::default(),
        }
    }

    pub(super) fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Whether acknowledgements wait.
    pub(super) fn holds_acknowledgements(&self) -> bool {
        self.acknowledgements
    }

    /// Whether requests wait.
    pub(super) fn holds_posts(&self) -> bool {
        self.posts > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.acknowledgements && self.posts == 0
    }

    /// Acknowledgements wait for the program's next call.
    pub(super) fn hold_acknowledgements(&mut self) {
        self.acknowledgements = true;
        self.found_polls = FOUND_POLLS;
    }

    /// The program polled and found completions that were there already. Whether what waits goes on waiting.
    pub(super) fn outlasts_found_poll(&mut self) -> bool {
        let waits = self.posts == 0 && self.found_polls > 0;
        self.found_polls = self.found_polls.saturating_sub(1);
        waits
    }

    /// A request of so many bytes was posted. Whether it may wait for more to travel with.
    pub(super) fn hold_post(&mut self, bytes: u64) -> bool {
        self.posts += 1;
        self.bytes += bytes;
        self.allowed && self.posts < HELD_POSTS && self.bytes < HELD_BYTES
    }

    /// A WRITE or READ is about to be posted, by a program that has polled so often. Whether it may wait to be executed with others.
    #[inline]
    pub(super) fn may_gather(&mut self, polls: u32) -> bool {
        self.gathering.post(polls) && self.allowed
    }

    /// The request that was posted last waits to be executed with others. Whether it is the first.
    #[inline]
    pub(super) fn gather(&mut self, now: impl FnOnce() -> Time, qpn: Qpn) -> bool {
        let first = self.due.is_none();
        if first {
            self.due = Some((now() + LONGEST_WAIT, qpn));
        }
        first
    }

    /// Whether the first request that was gathered is this queue pair's.
    #[inline]
    pub(super) fn gathers_for(&self, qpn: Qpn) -> bool {
        self.due.is_some_and(|(_, first)| first == qpn)
    }

    /// When what was gathered is executed at the latest.
    pub(super) fn due(&self) -> Option<Time> {
        self.due.map(|(due, _)| due)
    }

    /// Whether what was gathered goes on waiting, if the program does not poll.
    pub(super) fn gathers(&self, now: Time) -> bool {
        self.due().is_some_and(|due| now < due)
    }

    /// Everything will be sent. If what was gathered is overdue, the program has left it waiting.
    pub(super) fn look(&mut self, now: Time) {
        if self.due().is_some_and(|due| now >= due) {
            self.gathering.left();
        }
    }

    /// Everything is sent.
    pub(super) fn release(&mut self) {
        self.acknowledgements = false;
        (self.posts, self.bytes) = (0, 0);
        if self.due.take().is_some() {
            self.gathering.executed();
        }
    }
}

/// Whether WRITEs and READs that are posted one by one may be executed together.
///
/// A program that posts many of them without a poll in between mostly polls once its send queue is full. But it may as well wait for
/// bytes to change in memory, and would wait for the background thread. Then it does not come to that again soon.
#[derive(Debug, Default)]
struct Gathering {
    /// The program's polls when it posted last, and how many requests it has posted since.
    polls: u32,
    posted: u32,
    /// How often it is yet to poll before a request waits again.
    rest: u32,
    /// How often requests were left waiting, and how many batches were not since then.
    left: u32,
    executed: u32,
}

impl Gathering {
    /// A request is posted. Whether it may wait for more.
    #[inline]
    fn post(&mut self, polls: u32) -> bool {
        if polls != self.polls {
            (self.polls, self.posted) = (polls, 0);
            self.rest = self.rest.saturating_sub(1);
        }
        self.posted = self.posted.saturating_add(1);
        self.posted > EAGER_POSTS && self.rest == 0
    }

    /// Those that waited are executed.
    fn executed(&mut self) {
        self.executed += 1;
        if self.executed >= BATCHES_TO_FORGET {
            (self.left, self.executed) = (0, 0);
        }
    }

    /// The program has left requests waiting.
    fn left(&mut self) {
        self.rest = SHORTEST_REST << self.left.min(MOST_DOUBLINGS);
        self.left += 1;
        self.executed = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// How many of a program's requests may wait, of so many that it posts after a poll.
    fn waiting(gathering: &mut Gathering, polls: &mut u32, posts: u32) -> usize {
        *polls = polls.wrapping_add(1);
        (0..posts).filter(|_| gathering.post(*polls)).count()
    }

    #[test]
    fn the_first_requests_after_a_poll_do_not_wait() {
        let (mut gathering, mut polls) = (Gathering::default(), 0);
        assert_eq!(waiting(&mut gathering, &mut polls, EAGER_POSTS), 0);
        assert_eq!(waiting(&mut gathering, &mut polls, EAGER_POSTS + 96), 96);
        assert_eq!(waiting(&mut gathering, &mut polls, EAGER_POSTS), 0);
    }

    #[test]
    fn a_program_that_leaves_requests_waiting_is_not_made_to_wait_again_soon() {
        let (mut gathering, mut polls) = (Gathering::default(), 0);
        for rest in [SHORTEST_REST, 2 * SHORTEST_REST, 4 * SHORTEST_REST] {
            gathering.left();
            let bursts = (0..).take_while(|_| waiting(&mut gathering, &mut polls, 10) == 0);
            assert_eq!(bursts.count() as u32, rest - 1);
        }
        for _ in 0..100 {
            gathering.left();
        }
        assert_eq!(gathering.rest, SHORTEST_REST << MOST_DOUBLINGS);
    }

    #[test]
    fn a_program_that_leaves_nothing_waiting_for_long_is_trusted_again() {
        let mut gathering = Gathering::default();
        gathering.left();
        (0..BATCHES_TO_FORGET).for_each(|_| gathering.executed());
        gathering.left();
        assert_eq!(gathering.rest, SHORTEST_REST);
    }
}
