//! Congestion control: sizes the window to a peer to what the path delivers in one round trip, and little more.
//!
//! Time is cut into rounds of about a round trip. Within one, acknowledgements only add to sums and let the window
//! grow, so that an undisturbed path pays a few comparisons. When a round ends, its sums are evaluated:
//! - **The pipe is measured**: the most that was delivered per second in one of the last rounds, times the shortest
//!   round trip of late. The window may be twice that, or what a socket's buffer usually holds if that is more: on a
//!   short path, waiting for a processor takes longer than the trip, and a window without slack would idle.
//! - **A queue shows as delay.** If even the shortest trip of two rounds took longer than an empty path by more than
//!   schedulers explain, and than trips differ from each other anyway, the window shrinks in proportion.
//! - **Loss alone is not congestion.** Radio, tunnels and tired cables lose a little all the time. Only if more was
//!   under way than the path delivers in a round trip does a loss shrink the window, by half of the lost fraction.
//! - **A flow that starts late finds a queue and takes its delay for the path's.** So the window of a path that seems
//!   long is small for two rounds now and then: the queue drains, and every flow on the path sees its true length.
//! - **A congestion notification** (CNP) shrinks it at once, by a part that grows with how many rounds had one, as
//!   DCQCN does.
//!
//! That holds where the peer reports which packets it lacks. A peer that reports only the first and drops what follows
//! (go-back-N) makes every loss cost what is under way. Then a loss takes half of that, but no more than is beyond the
//! pipe or, if nothing is, an eighth. What fits the pipe is lost for a round trip and costs no other flow anything.

use crate::time::Time;

/// What the buffer of a UDP socket takes wherever the system's limits were not lowered: below this, the window is not kept
/// from growing.
const SOCKET_BUFFER: u64 = 512 << 10;

/// A queue that delays less than this is none: schedulers keep packets waiting as long.
const EMPTY_QUEUE_NS: u64 = 1_000_000;

/// Part of the shortest round trip by which the path may be longer at times, as a divisor.
const SLACK_OF_ROUND_TRIP: u64 = 4;

/// A queue makes each round trip about as long as the one before; where they differ, the path itself does that. How fast the estimate
/// of it follows, as a divisor, and how many of it are no queue.
const JITTER_GAIN: u64 = 16;
const JITTERS: u64 = 2;

/// The shortest round.
const ROUND_NS: u64 = 200_000;

/// Rounds for which what was once delivered is believed.
const ROUNDS_REMEMBERED: u32 = 10;

/// The shortest trip is believed for so long; then a path that has become longer is noticed.
const BASE_NS: u64 = 10_000_000_000;

/// From one draining of the queue to the next, at most. In the beginning it is so many rounds, and then doubles.
const DRAIN_NS: u64 = BASE_NS / 2;
const DRAIN_AFTER_ROUNDS: u64 = 40;

/// Rounds without a sign of congestion after which it is tried whether a path takes more that seems to be full no longer.
const CALM_ROUNDS: u8 = 8;

/// What DCQCN calls g: how fast the estimate of how many rounds are marked follows, as a divisor; and what is all of them.
const MARKED_GAIN: u32 = 16;
const ALL_MARKED: u32 = 1 << 16;

/// Packets that may always be under way.
const FEWEST_PACKETS: u64 = 4;
/// The same while the path says that it is too full for that.
const FEWEST_PACKETS_MARKED: u64 = 2;

/// The window to one peer, and the measurements behind its size.
///
/// It knows nothing of packets or queue pairs: the caller reports what arrived, was lost or marked, and asks how much
/// may be under way. So a simulator can have thousands of them without a NIC.
#[derive(Debug)]
pub struct Congestion {
    window: u64,
    /// Below this the window doubles in a round trip; above, it grows slowly.
    threshold: u64,
    /// It is never larger.
    limit: u64,
    /// What the measured pipe allows at the moment.
    allowed: u64,
    round: Round,
    base: Shortest,
    fastest: Fastest,
    /// A round trip of late, and by how much one differs from the next.
    smoothed_ns: u64,
    last_ns: u64,
    jitter_ns: u64,
    /// The shortest of the round before.
    shortest_before_ns: Option<u64>,
    /// How many of the last rounds were marked, of [`ALL_MARKED`].
    marked: u32,
    /// Rounds since the last sign of congestion.
    calm: u8,
    /// Bytes by which the window grows in a round once it has found its size.
    step: u64,
    drain: Drain,
}

/// When a queue of our own making is drained.
#[derive(Copy, Clone, Debug, Default)]
struct Drain {
    next: Time,
    interval_ns: u64,
    /// While it drains: rounds left, and the window before.
    under_way: Option<(u8, u64)>,
}

/// It drains for so many rounds after the first.
const DRAIN_ROUNDS: u8 = 1;

/// The sums of a round.
#[derive(Copy, Clone, Debug, Default)]
struct Round {
    /// What might be under way when it began, and so be delivered in it.
    window: u64,
    began: Time,
    ends: Time,
    delivered: u64,
    lost: u64,
    /// Whether a sender found no room in the window.
    full: bool,
    /// Whether a congestion notification came.
    marked: bool,
    /// The shortest round trip of the round.
    shortest_ns: Option<u64>,
}

