//! A requester finds out which packets were lost without waiting for the program's timeout, and sends those again and no others.

use crate::support::{Fate, Pair, Setup, Side, Solo, Wire, ms, pattern, us};
use crate::{completed, post, received, recv, sent};
use nonic_core::{Nic, PathMtu, QpState, ReorderConfig, SendOp, Status};
use nonic_wire::{Aeth, Bth, Headers, HeldRange, NakCode, Opcode, Psn, SelectiveAck, Syndrome};

/// What the path takes one way in these tests.
const ONE_WAY: std::time::Duration = us(500);

/// Carries everything, each way taking [`ONE_WAY`], until both are silent.
#[track_caller]
fn carry(pair: &mut Pair, mut fate: impl FnMut(Side, &Wire) -> Fate) {
    for _ in 0..200 {
        let (from_a, from_b) = (pair.a.transmit(), pair.b.transmit());
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        pair.advance(ONE_WAY);
        for wire in from_a.iter().filter(|wire| fate(Side::A, wire) != Fate::Drop) {
            pair.b.receive(wire);
        }
        for wire in from_b.iter().filter(|wire| fate(Side::B, wire) != Fate::Drop) {
            pair.a.receive(wire);
        }
    }
    panic!("the two never stop talking");
}

/// Two nodes that know how long the path is.
fn acquainted() -> Pair {
    acquainted_with(&Setup::rc())
}

fn acquainted_with(setup: &Setup) -> Pair {
    let mut pair = Pair::new(setup);
    let remote = pair.b.remote(0);
    for wr_id in 900..910 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 8);
        carry(&mut pair, |_, _| Fate::Deliver);
        completed!(pair.a, [(wr_id, Status::Success)]);
    }
    pair
}

fn resent(nic: &Nic) -> u64 {
    nic.counters().retransmitted_packets
}

/// A SACK of the imagined peer: everything before `executed` was, and these ranges are held. Indices of our packets.
fn selective(solo: &mut Solo, executed: u32, held: &[(u32, u32)]) {
    let first = Psn::new(solo.setup.first_psn);
    let mut headers = Headers::new(Bth::new(
        Opcode::RC_ACKNOWLEDGE,
        solo.qpn,
        first.add(executed).prev(),
    ));
    headers.bth.resv7 = Bth::SELECTIVE;
    headers.aeth = Aeth {
        syndrome: Syndrome::ack(),
        msn: 0,
    };
    let ranges = held.iter().map(|(index, packets)| HeldRange {
        first: first.add(*index),
        packets: *packets,
    });
    let mut payload = [0; SelectiveAck::MAX_LEN];
    let length = SelectiveAck::emit(ranges, &mut payload);
    solo.feed(headers, &payload[..length]);
}

/// Indices of our packets among these.
fn indices(solo: &Solo, packets: &[Wire]) -> Vec<i32> {
    let first = Psn::new(solo.setup.first_psn);
    packets
        .iter()
        .map(|wire| wire.psn().distance_from(first))
        .collect()
}

#[test]
fn a_lost_packet_is_sent_again_alone() {
    let mut pair = acquainted();
    pair.a.fill(0, &pattern(1, 20 << 10));
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 20 << 10);
    let requests = pair.a.transmit();
    assert_eq!(requests.len(), 20);
    pair.advance(ONE_WAY);
    let arrived = requests.iter().enumerate().filter(|(index, _)| *index != 5);
    pair.b.receive_all(arrived.map(|(_, wire)| wire));
    let reports = pair.b.transmit();
    pair.advance(ONE_WAY);
    pair.a.receive_all(&reports);
    sent!(pair.a, []);
    // A quarter of the round trip is allowed for reordering.
    pair.advance(us(200));
    sent!(pair.a, []);
    pair.advance(us(100));
    let again = sent!(pair.a, [RC_RDMA_WRITE_MIDDLE]);
    assert_eq!(again[0].psn(), requests[5].psn());
    assert_eq!(again[0].payload(), requests[5].payload());
    assert!(again[0].asks_for_ack(), "the window waits for the answer");
    pair.b.receive_all(&again);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.b.bytes(0, 20 << 10), pattern(1, 20 << 10));
    assert_eq!(resent(&pair.a.nic), 1);
    let counters = pair.a.nic.counters();
    assert_eq!((counters.timeouts, counters.naks_received), (0, 0));
}

