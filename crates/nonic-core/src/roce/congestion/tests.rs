//! The congestion law on a path with one bottleneck: packets, a queue, and nothing else.

use super::Congestion;
use crate::time::Time;
use nonic_netem::Prng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const MTU: u32 = 1024;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// A path: the packets of all flows pass the same queue.
#[derive(Clone)]
struct Path {
    /// Bytes in a second.
    rate: u64,
    /// There and back without a queue.
    round_trip_ns: u64,
    /// Bytes the queue holds; what finds no place is lost.
    queue: u64,
    /// Above so many bytes in the queue, packets are marked, above three times as many all of them.
    marks: Option<u64>,
    /// Of a thousand packets, so many are lost before the queue.
    lost_of_1000: u64,
    flows: usize,
    limit: u32,
}

impl Default for Path {
    fn default() -> Self {
        Path {
            rate: 125_000_000,
            round_trip_ns: MS,
            queue: 1 << 20,
            marks: None,
            lost_of_1000: 0,
            flows: 1,
            limit: 128 << 20,
        }
    }
}

/// What became of a packet of a flow, and when its sender hears of it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Answer {
    at_ns: u64,
    flow: usize,
    /// None if it is not of a packet, but the time at which the flow begins.
    sent_ns: Option<u64>,
    lost: bool,
    marked: bool,
}

/// What was measured after a while.
#[derive(Debug, Default)]
struct Found {
    /// Bytes of each flow that arrived in the counted time.
    delivered: Vec<u64>,
    longest_queue: u64,
    lost: u64,
    packets: u64,
    /// When the path was first filled for a whole round trip.
    filled_ns: Option<u64>,
}

impl Found {
    fn sum(&self) -> u64 {
        self.delivered.iter().sum()
    }

    /// Jain's index: 1 if all have the same.
    fn fairness(&self) -> f64 {
        let squares: f64 = self.delivered.iter().map(|bytes| (*bytes as f64).powi(2)).sum();
        (self.sum() as f64).powi(2) / (self.delivered.len() as f64 * squares)
    }
}

impl Path {
    /// Sends for so long, and counts from some time on.
    fn run(&self, counted_from: u64, until: u64) -> Found {
        let mut trial = Trial::new(self, counted_from);
        while let Some(Reverse(answer)) = trial.answers.pop() {
            if answer.at_ns >= until {
                break;
            }
            trial.hear(answer);
            trial.send(answer.flow, answer.at_ns);
        }
        trial.found
    }
}

/// Flows on a path, in the middle of sending.
struct Trial<'a> {
    path: &'a Path,
    counted_from: u64,
    prng: Prng,
    /// Each with its bytes in flight.
    flows: Vec<(Congestion, u64)>,
    /// What senders will hear, soonest first.
    answers: BinaryHeap<Reverse<Answer>>,
    /// When the queue will be empty.
    idle_from: u64,
    /// When the round trip that is being watched began, and what was delivered since.
    per_trip: (u64, u64),
    found: Found,
}

impl<'a> Trial<'a> {
    fn new(path: &'a Path, counted_from: u64) -> Self {
        // Flows begin one after the other.
        let begin = |flow: usize| {
            Reverse(Answer {
                at_ns: flow as u64 * 10_000,
                flow,
                sent_ns: None,
                lost: false,
                marked: false,
            })
        };
        let law = || Congestion::new(256 << 10, path.limit);
        Trial {
            path,
            counted_from,
            prng: Prng::new(7),
            flows: (0..path.flows).map(|_| (law(), 0)).collect(),
            answers: (0..path.flows).map(begin).collect(),
            idle_from: 0,
            per_trip: (0, 0),
            found: Found {
                delivered: vec![0; path.flows],
                ..Found::default()
            },
        }
    }