impl Congestion {
    /// A window that begins with `initial` bytes and never has more than `limit`.
    pub fn new(initial: u32, limit: u32) -> Self {
        let limit = u64::from(limit);
        Congestion {
            window: u64::from(initial),
            threshold: limit,
            limit,
            allowed: limit.min(SOCKET_BUFFER),
            round: Round::default(),
            base: Shortest::default(),
            fastest: Fastest::default(),
            smoothed_ns: 0,
            last_ns: 0,
            jitter_ns: 0,
            shortest_before_ns: None,
            marked: ALL_MARKED,
            calm: 0,
            step: 0,
            drain: Drain::default(),
        }
    }

    /// Bytes that may be under way.
    #[inline]
    pub fn window(&self) -> u64 {
        self.window
    }

    /// The shortest round trip of late; zero if none was measured.
    pub(crate) fn shortest_round_trip_ns(&self) -> u64 {
        self.base.get()
    }

    /// A sender found no room.
    pub fn on_full(&mut self) {
        self.round.full = true;
    }

    /// So many bytes have arrived at the peer.
    #[inline]
    pub fn on_delivered(&mut self, now: Time, bytes: u64, mtu: u32) {
        if now >= self.round.ends {
            self.end_round(now, mtu);
        }
        self.round.delivered += bytes;
        if self.window < self.allowed && self.drain.under_way.is_none() {
            let growth = if self.window < self.threshold {
                bytes
            } else {
                (bytes * self.step.max(u64::from(mtu)) / self.window).max(1)
            };
            self.window = (self.window + growth).min(self.allowed);
        }
    }

    /// An answer took this long.
    pub fn on_round_trip(&mut self, now: Time, ns: u64) {
        let ns = ns.max(1);
        self.base.add(now, ns);
        let shortest = &mut self.round.shortest_ns;
        *shortest = Some(shortest.map_or(ns, |known| known.min(ns)));
        if self.smoothed_ns > 0 {
            let differs = ns.abs_diff(self.last_ns);
            self.jitter_ns = self.jitter_ns - self.jitter_ns / JITTER_GAIN + differs / JITTER_GAIN;
        }
        self.last_ns = ns;
        self.smoothed_ns = match self.smoothed_ns {
            0 => ns,
            known => known - known / 8 + ns / 8,
        };
    }

    /// So many bytes were lost, by the report of a peer that tells what it lacks.
    pub fn on_lost(&mut self, bytes: u64) {
        self.round.lost += bytes;
    }

    /// A packet was lost, and whatever was sent after it must be sent again: so many bytes were under way in vain.
    pub fn on_gone_back(&mut self, under_way: u64, mtu: u32) {
        let beyond = self.window.saturating_sub(self.pipe());
        let part = beyond.clamp(under_way / 8, under_way / 2);
        self.shrink_by(part, FEWEST_PACKETS, mtu);
    }

    /// Nothing was heard for so long that whatever was known of the path may be wrong.
    pub fn on_timeout(&mut self, mtu: u32) {
        let fewest = FEWEST_PACKETS * u64::from(mtu);
        self.threshold = (self.window / 2).max(fewest);
        self.window = fewest.min(self.limit);
    }

    /// A congestion notification came. One in a round says it all.
    pub fn on_notified(&mut self, now: Time, mtu: u32) {
        if now >= self.round.ends {
            self.end_round(now, mtu);
        }
        if std::mem::replace(&mut self.round.marked, true) {
            return;
        }
        self.marked += (ALL_MARKED - self.marked) / MARKED_GAIN;
        let cut = self.window * u64::from(self.marked) / (2 * u64::from(ALL_MARKED));
        self.shrink_by(cut, FEWEST_PACKETS_MARKED, mtu);
    }