#[test]
fn new_packets_go_on_while_one_is_missing() {
    let mut pair = acquainted();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8 << 10);
    let requests = pair.a.transmit();
    pair.b.receive_all(&requests[1..]);
    pair.a.receive_all(&pair.b.transmit());
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    let more = sent!(pair.a, [RC_RDMA_WRITE_ONLY]);
    pair.b.receive_all(&more);
    pair.a.receive_all(&pair.b.transmit());
    completed!(pair.a, []);
    pair.b.receive(&requests[0]);
    pair.a.receive_all(&pair.b.transmit());
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(resent(&pair.a.nic), 0);
}

#[test]
fn several_holes_are_filled_with_what_lies_in_them() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 12 << 10);
    assert_eq!(solo.transmit().len(), 12);
    selective(&mut solo, 1, &[(10, 1), (5, 3), (2, 1)]);
    solo.advance(us(400));
    let again = solo.transmit();
    assert_eq!(
        indices(&solo, &again),
        [1, 3, 4, 8, 9],
        "not 11, which nothing has overtaken"
    );
    solo.answer(11, Syndrome::ack());
    completed!(solo, [(1, Status::Success)]);
}

#[test]
fn a_repetition_that_is_lost_is_repeated() {
    let mut pair = acquainted();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 10 << 10);
    let third = Psn::new(pair.a.setup.first_psn).add(10 + 3);
    let mut attempts = 0;
    for _ in 0..20 {
        carry(&mut pair, |side, wire| {
            let hit = side == Side::A && wire.psn() == third;
            attempts += u32::from(hit);
            if hit && attempts < 4 {
                Fate::Drop
            } else {
                Fate::Deliver
            }
        });
        pair.advance(ms(1));
    }
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(attempts, 4);
    assert_eq!(resent(&pair.a.nic), 3, "nothing else");
    assert_eq!(pair.a.nic.counters().timeouts, 0);
}

#[test]
fn the_last_packet_is_missed_by_nobody_so_an_answer_is_provoked() {
    let mut pair = acquainted();
    pair.a.fill(0, &pattern(4, 8 << 10));
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8 << 10);
    let requests = pair.a.transmit();
    pair.b.receive_all(&requests[..7]);
    pair.a.receive_all(&pair.b.transmit());
    // A round trip of 1 ms, and 2 ms that a peer may hold an acknowledgement back.
    pair.advance(us(2_500));
    sent!(pair.a, []);
    pair.advance(ms(1));
    let probe = sent!(pair.a, [RC_RDMA_WRITE_LAST]);
    assert_eq!(probe[0].payload(), requests[7].payload());
    pair.b.receive_all(&probe);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(resent(&pair.a.nic), 1);
    assert_eq!(pair.a.nic.counters().timeouts, 0);
}

#[test]
fn a_peer_that_never_answered_is_sent_one_packet_now_and_then() {
    let mut solo = Solo::new(&Setup {
        // 537 ms.
        timeout_exponent: 17,
        ..Setup::rc()
    });
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 16 << 10);
    assert_eq!(solo.transmit().len(), 16);
    let mut sent_at = Vec::new();
    for millisecond in 1..500 {
        solo.advance(ms(1));
        for wire in solo.transmit() {
            sent_at.push((millisecond, indices(&solo, &[wire])[0]));
        }
    }
    // The last shows what is missing, the first is what a peer by the book needs.
    assert_eq!(sent_at, [(31, 15), (62, 15), (123, 0), (244, 0), (485, 0)]);
}