    /// A sender hears what became of a packet, and tells its law.
    fn hear(&mut self, answer: Answer) {
        let Some(sent_ns) = answer.sent_ns else { return };
        let (law, in_flight) = &mut self.flows[answer.flow];
        *in_flight -= u64::from(MTU);
        if answer.lost {
            law.on_lost(MTU.into());
            return;
        }
        let now = Time::from_ns(answer.at_ns);
        if answer.marked {
            law.on_notified(now, MTU);
        }
        law.on_delivered(now, MTU.into(), MTU);
        law.on_round_trip(now, answer.at_ns - sent_ns);
        self.count_delivered(answer.flow, answer.at_ns);
    }

    fn count_delivered(&mut self, flow: usize, now: u64) {
        if now >= self.counted_from {
            self.found.delivered[flow] += u64::from(MTU);
        }
        if now >= self.per_trip.0 + self.path.round_trip_ns {
            let full = self.path.rate * self.path.round_trip_ns / SECOND;
            if self.per_trip.1 * 10 >= full * 9 && self.found.filled_ns.is_none() {
                self.found.filled_ns = Some(now);
            }
            self.per_trip = (now, 0);
        }
        self.per_trip.1 += u64::from(MTU);
    }

    /// Sends as much as the window of a flow allows.
    fn send(&mut self, flow: usize, now: u64) {
        let mtu = u64::from(MTU);
        while self.flows[flow].1 + mtu <= self.flows[flow].0.window() {
            self.flows[flow].1 += mtu;
            self.send_packet(flow, now);
        }
        self.flows[flow].0.on_full();
    }

    fn send_packet(&mut self, flow: usize, now: u64) {
        let (path, mtu, counted) = (self.path, u64::from(MTU), now >= self.counted_from);
        let queued = self.idle_from.saturating_sub(now) * path.rate / SECOND;
        let lost = self.prng.below(1000) < path.lost_of_1000 || queued + mtu > path.queue;
        if !lost {
            self.idle_from = self.idle_from.max(now) + mtu * SECOND / path.rate;
        }
        if counted {
            self.found.packets += 1;
            self.found.lost += u64::from(lost);
            let longest = if lost { 0 } else { queued + mtu };
            self.found.longest_queue = self.found.longest_queue.max(longest);
        }
        let marked = |marks| marks + self.prng.below(2 * marks) < queued;
        self.answers.push(Reverse(Answer {
            at_ns: self.idle_from.max(now) + path.round_trip_ns,
            flow,
            sent_ns: Some(now),
            lost,
            marked: path.marks.is_some_and(marked),
        }));
    }
}

/// In a hundred, of what the path could carry in so long.
fn utilised(path: &Path, found: &Found, ns: u64) -> u64 {
    found.sum() * 100 / (path.rate * ns / SECOND)
}

#[test]
fn ten_gigabits_times_fifty_milliseconds_are_filled_within_a_second() {
    let path = Path {
        rate: 1_250_000_000,
        round_trip_ns: 50 * MS,
        queue: 16 << 20,
        ..Path::default()
    };
    let found = path.run(SECOND, 2 * SECOND);
    assert!(found.filled_ns.is_some_and(|at| at < SECOND), "{found:?}");
    assert!(utilised(&path, &found, SECOND) >= 95, "{found:?}");
}

#[test]
fn loss_at_random_does_not_close_the_window() {
    for (lost_of_1000, round_trip_ns) in [
        (1, MS),
        (10, MS),
        (10, 10 * MS),
        (10, 50 * MS),
        (50, MS),
        (50, 50 * MS),
    ] {
        let path = Path {
            rate: 500_000_000,
            round_trip_ns,
            queue: 4 << 20,
            lost_of_1000,
            ..Path::default()
        };
        let found = path.run(SECOND, 6 * SECOND);
        let part = utilised(&path, &found, 5 * SECOND);
        assert!(
            part >= 85,
            "{part} % with {lost_of_1000} of 1000 lost, {round_trip_ns} ns"
        );
    }
}

