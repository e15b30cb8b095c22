//! Packets that come before their turn wait for it, within bounds, and the peer hears of gaps in good time and not too soon.
//!
//! The node under test answers; its peer is the test, which numbers packets from the first it sends.

use crate::support::{Pair, Setup, Solo, Wire, ms, pattern, us};
use crate::{completed, expect_nothing, post, received, recv, sent};
use nonic_core::{QpState, ReorderConfig, SendOp, Status};
use nonic_wire::{
    Aeth, AethKind, AtomicEth, Bth, Headers, HeldRange, NakCode, Opcode, Psn, Reth, SelectiveAck, Syndrome,
};
use std::time::Duration;

const MISSING: Syndrome = Syndrome::nak(NakCode::PsnSequenceError);

/// A WRITE of one packet that asks for no acknowledgement.
fn write(solo: &mut Solo, index: u32, offset: usize, bytes: &[u8]) {
    write_with(solo, index, offset, bytes, |_| {});
}

/// The same from a peer that understands selective acknowledgements.
fn write_selective(solo: &mut Solo, index: u32, offset: usize, bytes: &[u8]) {
    write_with(solo, index, offset, bytes, |headers| {
        headers.bth.resv7 = Bth::SELECTIVE
    });
}

fn write_with(solo: &mut Solo, index: u32, offset: usize, bytes: &[u8], touch: impl FnOnce(&mut Headers)) {
    let remote = solo.remote(offset);
    solo.request_with(Opcode::RC_RDMA_WRITE_ONLY, index, bytes, |headers| {
        headers.bth.ack_request = false;
        headers.reth = Reth {
            va: remote.va,
            rkey: remote.rkey,
            dma_len: bytes.len() as u32,
        };
        touch(headers);
    });
}

fn read(solo: &mut Solo, index: u32, offset: usize, length: u32) {
    let remote = solo.remote(offset);
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, index, &[], |headers| {
        headers.reth = Reth {
            va: remote.va,
            rkey: remote.rkey,
            dma_len: length,
        };
    });
}

/// The one acknowledgement that the node sends, and the packet it is about.
#[track_caller]
fn answer(solo: &mut Solo) -> (Syndrome, u32) {
    let answers = sent!(solo, [RC_ACKNOWLEDGE]);
    let index = answers[0].psn().distance_from(solo.peer.psn);
    (answers[0].syndrome(), index as u32)
}

#[track_caller]
fn acknowledged(solo: &mut Solo, index: u32) {
    assert_eq!(answer(solo), (Syndrome::ack(), index));
}

/// The node reports a packet missing at this time after it was found to be, not before.
#[track_caller]
fn reported_after(solo: &mut Solo, index: u32, time: Duration) {
    solo.advance(time - us(1));
    sent!(solo, []);
    // The wheel fires within a tick of the deadline.
    solo.advance(us(10));
    assert_eq!(answer(solo), (MISSING, index));
}

/// The ranges that an acknowledgement tells of, as the index of the first packet and how many.
fn held(solo: &Solo, wire: &Wire) -> Vec<(u32, u32)> {
    let relative = |range: HeldRange| {
        let index = range.first.distance_from(solo.peer.psn);
        (index as u32, range.packets)
    };
    SelectiveAck::of(&wire.packet()).map_or(Vec::new(), |ack| ack.ranges().map(relative).collect())
}

#[test]
fn two_writes_to_one_place_land_in_order() {
    let mut solo = Solo::rc();
    write(&mut solo, 1, 0, b"second");
    assert_eq!(solo.bytes(0, 6), [0; 6], "nothing is placed early");
    write(&mut solo, 0, 0, b"first.");
    assert_eq!(solo.bytes(0, 6), b"second");
}

#[test]
fn sends_complete_in_the_order_they_were_sent() {
    let mut solo = Solo::rc();
    for wr_id in 0..3 {
        recv!(solo, wr_id, 100 * wr_id as usize, 100);
    }
    solo.request(Opcode::RC_SEND_ONLY, 2, b"three");
    solo.request(Opcode::RC_SEND_ONLY, 1, b"two");
    received!(solo, []);
    solo.request(Opcode::RC_SEND_ONLY, 0, b"one");
    let done = received!(
        solo,
        [(0, Status::Success), (1, Status::Success), (2, Status::Success)]
    );
    let lengths: Vec<u32> = done.iter().map(|completion| completion.byte_len).collect();
    assert_eq!(lengths, [3, 3, 5]);
    assert_eq!(solo.bytes(200, 5), b"three");
    acknowledged(&mut solo, 2);
}