#[test]
fn a_request_that_is_held_overtook_what_is_missing_before_it() {
    let mut pair = Pair::rc();
    recv!(pair.b, 7, 100, 64);
    pair.b.set_word(0, 5);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Send, 0, 64);
    post!(pair.a, 2, SendOp::FetchAdd { remote, add: 1 }, 200, 8);
    let requests = pair.a.transmit();
    pair.b.receive(&requests[1]);
    pair.a.receive_all(&pair.b.transmit());
    sent!(pair.a, []);
    pair.advance(us(200));
    let again = sent!(pair.a, [RC_SEND_ONLY]);
    // Lost again, and again: it is not for the program's timeout to find out, though no round trip was measured.
    drop(again);
    for _ in 0..60 {
        pair.advance(ms(1));
        if !pair.a.transmit().is_empty() {
            break;
        }
    }
    pair.advance(ms(5));
    pair.exchange();
    for _ in 0..60 {
        pair.advance(ms(1));
        pair.exchange();
    }
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    received!(pair.b, [(7, Status::Success)]);
    assert_eq!((pair.a.word(200), pair.b.word(0)), (5, 6));
    assert_eq!(pair.a.nic.counters().timeouts, 0);
}

#[test]
fn a_peer_that_never_answered_is_not_soon_asked_again_for_a_read() {
    let mut solo = Solo::new(&Setup {
        // 537 ms.
        timeout_exponent: 17,
        ..Setup::rc()
    });
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Read(remote), 0, 16 << 10);
    sent!(solo, [RC_RDMA_READ_REQUEST]);
    for _ in 0..240 {
        solo.advance(ms(1));
        sent!(solo, []);
    }
    solo.advance(ms(10));
    sent!(solo, [RC_RDMA_READ_REQUEST]);
}

#[test]
fn whoever_is_silent_is_asked_more_and_more_rarely_and_retries_are_for_the_programs_timeout() {
    let setup = Setup {
        // 1.07 s.
        timeout_exponent: 18,
        retry_count: 1,
        ..Setup::rc()
    };
    let mut pair = acquainted_with(&setup);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 64 << 10);
    assert_eq!(pair.a.transmit().len(), 64);
    let mut sent_at = Vec::new();
    for millisecond in 1..=1000 {
        pair.a.advance(ms(1));
        let packets = pair.a.transmit().len();
        assert!(packets <= 4, "{packets} packets into silence");
        sent_at.extend(std::iter::repeat_n(millisecond, packets));
    }
    assert!(sent_at.len() < 50, "{sent_at:?}");
    let (first, last) = (sent_at[0], sent_at[sent_at.len() - 1]);
    assert!(first < 5, "soon: {sent_at:?}");
    assert!(last > 400, "again and again: {sent_at:?}");
    assert_eq!(pair.a.nic.counters().timeouts, 0);
    // Two timeouts end it, as if nothing had been sent between.
    for _ in 0..8 {
        pair.a.advance(ms(1_000));
        pair.a.transmit();
    }
    completed!(pair.a, [(1, Status::RetryExceeded)]);
    assert_eq!(pair.a.nic.counters().timeouts, 2);
}

#[test]
fn what_was_only_late_is_not_sent_again_and_the_next_time_it_is_waited_for_longer() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    for index in 0..10 {
        post!(solo, 1, SendOp::Write(remote), 0, 8);
        assert_eq!(solo.transmit().len(), 1);
        solo.advance(ms(10));
        solo.answer(index, Syndrome::ack());
        completed!(solo, [(1, Status::Success)]);
    }
    // A packet is 5 ms late: twice as long as is allowed at first.
    let mut repeated = Vec::new();
    for round in 0..3 {
        let first = 10 + 4 * round;
        post!(solo, 2, SendOp::Write(remote), 0, 4 << 10);
        assert_eq!(solo.transmit().len(), 4);
        solo.advance(ms(10));
        selective(&mut solo, first, &[(first + 1, 3)]);
        solo.advance(ms(5));
        repeated.push(solo.transmit().len());
        solo.answer(first + 3, Syndrome::ack());
        completed!(solo, [(2, Status::Success)]);
    }
    assert_eq!(repeated, [1, 0, 0]);
}

