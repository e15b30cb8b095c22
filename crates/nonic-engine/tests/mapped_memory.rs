//! Memory that became a file ([`Pages::share`]) and that a peer on this host has mapped: what is given, to which peers, and
//! that nothing happens to it when its key has been revoked. Devices of one process are peers like any other.

use crate::side::{ALL, LEN, SOON, Side, at, pair, word};
use nonic_core::{Access, Region, SendOp, Status};
use nonic_engine::host::{Block, BlockName, Delivery, Heard, Message, Outbox};
use nonic_engine::memory::Pages;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
/// Memory that peers may map.
fn shared(len: usize) -> Arc<Pages> {
    made_file(Pages::new(len).expect("memory"))
}

/// The same, which peers that READ it may keep.
fn staying(len: usize) -> Arc<Pages> {
    let pages = Pages::new(len).expect("memory");
    pages.stay_mapped();
    made_file(pages)
}

fn made_file(pages: Pages) -> Arc<Pages> {
    pages.write(0, &[0x77; 8]).expect("inside");
    // SAFETY: no other code knows of them yet.
    unsafe { pages.share() }.expect("a file");
    Arc::new(pages)
}

/// How often this process has mapped memory of ours that became a file: as its owner, and as a peer.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    maps.matches("nonic-memory").count()
}

#[test]
fn every_operation_works_on_memory_that_is_mapped() {
    let (a, b) = pair();
    let pages = shared(LEN);
    assert_eq!(word(&pages, 0), 0x7777_7777_7777_7777, "what was in it before");
    let rkey = b.register(&pages, 0..LEN, ALL);
    assert!(a.maps(rkey));
    assert_eq!(word(&a.local, 0), 0x7777_7777_7777_7777);
    for length in [1, 7, 8, 9, 15, 16, 64, 511, 512, 513, 4096, 65_000] {
        for offset in [0, 1, 3, 8, 500] {
            let data: Vec<u8> = (0..length).map(|i| (i * 31 + length + offset) as u8).collect();
            a.local.write(0, &data).expect("inside");
            let remote = at(rkey, offset as u64);
            assert_eq!(a.execute(SendOp::Write(remote), length as u32), Status::Success);
            let mut found = vec![0; length];
            pages.read(offset, &mut found).expect("inside");
            assert_eq!(found, data, "WRITE of {length} to {offset}");
            a.local.write(0, &vec![0; length]).expect("inside");
            assert_eq!(a.execute(SendOp::Read(remote), length as u32), Status::Success);
            a.local.read(0, &mut found).expect("inside");
            assert_eq!(found, data, "READ of {length} from {offset}");
        }
    }
    pages.write(8, &5_u64.to_ne_bytes()).expect("inside");
    let remote = at(rkey, 8);
    assert_eq!(a.execute(SendOp::FetchAdd { remote, add: 3 }, 8), Status::Success);
    assert_eq!((word(&a.local, 0), word(&pages, 8)), (5, 8));
    let (compare, swap) = (8, 100);
    let op = SendOp::CompareSwap {
        remote,
        compare,
        swap,
    };
    assert_eq!(a.execute(op, 8), Status::Success);
    assert_eq!((word(&a.local, 0), word(&pages, 8)), (8, 100));
    assert_eq!(a.execute(op, 8), Status::Success);
    assert_eq!((word(&a.local, 0), word(&pages, 8)), (100, 100));
    assert_eq!(a.device.counters().0.direct_atomics, 3);
    // The ordinary errors: outside, and not aligned.
    assert_eq!(
        a.execute(SendOp::Write(at(rkey, LEN as u64 - 4)), 8),
        Status::RemoteAccess
    );
}

#[test]
fn a_key_to_a_part_of_it_is_not_mapped() {
    let (a, b) = pair();
    for range in [4096..LEN, 0..LEN - 1] {
        let rkey = b.register(&shared(LEN), range, ALL);
        assert!(!a.is_mapped_within(Duration::from_millis(300), rkey));
    }
    assert_eq!(b.device.counters().1.direct_given, 0);
}

#[test]
fn what_may_only_be_read_is_mapped_for_reading_and_written_by_nobody() {
    let (a, b) = pair();
    let pages = shared(LEN);
    let readable = b.register(&pages, 0..LEN, Access::REMOTE_READ);
    assert!(a.maps(readable));
    // Another key to the same memory permits more. It cannot be had by a mapping any more, but otherwise.
    let writable = b.register(&pages, 0..LEN, ALL);
    let remote = at(writable, 0);
    a.local.write(0, &[9; 64]).expect("inside");
    assert_eq!(a.execute(SendOp::Write(remote), 64), Status::Success);
    assert_eq!(a.execute(SendOp::FetchAdd { remote, add: 1 }, 8), Status::Success);
    assert_eq!(word(&pages, 0), 0x0909_0909_0909_090a);
    let counters = a.device.counters();
    assert_eq!((counters.0.direct_atomics, counters.1.direct_mapped), (0, 1));
    // And the first one still permits no WRITE.
    assert_eq!(a.execute(SendOp::Write(at(readable, 0)), 8), Status::RemoteAccess);
    assert_eq!(word(&pages, 0), 0x0909_0909_0909_090a);
}