#[test]
fn a_message_may_come_backwards() {
    let mut pair = Pair::rc();
    pair.a.fill(0, &pattern(1, 20_000));
    let remote = pair.b.remote(64);
    post!(pair.a, 1, SendOp::Write(remote), 0, 20_000);
    let requests = pair.a.transmit();
    assert!(requests.len() > 5);
    pair.b.receive_all(requests.iter().rev());
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.b.bytes(64, 20_000), pattern(1, 20_000));
    assert_eq!(pair.a.nic.counters().retransmitted_packets, 0);
    assert_eq!(pair.b.nic.usage().reordered_bytes, 0);
}

#[test]
fn a_read_that_comes_early_sees_what_was_written_before_it() {
    let mut solo = Solo::rc();
    read(&mut solo, 1, 0, 2000);
    read(&mut solo, 1, 0, 2000);
    // It takes the numbers of its two responses.
    write(&mut solo, 3, 0, b"later");
    sent!(solo, []);
    write(&mut solo, 0, 0, &pattern(1, 1000));
    let answers = sent!(
        solo,
        [
            RC_RDMA_READ_RESPONSE_FIRST,
            RC_RDMA_READ_RESPONSE_LAST,
            RC_ACKNOWLEDGE
        ]
    );
    assert_eq!(answers[0].psn(), solo.peer.psn.add(1));
    assert_eq!(answers[2].psn(), solo.peer.psn.add(3));
    assert_eq!(solo.bytes(0, 5), b"later");
}

#[test]
fn an_answer_is_not_followed_by_an_acknowledgement_that_says_the_same() {
    let mut solo = Solo::rc();
    read(&mut solo, 1, 0, 100);
    write(&mut solo, 0, 0, b"first");
    sent!(solo, [RC_RDMA_READ_RESPONSE_ONLY]);
}

#[test]
fn an_atomic_that_comes_early_is_executed_once_and_in_its_turn() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    for _ in 0..2 {
        solo.request_with(Opcode::RC_FETCH_ADD, 1, &[], |headers| {
            headers.atomic = AtomicEth {
                va: remote.va,
                rkey: remote.rkey,
                swap_add: 5,
                compare: 0,
            };
        });
    }
    assert_eq!(solo.word(0), 0);
    write(&mut solo, 0, 0, &100u64.to_ne_bytes());
    assert_eq!(solo.word(0), 105);
    let answers = sent!(solo, [RC_ATOMIC_ACKNOWLEDGE]);
    assert_eq!(answers[0].headers().atomic_original, 100);
}

#[test]
fn what_is_refused_is_refused_in_its_turn() {
    let mut solo = Solo::rc();
    write_with(&mut solo, 1, 0, b"wrong key", |headers| headers.reth.rkey ^= 1);
    assert_eq!(solo.state(), QpState::Rts);
    write(&mut solo, 2, 0, b"never");
    write(&mut solo, 0, 0, b"first");
    assert_eq!(answer(&mut solo), (Syndrome::nak(NakCode::RemoteAccessError), 1));
    assert_eq!(solo.state(), QpState::Error);
    assert_eq!(solo.bytes(0, 5), b"first");
    assert_eq!(solo.nic.usage().reordered_bytes, 0);
}

#[test]
fn the_sequence_goes_on_across_the_wrap() {
    let mut solo = Solo::new(&Setup {
        second_psn: 0xff_fffd,
        ..Setup::rc()
    });
    for index in (1..8).rev() {
        write(&mut solo, index, 8 * index as usize, &[index as u8; 8]);
    }
    write(&mut solo, 0, 0, &[0; 8]);
    acknowledged(&mut solo, 7);
    for index in 0..8 {
        assert_eq!(solo.bytes(8 * index, 8), [index as u8; 8]);
    }
}

#[test]
fn a_filled_gap_is_acknowledged_at_once_as_far_as_it_goes() {
    let mut solo = Solo::rc();
    for index in [1, 2, 4] {
        write(&mut solo, index, 0, b"late");
    }
    sent!(solo, []);
    write(&mut solo, 0, 0, b"late");
    assert!(!solo.nic.only_acknowledges(), "it does not wait for company");
    acknowledged(&mut solo, 2);
    write(&mut solo, 3, 0, b"late");
    acknowledged(&mut solo, 4);
    assert_eq!(solo.nic.counters().naks_sent, 0);
    assert_eq!(solo.nic.counters().rx_kept, 3);
    // In order, the peer asked for no acknowledgement, so it gets none.
    write(&mut solo, 5, 0, b"plain");
    sent!(solo, []);
}