#[test]
fn a_peer_that_reports_a_gap_is_sent_everything_from_there_on() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 6 << 10);
    assert_eq!(solo.transmit().len(), 6);
    solo.answer(2, Syndrome::nak(NakCode::PsnSequenceError));
    let again = solo.transmit();
    assert_eq!(indices(&solo, &again), [2, 3, 4, 5]);
    solo.answer(2, Syndrome::nak(NakCode::PsnSequenceError));
    sent!(solo, []);
    solo.answer(5, Syndrome::ack());
    completed!(solo, [(1, Status::Success)]);
}

#[test]
fn an_answer_to_what_was_sent_twice_says_nothing_of_the_round_trip() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 6 << 10);
    assert_eq!(solo.transmit().len(), 6);
    solo.advance(ms(20));
    solo.answer(0, Syndrome::nak(NakCode::PsnSequenceError));
    assert_eq!(solo.transmit().len(), 6);
    // What was late has come meanwhile: this is no answer to what was sent last.
    solo.advance(us(100));
    solo.answer(5, Syndrome::ack());
    completed!(solo, [(1, Status::Success)]);
    // As long as nothing is known an answer is waited for a while, and not for a tenth of a millisecond and a little.
    post!(solo, 2, SendOp::Write(remote), 0, 8);
    assert_eq!(solo.transmit().len(), 1);
    solo.advance(ms(25));
    sent!(solo, []);
    solo.advance(ms(10));
    assert_eq!(solo.transmit().len(), 1);
}

#[test]
fn an_acknowledgement_shows_what_a_peer_that_goes_back_has_after_all() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 6 << 10);
    assert_eq!(solo.transmit().len(), 6);
    solo.answer(2, Syndrome::nak(NakCode::PsnSequenceError));
    // What was late has come meanwhile.
    solo.answer(4, Syndrome::ack());
    let again = solo.transmit();
    assert_eq!(indices(&solo, &again), [5]);
}

#[test]
fn a_report_of_packets_that_were_never_sent_is_ignored() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 4 << 10);
    assert_eq!(solo.transmit().len(), 4);
    selective(
        &mut solo,
        1,
        &[(3, 2), (100, 5), (0x40_0000, 0x7f_ffff), (2, 0x7f_ffff)],
    );
    solo.advance(us(400));
    sent!(solo, []);
    completed!(solo, []);
    assert_eq!(solo.state(), QpState::Rts);
    // Nor one of packets that are done with, or of no packets before any others.
    selective(&mut solo, 4, &[(0, 2), (2, 2)]);
    completed!(solo, [(1, Status::Success)]);
    selective(&mut solo, 4, &[(2, 2)]);
    sent!(solo, []);
}

#[test]
fn a_peer_without_a_receive_has_dropped_what_it_held() {
    let mut pair = acquainted();
    let remote = pair.b.remote(0);
    pair.a.fill(0, &pattern(7, 64));
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    post!(pair.a, 2, SendOp::Send, 0, 64);
    post!(pair.a, 3, SendOp::Write(remote), 0, 8);
    let requests = pair.a.transmit();
    // Held: the SEND and the WRITE behind it. Then the first comes, and the SEND finds no receive.
    pair.b.receive_all(&requests[1..]);
    pair.a.receive_all(&pair.b.transmit());
    pair.b.receive(&requests[0]);
    pair.a.receive_all(&pair.b.transmit());
    completed!(pair.a, [(1, Status::Success)]);
    recv!(pair.b, 5, 100, 64);
    pair.advance(ms(1));
    pair.exchange();
    completed!(pair.a, [(2, Status::Success), (3, Status::Success)]);
    received!(pair.b, [(5, Status::Success)]);
    assert_eq!(pair.b.bytes(100, 64), pattern(7, 64));
}

