//! Tests of the reorder buffer: scripted, and against a model that looks at every packet each time.

use super::*;
use nonic_wire::{Bth, Headers, Opcode, Psn, Qpn};
use proptest::collection::vec;
use proptest::prelude::*;

fn packet(psn: Psn, payload: &[u8]) -> Packet<'_> {
    Packet {
        headers: Headers::new(Bth::new(Opcode::RC_SEND_ONLY, Qpn::new(3), psn)),
        payload,
        icrc: [1, 2, 3, 4],
    }
}

/// Close to where 24 bits end.
fn start() -> ExtendedPsn {
    ExtendedPsn::starting_at(Psn::new(0xff_fff0))
}

struct Bench {
    memory: ReorderMemory,
    store: Reorder,
}

impl Bench {
    fn new(bytes: usize) -> Self {
        Bench {
            memory: ReorderMemory::new(ReorderConfig {
                queue_pair_bytes: bytes,
                ..ReorderConfig::default()
            }),
            store: Reorder::default(),
        }
    }

    fn insert(&mut self, ahead: u32, psns: u32, payload: &[u8]) -> Keep {
        let at = start() + ahead;
        let packet = packet(at.psn(), payload);
        self.store.insert(&mut self.memory, Time::ZERO, at, psns, &packet)
    }

    fn pop(&mut self, ahead: u32) -> Option<Vec<u8>> {
        let kept = self.store.pop(&mut self.memory, start() + ahead)?;
        assert_eq!(kept.packet().headers.bth.psn, (start() + ahead).psn());
        Some(kept.packet().payload.to_vec())
    }

    /// How far ahead each range begins, and how many packets it has.
    fn ranges(&self) -> Vec<(u32, u32)> {
        let relative = |range: HeldRange| {
            let ahead = range.first.distance_from(start().psn());
            (ahead as u32, range.packets)
        };
        self.store.ranges().map(relative).collect()
    }
}

#[test]
fn a_packet_comes_out_as_it_went_in() {
    let mut bench = Bench::new(1 << 20);
    let mut early = packet((start() + 1).psn(), b"odd");
    early.headers.bth.ack_request = true;
    early.headers.bth.resv7 = Bth::SELECTIVE;
    bench
        .store
        .insert(&mut bench.memory, Time::from_ns(7), start() + 1, 1, &early);
    assert_eq!(bench.store.first_arrived(), Some(Time::from_ns(7)));
    let kept = bench
        .store
        .pop(&mut bench.memory, start() + 1)
        .expect("it is kept");
    early.headers.bth.pad = 1;
    assert_eq!(kept.packet(), early);
}

#[test]
fn the_latest_range_is_told_of_first_and_ranges_that_meet_become_one() {
    let mut bench = Bench::new(1 << 20);
    for ahead in [2, 3, 20, 10] {
        assert_eq!(bench.insert(ahead, 1, b""), Keep::Kept);
    }
    assert_eq!(bench.ranges(), [(10, 1), (20, 1), (2, 2)]);
    assert_eq!(bench.insert(3, 1, b""), Keep::Known);
    assert_eq!(bench.ranges(), [(2, 2), (10, 1), (20, 1)]);
    // A READ request takes the numbers of its responses.
    assert_eq!(bench.insert(4, 6, b""), Keep::Kept);
    assert_eq!(bench.ranges(), [(2, 9), (20, 1)]);
    assert_eq!(
        bench.insert(15, 6, b""),
        Keep::Conflict,
        "it would take one that is taken"
    );
    assert_eq!(bench.insert(7, 1, b""), Keep::Conflict);
    assert_eq!(bench.insert(4, 5, b""), Keep::Conflict);
    assert_eq!(bench.insert(20, 1, b"other"), Keep::Conflict);
    assert_eq!(bench.insert(4, 6, b""), Keep::Known);
}

#[test]
fn no_more_ranges_are_told_of_than_fit() {
    let mut bench = Bench::new(1 << 20);
    for index in 0..40 {
        bench.insert(2 * index + 1, 1, b"");
    }
    let latest: Vec<(u32, u32)> = (24..40).rev().map(|index| (2 * index + 1, 1)).collect();
    assert_eq!(bench.ranges(), latest);
}

#[test]
fn what_is_behind_the_sequence_is_dropped() {
    let mut bench = Bench::new(1 << 20);
    for ahead in [1, 2, 5] {
        bench.insert(ahead, 1, &[ahead as u8]);
    }
    assert_eq!(bench.pop(3), None);
    assert_eq!(bench.ranges(), [(5, 1)]);
    assert_eq!(bench.pop(5), Some(vec![5]));
    assert!(bench.store.is_empty());
    assert_eq!(bench.memory.used(), 0);
}