#[test]
fn a_gap_is_reported_once_and_not_before_it_had_time_to_be_filled() {
    let mut solo = Solo::rc();
    let allowance = ReorderConfig::default().min_allowance;
    write(&mut solo, 1, 0, b"early");
    solo.advance(allowance / 2);
    write(&mut solo, 2, 0, b"early");
    reported_after(&mut solo, 0, allowance / 2);
    write(&mut solo, 3, 0, b"early");
    solo.advance(ms(20));
    sent!(solo, []);
}

#[test]
fn a_nic_that_allows_nothing_reports_at_once_and_keeps_nothing() {
    let mut solo = Solo::new(&Setup {
        reorder: ReorderConfig::NONE,
        ..Setup::rc()
    });
    write(&mut solo, 1, 0, b"early");
    assert_eq!(answer(&mut solo), (MISSING, 0));
    write(&mut solo, 2, 0, b"early");
    sent!(solo, []);
    write(&mut solo, 0, 0, b"first");
    assert_eq!(solo.bytes(0, 5), b"first");
    assert_eq!(solo.nic.counters().rx_kept, 0);
}

#[test]
fn a_gap_that_is_filled_before_it_is_reported_is_not() {
    let mut solo = Solo::new(&Setup {
        reorder: ReorderConfig {
            min_allowance: Duration::ZERO,
            ..ReorderConfig::default()
        },
        ..Setup::rc()
    });
    write(&mut solo, 1, 0, b"early");
    write(&mut solo, 0, 0, b"first");
    acknowledged(&mut solo, 1);
}

#[test]
fn the_second_of_two_gaps_is_reported_by_the_age_of_what_is_behind_it() {
    let mut solo = Solo::rc();
    let allowance = ReorderConfig::default().min_allowance;
    write(&mut solo, 1, 0, b"early");
    write(&mut solo, 3, 0, b"early");
    solo.advance(allowance / 2);
    write(&mut solo, 0, 0, b"late");
    acknowledged(&mut solo, 1);
    reported_after(&mut solo, 2, allowance / 2);
}

#[test]
fn while_the_peer_goes_back_a_gap_is_reported_only_if_it_is_passed_again() {
    let mut solo = Solo::rc();
    let allowance = ReorderConfig::default().min_allowance;
    for index in [1, 3, 5] {
        write(&mut solo, index, 0, b"early");
    }
    reported_after(&mut solo, 0, allowance);
    write(&mut solo, 0, 0, b"again");
    acknowledged(&mut solo, 1);
    write(&mut solo, 1, 0, b"early");
    acknowledged(&mut solo, 1);
    solo.advance(ms(1));
    sent!(solo, []);
    // Packet 2 is lost once more.
    write(&mut solo, 3, 0, b"early");
    reported_after(&mut solo, 2, allowance);
}

#[test]
fn what_comes_late_is_given_more_time_the_next_time() {
    let mut solo = Solo::rc();
    let first = ReorderConfig::default().min_allowance;
    write(&mut solo, 1, 0, b"early");
    solo.advance(first - us(4));
    write(&mut solo, 0, 0, b"late");
    acknowledged(&mut solo, 1);
    write(&mut solo, 3, 0, b"early");
    reported_after(&mut solo, 2, 2 * (first - us(4)));
}

#[test]
fn a_report_that_was_not_needed_gives_more_time() {
    let mut solo = Solo::rc();
    let first = ReorderConfig::default().min_allowance;
    write(&mut solo, 1, 0, b"early");
    reported_after(&mut solo, 0, first);
    solo.advance(ms(2));
    write(&mut solo, 0, 0, b"late");
    acknowledged(&mut solo, 1);
    // The peer goes back: what it was asked for comes for the second time.
    write(&mut solo, 0, 0, b"again");
    assert_eq!(solo.nic.counters().naks_unneeded, 1);
    solo.transmit();
    write(&mut solo, 3, 0, b"early");
    solo.advance(ms(4));
    sent!(solo, []);
    solo.advance(us(200));
    assert_eq!(answer(&mut solo), (MISSING, 2));
}

#[test]
fn a_report_that_was_needed_does_not() {
    let mut solo = Solo::rc();
    let first = ReorderConfig::default().min_allowance;
    for round in 0..5 {
        write(&mut solo, 2 * round + 1, 0, b"early");
        reported_after(&mut solo, 2 * round, first);
        solo.advance(ms(2));
        write(&mut solo, 2 * round, 0, b"again");
        acknowledged(&mut solo, 2 * round + 1);
    }
    assert_eq!(solo.nic.counters().naks_unneeded, 0);
}