    #[cold]
    fn end_round(&mut self, now: Time, mtu: u32) {
        let lasts = self.smoothed_ns.max(ROUND_NS);
        let ended = std::mem::take(&mut self.round);
        self.round.window = self.window;
        self.round.began = now;
        self.round.ends = now + std::time::Duration::from_nanos(lasts);
        if ended.delivered + ended.lost == 0 {
            return;
        }
        let elapsed = now.since(ended.began).as_nanos().max(1) as u64;
        let base = self.base.get();
        let rate = per_second(ended.delivered, elapsed);
        // What comes back within less than a trip says nothing of how much the path takes.
        if elapsed >= base && (ended.full || rate > self.fastest.get()) {
            self.fastest.add(rate);
        }
        // More was under way than arrives in the time of an empty path: what was too much waited in a queue or was lost.
        let arrives = in_time(rate, base);
        let path_is_full = ended.window * 8 > arrives * 9;
        let pipe = self.pipe();
        // What was measured is a round trip old: while the window doubles, it was half as large then.
        let factor = if self.window < self.threshold { 4 } else { 2 };
        self.allowed = (factor * pipe).max(SOCKET_BUFFER).min(self.limit);
        if !ended.marked {
            self.marked -= self.marked / MARKED_GAIN;
        }
        // Less than in proportion to the window, so that a flow with a small window catches up.
        self.step = u64::from(mtu) + (self.window * u64::from(mtu)).isqrt() / 4;
        self.calm = self.calm.saturating_add(1);
        let fewest = FEWEST_PACKETS;
        let empty = base + base / SLACK_OF_ROUND_TRIP + EMPTY_QUEUE_NS + JITTERS * self.jitter_ns;
        // A queue is still there in the next round.
        let before = std::mem::replace(&mut self.shortest_before_ns, ended.shortest_ns);
        match ended.shortest_ns.min(before.or(ended.shortest_ns)) {
            // A sender that does not use the window has not caused the delay.
            _ if !ended.full => {}
            // The queue is ours to empty down to what the pipe holds, and no further.
            Some(shortest) if shortest > empty && self.window > pipe => {
                let queued = self.window * (shortest - empty) / shortest;
                self.shrink_by(queued.min(self.window / 2), fewest, mtu);
            }
            // What was under way when the window last shrank is reported as lost in the round after.
            _ if ended.lost > 0 && path_is_full && self.calm > 2 => {
                let part = self.window * ended.lost / (ended.lost + ended.delivered);
                self.shrink_by(part / 2, fewest, mtu);
            }
            _ if self.calm >= CALM_ROUNDS && !path_is_full => self.threshold = self.window * 5 / 4,
            _ => {}
        }
        if ended.full {
            self.window = self.window.min(self.allowed);
        }
        self.drain_at_times(now, pipe, mtu);
    }

    /// If the path seems long, little is sent for a moment, to see whether it is.
    fn drain_at_times(&mut self, now: Time, pipe: u64, mtu: u32) {
        match self.drain.under_way {
            // Not at once: all of it would arrive at the queue together.
            Some((0, before)) => {
                self.drain.under_way = None;
                self.threshold = pipe.min(before);
            }
            Some((rounds, before)) => self.drain.under_way = Some((rounds - 1, before)),
            None if now >= self.drain.next => {
                let interval = &mut self.drain.interval_ns;
                let begins = *interval == 0;
                *interval = (2 * *interval)
                    .max(DRAIN_AFTER_ROUNDS * self.smoothed_ns)
                    .min(DRAIN_NS);
                self.drain.next = now + std::time::Duration::from_nanos(*interval);
                if !begins && self.base.get() > EMPTY_QUEUE_NS {
                    self.drain.under_way = Some((DRAIN_ROUNDS, self.window));
                    self.threshold = self.window;
                    let fewest = FEWEST_PACKETS * u64::from(mtu);
                    self.window = (pipe / 4).max(fewest).min(self.window);
                }
            }
            None => {}
        }
    }

    /// What the path delivers in one round trip; zero if nothing was measured.
    fn pipe(&self) -> u64 {
        in_time(self.fastest.get(), self.base.get())
    }

    fn shrink_by(&mut self, bytes: u64, fewest_packets: u64, mtu: u32) {
        let fewest = (fewest_packets * u64::from(mtu)).min(self.window);
        self.window = self.window.saturating_sub(bytes).max(fewest);
        self.threshold = self.window;
        self.calm = 0;
    }
}

fn per_second(bytes: u64, ns: u64) -> u64 {
    u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX)
}

/// Bytes that arrive in so many nanoseconds.
fn in_time(per_second: u64, ns: u64) -> u64 {
    u64::try_from(u128::from(per_second) * u128::from(ns) / 1_000_000_000).unwrap_or(u64::MAX)
}

/// The shortest round trip of late: of this stretch of time and the one before.
#[derive(Copy, Clone, Debug, Default)]
struct Shortest {
    now_ns: Option<u64>,
    before_ns: Option<u64>,
    until: Time,
}

impl Shortest {
    fn add(&mut self, now: Time, ns: u64) {
        if now >= self.until {
            self.before_ns = self.now_ns.take();
            self.until = now + std::time::Duration::from_nanos(BASE_NS);
        }
        self.now_ns = Some(self.now_ns.map_or(ns, |known| known.min(ns)));
    }

    /// Zero if none was measured.
    fn get(&self) -> u64 {
        let both = [self.now_ns, self.before_ns];
        both.into_iter().flatten().min().unwrap_or(0)
    }
}

/// The most that was delivered per second in one of the last rounds.
#[derive(Copy, Clone, Debug, Default)]
struct Fastest {
    rate: u64,
    /// The best since `rate` was the best.
    next: u64,
    rounds: u32,
}

impl Fastest {
    fn add(&mut self, rate: u64) {
        if rate >= self.rate {
            *self = Fastest {
                rate,
                next: 0,
                rounds: 0,
            };
            return;
        }
        self.next = self.next.max(rate);
        self.rounds += 1;
        if self.rounds >= ROUNDS_REMEMBERED {
            *self = Fastest {
                rate: self.next,
                next: 0,
                rounds: 0,
            };
        }
    }

    fn get(&self) -> u64 {
        self.rate
    }
}

#[cfg(test)]
mod tests;