/// A READ of so many packets, of whose answers two are lost once; how many bytes were asked for at a time.
#[track_caller]
fn read_with_a_hole(pair: &mut Pair, packets: usize, hole: [i32; 2]) -> Vec<u32> {
    let length = packets << 10;
    pair.b.fill(0, &pattern(3, length));
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, length as u32);
    let mut lost = 0;
    let mut asked = Vec::new();
    for _ in 0..20 {
        carry(pair, |side, wire| {
            if side == Side::A {
                asked.push(wire.headers().reth.dma_len);
            }
            let index = wire.psn().distance_from(Psn::new(0x10_0000 + 10));
            if side == Side::B && hole.contains(&index) && lost < 2 {
                lost += 1;
                return Fate::Drop;
            }
            Fate::Deliver
        });
        pair.advance(ms(1));
    }
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.a.bytes(0, length), pattern(3, length));
    assert_eq!(pair.a.nic.counters().timeouts, 0);
    asked
}

#[test]
fn a_hole_in_the_answer_to_a_read_is_asked_for_alone() {
    let asked = read_with_a_hole(&mut acquainted(), 16, [4, 5]);
    assert_eq!(asked, [16 << 10, 2 << 10], "what was missing and nothing else");
}

#[test]
fn a_hole_that_two_requests_of_a_read_asked_for_is_asked_for_by_two() {
    // With a window of eight packets, READs are asked for in requests of four.
    let mut pair = acquainted_with(&Setup {
        window: nonic_core::WindowConfig {
            initial: 8 << 10,
            max: 8 << 10,
        },
        ..Setup::rc()
    });
    let asked = read_with_a_hole(&mut pair, 8, [3, 4]);
    assert_eq!(asked, [4 << 10, 4 << 10, 1 << 10, 1 << 10]);
}

/// Linux's rxe takes a repeated READ for a part of the one before it, and never answers what lies before that again.
#[test]
fn a_later_hole_in_the_answer_to_a_read_is_asked_for_when_the_earlier_one_is_filled() {
    let mut pair = acquainted();
    pair.b.fill(0, &pattern(3, 16 << 10));
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, 16 << 10);
    let (mut asked, mut lost) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        carry(&mut pair, |side, wire| {
            let index = wire.psn().distance_from(Psn::new(0x10_0000 + 10));
            let loses = match side {
                Side::A => index == 4,
                Side::B => [4, 9].contains(&index),
            };
            if side == Side::A {
                // As rxe does.
                let refused = asked.last().is_some_and(|before| index < *before);
                assert!(!refused, "asked for {index} after {asked:?}");
                asked.push(index);
            }
            if loses && !lost.contains(&(side, index)) {
                lost.push((side, index));
                return Fate::Drop;
            }
            Fate::Deliver
        });
        pair.advance(ms(1));
    }
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.a.bytes(0, 16 << 10), pattern(3, 16 << 10));
    assert_eq!(asked, [0, 4, 4, 9]);
    assert_eq!(pair.a.nic.counters().timeouts, 0);
}

#[test]
fn answers_in_any_order_are_placed_in_theirs() {
    let mut pair = acquainted();
    pair.b.fill(0, &pattern(3, 8 << 10));
    pair.b.set_word(32 << 10, 41);
    let (remote, word) = (pair.b.remote(0), pair.b.remote(32 << 10));
    post!(pair.a, 1, SendOp::Read(remote), 0, 8 << 10);
    post!(pair.a, 2, SendOp::FetchAdd { remote: word, add: 1 }, 16 << 10, 8);
    post!(pair.a, 3, SendOp::Write(word), 8 << 10, 8);
    let requests = pair.a.transmit();
    pair.b.receive_all(&requests);
    let mut answers = pair.b.transmit();
    answers.reverse();
    for answer in &answers[..answers.len() - 1] {
        pair.a.receive(answer);
        completed!(pair.a, []);
    }
    pair.a.receive(&answers[answers.len() - 1]);
    completed!(
        pair.a,
        [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
    );
    assert_eq!(pair.a.bytes(0, 8 << 10), pattern(3, 8 << 10));
    assert_eq!(pair.a.word(16 << 10), 41);
    assert_eq!(resent(&pair.a.nic), 0);
}

#[test]
fn a_peer_that_keeps_nothing_is_served_as_ever() {
    let setup = Setup {
        reorder: ReorderConfig::NONE,
        ..Setup::rc()
    };
    let mut pair = acquainted_with(&setup);
    pair.a.fill(0, &pattern(1, 20 << 10));
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 20 << 10);
    let fifth = Psn::new(setup.first_psn).add(10 + 5);
    let mut lost = false;
    carry(&mut pair, |_, wire| {
        if wire.psn() == fifth && !std::mem::replace(&mut lost, true) {
            return Fate::Drop;
        }
        Fate::Deliver
    });
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.b.bytes(0, 20 << 10), pattern(1, 20 << 10));
    assert_eq!(resent(&pair.a.nic), 15);
}