#[test]
fn a_deep_queue_is_not_filled() {
    let path = Path {
        rate: 12_500_000,
        round_trip_ns: 10 * MS,
        queue: 64 << 20,
        ..Path::default()
    };
    let found = path.run(2 * SECOND, 4 * SECOND);
    assert!(utilised(&path, &found, 2 * SECOND) >= 95, "{found:?}");
    // What is usually in a socket's buffer may queue; megabytes may not.
    assert!(found.longest_queue < 600 << 10, "{found:?}");
}

#[test]
fn a_shallow_queue_overflows_little() {
    let path = Path {
        rate: 125_000_000,
        round_trip_ns: 20 * MS,
        queue: 256 << 10,
        ..Path::default()
    };
    let found = path.run(2 * SECOND, 4 * SECOND);
    assert!(utilised(&path, &found, 2 * SECOND) >= 90, "{found:?}");
    assert!(found.lost * 10 < found.packets, "{found:?}");
}

#[test]
fn marks_keep_the_queue_short_and_the_flows_equal() {
    for flows in [2, 8, 32] {
        let path = Path {
            rate: 12_500_000,
            round_trip_ns: MS,
            queue: 200 << 10,
            marks: Some(30 << 10),
            flows,
            ..Path::default()
        };
        let found = path.run(4 * SECOND, 10 * SECOND);
        assert!(utilised(&path, &found, 6 * SECOND) >= 95, "{flows}: {found:?}");
        assert!(
            found.fairness() >= 0.95,
            "{flows}: {} {found:?}",
            found.fairness()
        );
        // Each may always have a few packets under way.
        let few = (60 << 10) + flows as u64 * 5 * u64::from(MTU);
        assert!(found.longest_queue <= few, "{flows}: {found:?}");
    }
}

#[test]
fn flows_without_marks_share_too() {
    let path = Path {
        rate: 125_000_000,
        round_trip_ns: 5 * MS,
        queue: 8 << 20,
        flows: 4,
        ..Path::default()
    };
    let found = path.run(10 * SECOND, 20 * SECOND);
    assert!(utilised(&path, &found, 10 * SECOND) >= 95, "{found:?}");
    assert!(found.fairness() >= 0.8, "{} {found:?}", found.fairness());
}

#[test]
fn a_short_path_has_the_whole_buffer_and_no_more() {
    let path = Path {
        rate: 1_250_000_000,
        round_trip_ns: 20_000,
        queue: 4 << 20,
        ..Path::default()
    };
    let found = path.run(SECOND / 2, SECOND);
    assert!(found.longest_queue <= 513 << 10, "{found:?}");
    assert_eq!(found.lost, 0);
    assert!(utilised(&path, &found, SECOND / 2) >= 99);
}

#[test]
fn after_silence_it_begins_small_and_doubles_up_to_half_of_what_it_was() {
    let mut law = Congestion::new(256 << 10, 1 << 20);
    law.on_timeout(MTU);
    assert_eq!(law.window(), 4 * u64::from(MTU));
    for round in 1..20_u64 {
        law.on_delivered(Time::from_ns(round * MS), law.window(), MTU);
    }
    assert!((128 << 10..256 << 10).contains(&law.window()), "{}", law.window());
}

/// One answer in a round trip is measured, as a lone queue pair has it: the shortest of a round is then any.
#[test]
fn trips_that_take_now_longer_and_now_shorter_are_no_queue() {
    let mut law = Congestion::new(256 << 10, 128 << 20);
    let mut prng = Prng::new(3);
    let mut smallest = u64::MAX;
    for round in 1..5_000 {
        let now = Time::from_ns(round * 4 * MS);
        law.on_full();
        law.on_round_trip(now, prng.below(4 * MS) + prng.below(4 * MS));
        law.on_delivered(now, law.window(), MTU);
        if round > 1_000 {
            smallest = smallest.min(law.window());
        }
    }
    assert!(smallest >= 128 << 10, "{smallest} bytes");
}