#[test]
fn memory_is_given_to_nobody_without_a_lane_and_a_live_key() {
    let (a, b) = pair();
    let pages = shared(LEN);
    let rkey = b.register(&pages, 0..LEN, ALL);
    assert!(a.maps(rkey));
    let given = b.device.counters().1.direct_given;
    let address = b.device.gids()[0].address;
    let block = Block::of_qpn(b.qpn.value()).expect("every queue pair is in one");
    let name = BlockName { address, block };
    // A process like any other: it has a line, but no lane. The number is the first of this process, or one of the next.
    let mut outbox = Outbox::new().expect("descriptors");
    for number in 0..16 {
        let question = Message::MapMemory { key: rkey, number };
        assert_eq!(outbox.post(name, &question).expect("a line"), Delivery::Sent);
        let deadline = Instant::now() + SOON;
        let heard = loop {
            if let Some(heard) = outbox.poll() {
                break heard;
            }
            assert!(Instant::now() < deadline, "no answer");
            std::thread::yield_now();
        };
        let who = name.into();
        let refused = Heard::Memory {
            who,
            number,
            given: false,
        };
        assert_eq!(heard, refused);
    }
    assert_eq!(b.device.counters().1.direct_given, given);
    assert!(pages.is_given(), "to the one that has a lane");
}

#[test]
fn no_access_is_made_after_revocation_returned() {
    let (mut rounds, mut direct) = (0, 0);
    while rounds < 60 {
        rounds += 1;
        let (a, b) = pair();
        let pages = shared(LEN);
        let rkey = b.register(&pages, 0..LEN, ALL);
        assert!(a.maps(rkey));
        let begun = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let (begun, a) = (&begun, &a);
            let writer = scope.spawn(move || {
                a.local.write(0, &[0x3c; LEN]).expect("inside");
                for round in 0_u64.. {
                    begun.store(round, Ordering::Relaxed);
                    let remote = at(rkey, 0);
                    let (op, length) = match round % 3 {
                        0 => (SendOp::Write(remote), LEN as u32),
                        1 => (SendOp::FetchAdd { remote, add: 1 }, 8),
                        _ => (SendOp::Write(remote), 64),
                    };
                    match a.execute(op, length) {
                        Status::Success => {}
                        status => return status,
                    }
                }
                unreachable!()
            });
            let deadline = Instant::now() + SOON;
            while begun.load(Ordering::Relaxed) < 100 {
                assert!(Instant::now() < deadline);
                std::thread::yield_now();
            }
            let pause = Instant::now() + Duration::from_micros(rounds * 37 % 500);
            while Instant::now() < pause {}
            b.device.try_revoke(rkey).expect("nobody is stopped");
            pages.write(0, &[0xa5; LEN]).expect("inside");
            assert_eq!(writer.join().expect("no panic"), Status::RemoteAccess);
            let mut found = vec![0; LEN];
            pages.read(0, &mut found).expect("inside");
            assert!(found.iter().all(|byte| *byte == 0xa5), "round {rounds}");
        });
        let counters = a.device.counters().0;
        direct += counters.direct_writes + counters.direct_atomics;
    }
    println!("{direct} direct requests in {rounds} rounds");
    assert!(direct > rounds * 50);
}

#[test]
fn atomics_by_mapping_by_packet_and_by_the_owner_are_atomic_together() {
    const EACH: u64 = 20_000;
    let (a, b) = pair();
    // One that sends packets, to another queue pair of the same device's.
    let (packets, other) = (Side::new(false), Side::new(true));
    packets.connect(&other);
    other.connect(&packets);
    let pages = shared(LEN);
    pages.write(0, &[0; 8]).expect("inside");
    let rkey = b.register(&pages, 0..LEN, ALL);
    let by_packet = other.register(&pages, 0..LEN, ALL);
    assert!(a.maps(rkey));
    let stop = AtomicBool::new(false);
    let (mut own, mut sent) = (0, 0);
    std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let mut adds = 0;
            while !stop.load(Ordering::Relaxed) {
                pages.fetch_add(0, 1).expect("aligned");
                adds += 1;
            }
            adds
        });
        let sender = scope.spawn(|| {
            let (remote, mut adds) = (at(by_packet, 0), 0);
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(
                    packets.execute(SendOp::FetchAdd { remote, add: 1 }, 8),
                    Status::Success
                );
                adds += 1;
            }
            adds
        });
        let mut latest = None;
        for _ in 0..EACH {
            let remote = at(rkey, 0);
            assert_eq!(a.execute(SendOp::FetchAdd { remote, add: 1 }, 8), Status::Success);
            let found = word(&a.local, 0);
            assert!(latest.is_none_or(|latest| found > latest), "a sum only grows");
            latest = Some(found);
        }
        stop.store(true, Ordering::Relaxed);
        (own, sent) = (owner.join().expect("no panic"), sender.join().expect("no panic"));
    });
    assert_eq!(word(&pages, 0), EACH + own + sent);
    let direct = a.device.counters().0.direct_atomics;
    println!("{direct} of {EACH} direct; {own} by the owner, {sent} by packets");
    assert!(direct > EACH / 2 && own > 0 && sent > 0);
    assert_eq!(packets.device.counters().0.direct_atomics, 0);
}