#[test]
fn more_time_is_forgotten_when_nothing_comes_late() {
    let mut solo = Solo::rc();
    let first = ReorderConfig::default().min_allowance;
    write(&mut solo, 1, 0, b"early");
    reported_after(&mut solo, 0, first);
    solo.advance(ms(5));
    write(&mut solo, 0, 0, b"late");
    write(&mut solo, 0, 0, b"again");
    solo.transmit();
    solo.advance(Duration::from_secs(20));
    write(&mut solo, 3, 0, b"early");
    reported_after(&mut solo, 2, first);
}

#[test]
fn a_packet_that_finds_no_receive_takes_what_is_behind_it_along() {
    let mut solo = Solo::rc();
    recv!(solo, 0, 0, 100);
    for index in 1..5 {
        solo.request(Opcode::RC_SEND_ONLY, index, b"early");
    }
    solo.request(Opcode::RC_SEND_ONLY, 0, b"first");
    let answers = sent!(solo, [RC_ACKNOWLEDGE, RC_ACKNOWLEDGE]);
    assert_eq!(answers[0].syndrome(), Syndrome::ack());
    assert!(matches!(answers[1].syndrome().kind(), AethKind::RnrNak { .. }));
    assert_eq!(answers[1].psn(), solo.peer.psn.add(1));
    received!(solo, [(0, Status::Success)]);
    assert_eq!(solo.nic.usage().reordered_bytes, 0);

    // The peer comes again with everything, so nothing is kept until it does.
    solo.request(Opcode::RC_SEND_ONLY, 4, b"early");
    solo.advance(ms(100));
    expect_nothing!(solo);
    recv!(solo, 1, 0, 100);
    recv!(solo, 2, 100, 100);
    solo.request(Opcode::RC_SEND_ONLY, 1, b"again");
    received!(solo, [(1, Status::Success)]);
    solo.request(Opcode::RC_SEND_ONLY, 2, b"again");
    received!(solo, [(2, Status::Success)]);
}

#[test]
fn a_gap_filled_by_what_finds_no_receive_is_forgotten() {
    let mut solo = Solo::rc();
    solo.request(Opcode::RC_SEND_ONLY, 1, b"early");
    solo.request(Opcode::RC_SEND_ONLY, 0, b"first");
    let (syndrome, index) = answer(&mut solo);
    assert!(matches!(syndrome.kind(), AethKind::RnrNak { .. }));
    assert_eq!(index, 0);
    assert_eq!(solo.nic.usage().reordered_bytes, 0);
    solo.advance(ms(100));
    sent!(solo, []);
}

#[test]
fn no_more_is_kept_than_the_bound_allows() {
    let mut solo = Solo::new(&Setup {
        reorder: ReorderConfig {
            queue_pair_bytes: 4000,
            ..ReorderConfig::default()
        },
        ..Setup::rc()
    });
    for index in 1..20 {
        write(&mut solo, index, 0, &pattern(1, 1000));
        assert!(solo.nic.usage().reordered_bytes <= 4000);
    }
    let counters = *solo.nic.counters();
    assert_eq!((counters.rx_kept, counters.rx_not_kept), (3, 16));
    write(&mut solo, 0, 0, &pattern(1, 1000));
    acknowledged(&mut solo, 3);
    // What did not fit is as good as lost.
    write(&mut solo, 5, 0, &pattern(1, 1000));
    reported_after(&mut solo, 4, ReorderConfig::default().min_allowance);
}

#[test]
fn what_reaches_to_the_other_side_of_the_circle_is_not_kept() {
    let mut solo = Solo::rc();
    // A READ whose responses take a quarter of all numbers, and another of which some responses would count as earlier than the
    // packet that is missing.
    read(&mut solo, 1, 0, u32::MAX);
    assert_eq!(solo.nic.counters().rx_kept, 1);
    read(&mut solo, 1 + (1 << 22), 0, u32::MAX);
    assert_eq!(solo.nic.counters().rx_kept, 1);
    assert_eq!(solo.nic.counters().rx_not_kept, 1);
    write(&mut solo, 0, 0, b"first");
    assert_eq!(solo.bytes(0, 5), b"first");
}

#[test]
fn what_nobody_comes_back_for_is_dropped() {
    let mut solo = Solo::rc();
    write(&mut solo, 1, 0, b"early");
    solo.advance(Duration::from_secs(9));
    solo.transmit();
    assert!(solo.nic.usage().reordered_bytes > 0);
    solo.advance(Duration::from_secs(2));
    assert_eq!(solo.nic.usage().reordered_bytes, 0);
    expect_nothing!(solo);
    write(&mut solo, 0, 0, b"first");
    assert_eq!(solo.bytes(0, 5), b"first");
}