#[test]
fn a_peer_may_have_dropped_what_it_held_without_our_hearing_of_it() {
    let mut pair = acquainted_with(&Setup {
        // 1.07 s.
        timeout_exponent: 18,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    pair.a.fill(0, &pattern(7, 64));
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    post!(pair.a, 2, SendOp::Send, 0, 64);
    post!(pair.a, 3, SendOp::Write(remote), 0, 8);
    let requests = pair.a.transmit();
    pair.b.receive_all(&requests[1..]);
    pair.a.receive_all(&pair.b.transmit());
    // The SEND finds no receive and takes along what is behind it. That is said, but not heard.
    pair.b.receive(&requests[0]);
    assert!(!pair.b.transmit().is_empty());
    recv!(pair.b, 5, 100, 64);
    for _ in 0..40 {
        pair.advance(ms(1));
        pair.exchange();
    }
    completed!(
        pair.a,
        [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
    );
    received!(pair.b, [(5, Status::Success)]);
    assert_eq!(pair.b.bytes(100, 64), pattern(7, 64));
    assert_eq!(pair.a.nic.counters().timeouts, 0);
}

#[test]
fn an_old_report_of_what_a_peer_held_does_no_lasting_harm() {
    let mut pair = acquainted_with(&Setup {
        timeout_exponent: 18,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    post!(pair.a, 2, SendOp::Send, 0, 64);
    post!(pair.a, 3, SendOp::Write(remote), 0, 8);
    let requests = pair.a.transmit();
    pair.b.receive_all(&requests[1..]);
    let old_reports = pair.b.transmit();
    pair.b.receive(&requests[0]);
    pair.a.receive_all(&pair.b.transmit());
    recv!(pair.b, 5, 100, 64);
    pair.advance(ms(1));
    // Everything behind the first is sent again and lost, but for the SEND that was missed. Then comes what the peer said before.
    let again = pair.a.transmit();
    pair.b.receive(&again[0]);
    pair.a.receive_all(&pair.b.transmit());
    pair.a.transmit();
    pair.a.receive_all(&old_reports);
    for _ in 0..40 {
        pair.advance(ms(1));
        pair.exchange();
    }
    completed!(
        pair.a,
        [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
    );
    assert_eq!(pair.a.nic.counters().timeouts, 0);
}

#[test]
fn many_missing_packets_do_not_make_an_atomic_one_too_many() {
    // Each packet of a WRITE comes behind the one after it, so the responder, which keeps none, reports each of them before it can send
    // anything. The peer has asked for one atomic only.
    let mut pair = Pair::new(&Setup {
        max_dest_rd_atomic: 1,
        max_rd_atomic: 1,
        mtu: PathMtu::Mtu256,
        reorder: ReorderConfig::NONE,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 10 * 256);
    let remote = pair.b.remote(64 << 10);
    post!(pair.a, 2, SendOp::FetchAdd { remote, add: 1 }, 200 << 10, 8);
    let requests = pair.a.transmit();
    for two in requests.windows(2) {
        pair.b.receive_all([&two[1], &two[0]]);
    }
    pair.b.receive_all(requests.last());
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.b.word(64 << 10), 1);
}