#[test]
fn mappings_of_memory_that_is_gone_are_given_back() {
    let (a, b) = pair();
    let before = mappings();
    // More than are kept at a time.
    for _ in 0..100 {
        let pages = shared(4096);
        let rkey = b.register(&pages, 0..4096, ALL);
        assert!(a.maps(rkey));
        b.device.try_revoke(rkey).expect("nobody is stopped");
    }
    let kept = shared(4096);
    let rkey = b.register(&kept, 0..4096, ALL);
    assert!(a.maps(rkey));
    let deadline = Instant::now() + SOON;
    while mappings() > before + 2 {
        assert_eq!(a.execute(SendOp::Read(at(rkey, 0)), 8), Status::Success);
        assert!(Instant::now() < deadline, "{} from {before}", mappings());
    }
}

#[test]
fn memory_that_stays_mapped_is_mapped_once_for_all_its_keys() {
    let (a, b) = pair();
    let before = mappings();
    let pages = staying(LEN);
    let deadline = Instant::now() + SOON;
    let mut after = 0;
    for round in (0..=u8::MAX).cycle() {
        pages.write(0, &[round; LEN]).expect("inside");
        // Parts of it, too: a peer that has it mapped sees the rest anyway.
        let rkey = b.register(&pages, 0..LEN - usize::from(round), Access::REMOTE_READ);
        assert_eq!(a.execute(SendOp::Read(at(rkey, 0)), 4096), Status::Success);
        let mut found = [0; 4096];
        a.local.read(0, &mut found).expect("inside");
        assert_eq!(found, [round; 4096]);
        b.device.try_revoke(rkey).expect("nobody is stopped");
        after += u32::from(a.mapped() == 1);
        if after == 50 {
            break;
        }
        assert!(Instant::now() < deadline, "it is not mapped");
    }
    assert_eq!(
        (a.mapped(), mappings()),
        (1, before + 2),
        "the owner's and the peer's"
    );
    // It goes with its owner.
    drop(pages);
    let other = shared(4096);
    let rkey = b.register(&other, 0..4096, ALL);
    while mappings() > before + 2 || a.mapped() < 2 {
        assert_eq!(a.execute(SendOp::Read(at(rkey, 0)), 8), Status::Success);
        assert!(Instant::now() < deadline, "{} from {before}", mappings());
    }
}

#[test]
fn memory_that_stays_mapped_is_given_to_nobody_once_it_was_taken_back() {
    let (a, b) = pair();
    let pages = staying(LEN);
    let rkey = b.register(&pages, 0..LEN, Access::REMOTE_READ);
    b.device.try_revoke(rkey).expect("nobody is stopped");
    assert!(!pages.take_back(), "nobody had it");
    let rkey = b.register(&pages, 0..LEN, Access::REMOTE_READ);
    assert!(a.maps(rkey), "a new key will do");
    b.device.try_revoke(rkey).expect("nobody is stopped");
    assert!(pages.take_back(), "it may be looked at still");
}

#[test]
fn what_may_be_written_does_not_stay_mapped() {
    let (a, b) = pair();
    let before = mappings();
    let pages = staying(LEN);
    let rkey = b.register(&pages, 0..LEN, ALL);
    assert!(!pages.do_stay_mapped());
    assert!(a.maps(rkey));
    b.device.try_revoke(rkey).expect("nobody is stopped");
    let other = shared(4096);
    let rkey = b.register(&other, 0..4096, ALL);
    let deadline = Instant::now() + SOON;
    while mappings() > before + 3 || a.mapped() < 2 {
        assert_eq!(a.execute(SendOp::Read(at(rkey, 0)), 8), Status::Success);
        assert!(Instant::now() < deadline, "{} from {before}", mappings());
    }
}