#[test]
fn the_end_of_a_queue_pair_is_the_end_of_what_it_kept() {
    for end in [QpState::Error, QpState::Reset] {
        let mut solo = Solo::rc();
        write(&mut solo, 1, 0, b"early");
        assert!(solo.nic.usage().reordered_bytes > 0);
        solo.go_to(end);
        assert_eq!(solo.nic.usage().reordered_bytes, 0, "{end:?}");
        solo.advance(ms(100));
        sent!(solo, []);
    }
    let mut solo = Solo::rc();
    write(&mut solo, 1, 0, b"early");
    let qpn = solo.qpn;
    solo.destroy_qp(qpn);
    assert_eq!(solo.nic.usage().reordered_bytes, 0);
}

#[test]
fn a_peer_that_understands_is_told_at_once_what_is_kept() {
    let mut solo = Solo::rc();
    write_selective(&mut solo, 1, 0, b"early");
    let answers = sent!(solo, [RC_ACKNOWLEDGE]);
    assert_eq!(answers[0].syndrome(), Syndrome::ack());
    assert_eq!(answers[0].psn(), solo.peer.psn.prev(), "nothing was executed yet");
    assert_eq!(held(&solo, &answers[0]), [(1, 1)]);
    for index in [2, 7, 4] {
        write_selective(&mut solo, index, 0, b"early");
    }
    assert!(!solo.nic.only_acknowledges());
    let answers = sent!(solo, [RC_ACKNOWLEDGE]);
    assert_eq!(held(&solo, &answers[0]), [(4, 1), (7, 1), (1, 2)]);
    assert_eq!(solo.nic.counters().selective_acks_sent, 2);

    // It finds out by itself what was lost.
    solo.advance(ms(100));
    sent!(solo, []);

    write_selective(&mut solo, 0, 0, b"late");
    let answers = sent!(solo, [RC_ACKNOWLEDGE]);
    assert_eq!(answers[0].psn(), solo.peer.psn.add(2));
    assert_eq!(held(&solo, &answers[0]), [(4, 1), (7, 1)]);
    write_selective(&mut solo, 3, 0, b"late");
    write_selective(&mut solo, 5, 0, b"late");
    write_selective(&mut solo, 6, 0, b"late");
    let answers = sent!(solo, [RC_ACKNOWLEDGE]);
    assert_eq!(answers[0].psn(), solo.peer.psn.add(7));
    assert_eq!(answers[0].payload(), b"");
    assert_eq!(answers[0].headers().bth.resv7, 0, "that is a plain one");
}

#[test]
fn a_copy_of_what_is_kept_is_answered_again() {
    let mut solo = Solo::rc();
    for index in [1, 5, 1] {
        write_selective(&mut solo, index, 0, b"early");
    }
    let answers = sent!(solo, [RC_ACKNOWLEDGE]);
    assert_eq!(held(&solo, &answers[0]), [(1, 1), (5, 1)]);
    assert_eq!(solo.nic.counters().rx_kept, 2);
}

#[test]
fn a_nic_may_be_told_to_keep_it_to_itself() {
    let mut solo = Solo::new(&Setup {
        reorder: ReorderConfig {
            selective: false,
            ..ReorderConfig::default()
        },
        ..Setup::rc()
    });
    write_selective(&mut solo, 1, 0, b"early");
    reported_after(&mut solo, 0, ReorderConfig::default().min_allowance);
}

#[test]
fn what_a_selective_acknowledgement_says_first_is_what_a_plain_one_says() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    post!(solo, 2, SendOp::Write(remote), 0, 8);
    solo.transmit();
    let psn = Psn::new(solo.setup.first_psn);
    let mut headers = Headers::new(Bth::new(Opcode::RC_ACKNOWLEDGE, solo.qpn, psn));
    headers.bth.resv7 = Bth::SELECTIVE;
    headers.aeth = Aeth {
        syndrome: Syndrome::ack(),
        msn: 1,
    };
    let mut payload = [0; HeldRange::LEN];
    let range = HeldRange {
        first: psn.add(5),
        packets: 3,
    };
    SelectiveAck::emit([range], &mut payload);
    solo.feed(headers, &payload);
    completed!(solo, [(1, Status::Success)]);
}

#[test]
fn an_unreliable_connection_keeps_nothing() {
    let mut solo = Solo::uc();
    recv!(solo, 1, 0, 8);
    solo.request(Opcode::UC_SEND_ONLY, 1, b"early");
    received!(solo, [(1, Status::Success)]);
    assert_eq!(solo.nic.usage().reordered_bytes, 0);
    assert_eq!(solo.nic.counters().rx_kept, 0);
}
