//! One direction of a link, without any I/O: what happens to which packet, and when.
//!
//! A packet waits for the link (or is dropped or marked there), takes as long as the rate says, and then may get lost, come
//! twice, be damaged or be late. The caller gives the time, and keeps the packets; the same seed and the same packets at the same
//! times have the same fate. Whether the n-th packet that leaves the queue gets lost depends on the seed alone.
//!
//! Read first: [`Direction::accept`].

use super::random::Random;
use super::red::RedState;
use super::settings::{Bursts, Settings};

/// One direction.
#[derive(Clone, Debug)]
pub(crate) struct Direction {
    settings: Settings,
    streams: Streams,
    red: RedState,
    /// When the link has sent everything that waits for it.
    free_at_ns: u64,
    /// Whether a burst of losses goes on.
    is_bad: bool,
    /// When the last packet arrives, of those that must stay in order.
    last_due_ns: u64,
    counters: Counters,
}

/// A packet, as far as a link is concerned.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Packet {
    /// Bytes of the whole IP packet.
    pub(crate) length: usize,
    /// Whether it says that it may be marked (ECN).
    pub(crate) can_be_marked: bool,
}

/// How a packet arrives.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) due_ns: u64,
    /// With congestion experienced (CE).
    pub(crate) marked: bool,
    /// With one wrong bit; which one follows from this number.
    pub(crate) wrong_bit: Option<u64>,
}

/// How often it arrives, and how.
pub(crate) type Arrivals = [Option<Arrival>; 2];

/// What happened so far.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Lost on the way.
    pub(crate) lost: u64,
    /// Dropped since the queue was full.
    pub(crate) overflowed: u64,
    /// Dropped by RED.
    pub(crate) dropped_early: u64,
    pub(crate) marked: u64,
    pub(crate) duplicated: u64,
    pub(crate) corrupted: u64,
    pub(crate) early: u64,
    /// Frames that a host did not take, or that there was no memory for; both directions together, told with the first.
    pub(crate) unwritten: u64,
    /// The longest queue that a packet found, in bytes.
    pub(crate) longest_queue: u64,
    /// Of the queues that packets found, for the mean.
    pub(crate) queue_sum: f64,
}

impl Counters {
    /// The mean of the queues that packets found, in bytes.
    pub(crate) fn mean_queue(&self) -> f64 {
        self.queue_sum / (self.packets.max(1)) as f64
    }
}

/// A stream of numbers for each kind of fault, so that none depends on another.
#[derive(Clone, Debug)]
struct Streams {
    red: Random,
    loss: Random,
    bursts: Random,
    duplicates: Random,
    corruption: Random,
    early: Random,
    jitter: Random,
}

impl Direction {
    pub(crate) fn new(settings: Settings, seed: u64) -> Self {
        let stream = |purpose| Random::new(seed, purpose);
        Self {
            settings,
            streams: Streams {
                red: stream(1),
                loss: stream(2),
                bursts: stream(3),
                duplicates: stream(4),
                corruption: stream(5),
                early: stream(6),
                jitter: stream(7),
            },
            red: RedState::default(),
            free_at_ns: 0,
            is_bad: false,
            last_due_ns: 0,
            counters: Counters::default(),
        }
    }

    /// What it does from now on. Packets on their way stay as they are.
    pub(crate) fn change(&mut self, settings: Settings) {
        self.settings = settings;
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts from zero again.
    pub(crate) fn reset_counters(&mut self) {
        self.counters = Counters::default();
    }

    /// A packet enters.
    pub(crate) fn accept(&mut self, now_ns: u64, packet: Packet) -> Arrivals {
        self.counters.packets += 1;
        self.counters.bytes += packet.length as u64;
        let Some((left_ns, marked)) = self.wait_for_link(now_ns, packet) else {
            return [None; 2];
        };
        if self.gets_lost() {
            self.counters.lost += 1;
            return [None; 2];
        }
        let first = self.travel(left_ns, marked);
        let twice = self.streams.duplicates.happens(self.settings.duplicates);
        if !twice {
            return [Some(first), None];
        }
        self.counters.duplicated += 1;
        [Some(first), Some(self.travel(left_ns, marked))]
    }

    /// When it has left the queue and the link, and whether it was marked there; nothing if it was dropped.
    fn wait_for_link(&mut self, now_ns: u64, packet: Packet) -> Option<(u64, bool)> {
        let Some(rate) = self.settings.rate else {
            return Some((now_ns, false));
        };
        let ns_per_byte = 8e9 / rate as f64;
        let packet_ns = packet.length as f64 * ns_per_byte;
        let waiting_ns = self.free_at_ns.saturating_sub(now_ns);
        let queue = waiting_ns as f64 / ns_per_byte;
        self.counters.queue_sum += queue;
        self.counters.longest_queue = self.counters.longest_queue.max(queue as u64);
        if queue + packet.length as f64 > self.settings.queue as f64 && waiting_ns > 0 {
            self.counters.overflowed += 1;
            return None;
        }
        let mut marked = false;
        if let Some(red) = &self.settings.red {
            let idle_ns = now_ns.saturating_sub(self.free_at_ns);
            let idle_packets = idle_ns as f64 / packet_ns.max(1.0);
            if self.red.chooses(red, queue, idle_packets, &mut self.streams.red) {
                marked = red.ecn && packet.can_be_marked;
                if !marked {
                    self.counters.dropped_early += 1;
                    return None;
                }
                self.counters.marked += 1;
            }
        }
        self.free_at_ns = self.free_at_ns.max(now_ns) + packet_ns.round() as u64;
        Some((self.free_at_ns, marked))
    }

    fn gets_lost(&mut self) -> bool {
        let alone = self.streams.loss.happens(self.settings.loss);
        let in_burst = match self.settings.bursts {
            Some(bursts) => self.burst_takes(bursts),
            None => false,
        };
        alone || in_burst
    }

    /// Bad begins so often that bursts of that length make up that part.
    fn burst_takes(&mut self, bursts: Bursts) -> bool {
        let ends = 1.0 / bursts.length;
        let begins = ends * bursts.part / (1.0 - bursts.part);
        let turns = self
            .streams
            .bursts
            .happens(if self.is_bad { ends } else { begins.min(1.0) });
        self.is_bad ^= turns;
        self.is_bad
    }

    /// From the end of the queue to the other side.
    fn travel(&mut self, left_ns: u64, marked: bool) -> Arrival {
        let settings = &self.settings;
        // From minus one to one.
        let shift = 2.0 * self.streams.jitter.part() - 1.0;
        let jitter_ns = (shift * settings.jitter_ns as f64) as i64;
        let mut delay_ns = settings.delay_ns.saturating_add_signed(jitter_ns);
        if self.streams.early.happens(settings.early) {
            self.counters.early += 1;
            delay_ns = 0;
        }
        let mut due_ns = left_ns + delay_ns;
        if settings.in_order {
            due_ns = due_ns.max(self.last_due_ns);
            self.last_due_ns = due_ns;
        }
        let damaged = self.streams.corruption.happens(settings.corruption);
        let wrong_bit = damaged.then(|| self.streams.corruption.word());
        self.counters.corrupted += u64::from(damaged);
        Arrival {
            due_ns,
            marked,
            wrong_bit,
        }
    }
}

#[cfg(test)]
#[path = "direction_tests.rs"]
mod tests;
