//! One direction of a link: a bottleneck, then the faults of the way.
//!
//! A packet waits for the line (or is dropped or marked there), takes as long as the rate says, and then may get lost, come
//! twice, be damaged or be late. The caller gives the time, and keeps the packets; the same seed and the same packets at the same
//! times have the same fate. Whether the n-th packet that leaves the queue is lost by the first rule depends on the seed alone.
//!
//! Read first: [`EmulatedLink::accept`].

use crate::{Bottleneck, Fate, FaultCounts, FaultInjector, LinkSettings, Prng, Refusal};
use std::net::{IpAddr, Ipv4Addr};

/// One direction.
#[derive(Clone, Debug)]
pub struct EmulatedLink {
    bottleneck: Bottleneck,
    /// Of RED alone, so that it does not change which packets get lost.
    prng: Prng,
    injector: FaultInjector,
    in_order: bool,
    /// When the last packet arrives, of those that must stay in order.
    last_due_ns: u64,
    counters: LinkCounters,
}

/// A packet, as far as a link is concerned.
#[derive(Copy, Clone, Debug)]
pub struct PacketInfo<'a> {
    /// Bytes that it occupies the line with.
    pub length: usize,
    /// Whether it says that it may be marked (ECN).
    pub can_be_marked: bool,
    /// The address that rules for a peer mean.
    pub peer: IpAddr,
    /// The RoCE packet in it; empty if it is another one, which rules for a kind or a queue pair do not mean.
    pub roce: &'a [u8],
}

impl PacketInfo<'_> {
    /// A packet of which no more than its length is known.
    pub const fn of_length(length: usize) -> Self {
        PacketInfo {
            length,
            can_be_marked: false,
            peer: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            roce: &[],
        }
    }
}

/// How a packet arrives.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub due_ns: u64,
    /// With congestion experienced (CE).
    pub marked: bool,
    /// With one wrong bit, which the caller flips; which one follows from this number. It is one only: TCP's checksum
    /// does not notice every pair.
    pub wrong_bit: Option<u64>,
}

/// How often it arrives, and how.
pub type Arrivals = [Option<Arrival>; 2];

/// What happened so far.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct LinkCounters {
    /// Packets that entered.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Dropped since the queue was full.
    pub overflowed: u64,
    /// Dropped by RED.
    pub dropped_early: u64,
    /// Marked by RED.
    pub marked: u64,
    /// What happened on the way.
    pub faults: FaultCounts,
    /// The longest queue that a packet found, in bytes.
    pub longest_queue: u64,
    /// Of the queues that packets found, for the mean.
    pub queue_sum: f64,
}

impl LinkCounters {
    /// The mean of the queues that packets found, in bytes.
    pub fn mean_queue(&self) -> f64 {
        self.queue_sum / (self.packets.max(1)) as f64
    }
}

impl EmulatedLink {
    /// An idle one.
    pub fn new(settings: LinkSettings, seed: u64) -> Self {
        let prng = Prng::new(seed);
        EmulatedLink {
            bottleneck: Bottleneck::new(settings.bottleneck),
            injector: FaultInjector::with_rules(settings.rules(), prng.clone()),
            prng: Prng::new(!seed),
            in_order: settings.in_order,
            last_due_ns: 0,
            counters: LinkCounters::default(),
        }
    }

    /// What it does from now on. Packets on their way stay as they are.
    pub fn change(&mut self, settings: &LinkSettings) {
        self.bottleneck.change(settings.bottleneck);
        self.injector.set_rules(settings.rules());
        self.in_order = settings.in_order;
    }

    /// What happened since it began or was asked last.
    pub fn take_counters(&mut self) -> LinkCounters {
        let faults = self.injector.take_counts();
        LinkCounters {
            faults,
            ..std::mem::take(&mut self.counters)
        }
    }

    /// A packet enters.
    pub fn accept(&mut self, now_ns: u64, packet: &PacketInfo<'_>) -> Arrivals {
        let bytes = packet.length as u64;
        let queue = self.bottleneck.backlog(now_ns);
        let counters = &mut self.counters;
        counters.packets += 1;
        counters.bytes += bytes;
        counters.queue_sum += queue as f64;
        counters.longest_queue = counters.longest_queue.max(queue);
        let accepted = self
            .bottleneck
            .accept(now_ns, bytes, packet.can_be_marked, &mut self.prng);
        let departure = match accepted {
            Ok(departure) => departure,
            Err(refusal) => {
                match refusal {
                    Refusal::Full => counters.overflowed += 1,
                    Refusal::Early => counters.dropped_early += 1,
                }
                return [None; 2];
            }
        };
        counters.marked += u64::from(departure.marked);
        let verdict = self.injector.judge(now_ns, packet.peer, packet.roce);
        let arrival = Arrival {
            due_ns: departure.at_ns.saturating_add(verdict.delay_ns),
            marked: departure.marked,
            wrong_bit: None,
        };
        match verdict.fate {
            Fate::Lose => [None; 2],
            // The settings refuse to garble: a wire cannot tell a receiver to skip its checks.
            Fate::Pass | Fate::Early | Fate::Garble => [Some(self.after(arrival, 0)), None],
            Fate::Duplicate { hold_ns } => [Some(self.after(arrival, 0)), Some(self.after(arrival, hold_ns))],
            Fate::Reorder { hold_ns } => [Some(self.after(arrival, hold_ns)), None],
            Fate::Corrupt => {
                let damaged = Arrival {
                    wrong_bit: Some(self.injector.draw(&verdict)),
                    ..arrival
                };
                [Some(self.after(damaged, 0)), None]
            }
        }
    }

    /// The same arrival so much later, and not before those that it must stay behind.
    fn after(&mut self, arrival: Arrival, hold_ns: u64) -> Arrival {
        let mut due_ns = arrival.due_ns.saturating_add(hold_ns);
        if self.in_order {
            due_ns = due_ns.max(self.last_due_ns);
            self.last_due_ns = due_ns;
        }
        Arrival { due_ns, ..arrival }
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