#[test]
fn the_bounds_are_kept_and_what_is_taken_out_makes_room() {
    let charge = KeptPacket::charge(Bth::LEN + 100 + 4);
    let mut bench = Bench::new(2 * charge);
    let payload = [0; 100];
    assert_eq!(bench.insert(1, 1, &payload), Keep::Kept);
    assert_eq!(bench.insert(2, 1, &payload), Keep::Kept);
    assert_eq!(bench.insert(3, 1, &payload), Keep::Refused);
    // Another store of the NIC has its own bound, and both have one together.
    bench.memory.config.total_bytes = 3 * charge;
    let mut other = Reorder::default();
    for (ahead, kept) in [(1, Keep::Kept), (2, Keep::Refused)] {
        let at = start() + ahead;
        let packet = packet(at.psn(), &payload);
        assert_eq!(other.insert(&mut bench.memory, Time::ZERO, at, 1, &packet), kept);
    }
    other.clear(&mut bench.memory);
    assert!(bench.pop(1).is_some());
    assert_eq!(bench.insert(3, 1, &payload), Keep::Kept);
    bench.store.clear(&mut bench.memory);
    assert_eq!(bench.memory.used(), 0);
}

#[derive(Clone, Debug)]
enum Act {
    Insert { ahead: u32, psns: u32, payload: u8 },
    Pop { ahead: u32 },
    Clear,
}

fn act() -> impl Strategy<Value = Act> {
    let psns = prop_oneof![9 => Just(1u32), 1 => 1..6u32];
    prop_oneof![
        30 => (0..48u32, psns, 0..40u8).prop_map(|(ahead, psns, payload)| Act::Insert {
            ahead,
            psns,
            payload
        }),
        10 => (0..48u32).prop_map(|ahead| Act::Pop { ahead }),
        1 => Just(Act::Clear),
    ]
}

/// The same by looking at every packet each time.
#[derive(Default)]
struct Naive {
    packets: Vec<(u32, u32, u8)>,
}

impl Naive {
    fn holds(&self, number: u32) -> bool {
        self.packets
            .iter()
            .any(|(at, psns, _)| (*at..at + psns).contains(&number))
    }

    fn insert(&mut self, ahead: u32, psns: u32, payload: u8) -> Keep {
        if self.packets.contains(&(ahead, psns, payload)) {
            return Keep::Known;
        }
        if (ahead..ahead + psns).any(|number| self.holds(number)) {
            return Keep::Conflict;
        }
        self.packets.push((ahead, psns, payload));
        Keep::Kept
    }

    fn pop(&mut self, ahead: u32) -> Option<u8> {
        let found = self.packets.iter().find(|(at, ..)| *at == ahead).copied();
        self.packets.retain(|(at, ..)| *at > ahead);
        found.map(|(_, _, payload)| payload)
    }

    fn range_of(&self, number: u32) -> (u32, u32) {
        let first = (0..=number).rev().take_while(|at| self.holds(*at)).last();
        let first = first.unwrap_or(number);
        let end = (number..).find(|at| !self.holds(*at)).unwrap_or(number);
        (first, end - first)
    }

    fn all_ranges(&self) -> Vec<(u32, u32)> {
        let held = (0..64).filter(|at| self.holds(*at));
        let mut ranges: Vec<(u32, u32)> = held.map(|at| self.range_of(at)).collect();
        ranges.dedup();
        ranges
    }
}

proptest! {
    #[test]
    fn it_does_what_a_list_would_do(acts in vec(act(), 0..200)) {
        let mut bench = Bench::new(1 << 20);
        let mut naive = Naive::default();
        for act in acts {
            match act {
                Act::Insert { ahead, psns, payload } => {
                    let kept = bench.insert(ahead, psns, &vec![payload; usize::from(payload)]);
                    prop_assert_eq!(kept, naive.insert(ahead, psns, payload));
                    if kept != Keep::Conflict {
                        prop_assert_eq!(bench.ranges()[0], naive.range_of(ahead));
                    }
                }
                Act::Pop { ahead } => {
                    let expected = naive.pop(ahead);
                    let expected = expected.map(|payload| vec![payload; usize::from(payload)]);
                    prop_assert_eq!(bench.pop(ahead), expected);
                }
                Act::Clear => {
                    bench.store.clear(&mut bench.memory);
                    naive = Naive::default();
                }
            }
            prop_assert_eq!(bench.store.is_empty(), naive.packets.is_empty());
            prop_assert_eq!(bench.memory.used(), bench.store.bytes);
            prop_assert_eq!(bench.store.bytes == 0, bench.store.is_empty());
            let mut told = bench.ranges();
            let all = naive.all_ranges();
            told.iter().for_each(|range| assert!(all.contains(range), "{range:?} is not one"));
            told.sort_unstable();
            let count = told.len();
            told.dedup();
            prop_assert_eq!(told.len(), count, "a range is told of once");
            prop_assert!(count <= SelectiveAck::MAX_RANGES);
        }
    }
}
