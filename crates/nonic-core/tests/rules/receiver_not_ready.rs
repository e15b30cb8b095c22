//! A peer without a receive asks for quiet; the requester comes back, but not for ever.

use crate::support::{Pair, Setup, Solo, us};
use crate::{completed, expect_nothing, post, received, recv, sent};
use nonic_core::{QpState, RnrTimer, SendOp, Status, WindowConfig};
use nonic_wire::{Opcode, Syndrome};

/// The default timer code's time, and a moment more for the timer's granularity.
const QUIET_US: u64 = 640;
const TICK_US: u64 = 10;

#[test]
fn a_send_without_a_receive_waits_and_then_arrives() {
    let mut pair = Pair::rc();
    post!(pair.a, 1, SendOp::Send, 0, 64);
    pair.exchange();
    completed!(pair.a, []);
    assert_eq!(pair.b.nic.counters().rnr_naks_sent, 1);
    pair.advance(us(QUIET_US - 1));
    expect_nothing!(pair.a);
    recv!(pair.b, 2, 0, 64);
    pair.advance(us(TICK_US));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    received!(pair.b, [(2, Status::Success)]);
    assert_eq!(pair.b.state(), QpState::Rts);
}

/// To the peer, each of those requests is a message. A NAK that counts otherwise is taken for a forged one.
#[test]
fn it_is_heard_though_a_read_before_was_asked_for_in_several_requests() {
    const MTU: u32 = 1024;
    let mut pair = Pair::new(&Setup {
        window: WindowConfig {
            initial: 4 * MTU,
            max: 4 * MTU,
        },
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    // An acknowledgement shows that this peer counts as we do.
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.exchange();
    post!(pair.a, 2, SendOp::Read(remote), 64 << 10, 16 * MTU);
    post!(pair.a, 3, SendOp::Send, 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.b.nic.counters().rnr_naks_sent, 1);
    assert_eq!(pair.a.nic.counters().rnr_naks_received, 1);
    recv!(pair.b, 9, 0, 64);
    pair.advance(us(QUIET_US + TICK_US));
    pair.exchange();
    completed!(pair.a, [(3, Status::Success)]);
}

#[test]
fn the_timer_asked_for_is_the_responders() {
    for code in [0, 1, 12, 26, 31] {
        let mut solo = Solo::new(&Setup {
            rnr_timer_code: code,
            ..Setup::rc()
        });
        solo.request(Opcode::RC_SEND_ONLY, 0, b"data");
        let answers = sent!(solo, [RC_ACKNOWLEDGE]);
        assert_eq!(answers[0].syndrome(), Syndrome::rnr(code));
        assert_eq!(answers[0].psn(), solo.peer.psn);
    }
}

/// Linux's connection manager asks for 655 ms, so programs that are slow to post have seconds with five retries. Ours
/// begins with less than a millisecond: without this, a thread that is not given a processor for 4 ms loses its
/// connection.
#[test]
fn a_peer_that_comes_again_is_asked_to_wait_longer() {
    let mut solo = Solo::new(&Setup {
        rnr_timer_code: 12,
        ..Setup::rc()
    });
    let mut waits = Vec::new();
    for _ in 0..7 {
        solo.request(Opcode::RC_SEND_ONLY, 0, b"data");
        let answers = sent!(solo, [RC_ACKNOWLEDGE]);
        let code = answers[0].syndrome().0 & 0x1f;
        waits.push(RnrTimer::from_code(code).expect("five bits").duration());
    }
    let expected = [640, 2_560, 10_240, 40_960, 40_960, 40_960, 40_960].map(us);
    assert_eq!(waits, expected);
    // What was received in between ends the row.
    recv!(solo, 2, 0, 64);
    solo.request(Opcode::RC_SEND_ONLY, 0, b"data");
    received!(solo, [(2, Status::Success)]);
    solo.transmit();
    solo.request(Opcode::RC_SEND_ONLY, 1, b"more");
    let answers = sent!(solo, [RC_ACKNOWLEDGE]);
    assert_eq!(answers[0].syndrome(), Syndrome::rnr(12));
}

#[test]
fn every_timer_code_is_waited_out_and_not_much_longer() {
    for code in 0..32 {
        let mut solo = Solo::rc();
        post!(solo, 1, SendOp::Send, 0, 8);
        solo.transmit();
        solo.answer(0, Syndrome::rnr(code));
        let quiet = RnrTimer::from_code(code).expect("five bits").duration();
        solo.advance(quiet - us(1));
        sent!(solo, []);
        solo.advance(us(TICK_US));
        sent!(solo, [RC_SEND_ONLY]);
    }
}

#[test]
fn retries_are_counted_and_then_exhausted() {
    for rnr_retry in [0, 1, 6] {
        let mut solo = Solo::new(&Setup {
            rnr_retry,
            ..Setup::rc()
        });
        post!(solo, 1, SendOp::Send, 0, 8);
        post!(solo, 2, SendOp::Send, 0, 8);
        for attempt in 0..=rnr_retry {
            completed!(solo, []);
            // One packet finds out whether the peer is ready now.
            let packets = if attempt == 0 { 2 } else { 1 };
            assert_eq!(solo.transmit().len(), packets, "attempt {attempt}");
            solo.answer(0, Syndrome::rnr(1));
            solo.advance(us(20));
        }
        completed!(solo, [(1, Status::RnrRetryExceeded), (2, Status::Flushed)]);
        assert_eq!(solo.state(), QpState::Error);
    }
}

#[test]
fn seven_means_for_ever() {
    let mut solo = Solo::new(&Setup {
        rnr_retry: 7,
        ..Setup::rc()
    });
    post!(solo, 1, SendOp::Send, 0, 8);
    for _ in 0..100 {
        sent!(solo, [RC_SEND_ONLY]);
        solo.answer(0, Syndrome::rnr(1));
        solo.advance(us(20));
    }
    assert_eq!(solo.state(), QpState::Rts);
}

#[test]
fn progress_gives_the_retries_back() {
    let mut solo = Solo::new(&Setup {
        rnr_retry: 1,
        ..Setup::rc()
    });
    for index in 0..5 {
        post!(solo, u64::from(index), SendOp::Send, 0, 8);
        sent!(solo, [RC_SEND_ONLY]);
        solo.answer(index, Syndrome::rnr(1));
        solo.advance(us(20));
        sent!(solo, [RC_SEND_ONLY]);
        solo.answer(index, Syndrome::ack());
        completed!(solo, [(u64::from(index), Status::Success)]);
    }
}

#[test]
fn copies_of_one_nak_count_once() {
    let mut solo = Solo::new(&Setup {
        rnr_retry: 1,
        ..Setup::rc()
    });
    post!(solo, 1, SendOp::Send, 0, 8);
    sent!(solo, [RC_SEND_ONLY]);
    for _ in 0..5 {
        solo.answer(0, Syndrome::rnr(5));
    }
    assert_eq!(solo.state(), QpState::Rts);
    solo.advance(us(70));
    sent!(solo, [RC_SEND_ONLY]);
}

#[test]
fn waiting_for_a_receive_is_not_a_timeout() {
    let mut solo = Solo::new(&Setup {
        timeout_exponent: 1,
        retry_count: 0,
        ..Setup::rc()
    });
    post!(solo, 1, SendOp::Send, 0, 8);
    solo.transmit();
    solo.answer(0, Syndrome::rnr(0));
    solo.advance(us(600_000));
    assert_eq!(solo.state(), QpState::Rts);
    assert_eq!(solo.nic.counters().timeouts, 0);
}

#[test]
fn the_nak_acknowledges_what_is_before_it() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 2000);
    post!(pair.a, 2, SendOp::Send, 0, 8);
    pair.exchange_with(|_, wire| {
        // Without the WRITE's own acknowledgement.
        if wire.opcode() == Opcode::RC_ACKNOWLEDGE && wire.syndrome() == Syndrome::ack() {
            crate::support::Fate::Drop
        } else {
            crate::support::Fate::Deliver
        }
    });
    completed!(pair.a, [(1, Status::Success)]);
}

#[test]
fn packets_behind_the_one_refused_are_dropped_silently() {
    let mut solo = Solo::rc();
    solo.request(Opcode::RC_SEND_ONLY, 0, b"data");
    solo.request(Opcode::RC_SEND_ONLY, 1, b"data");
    solo.request(Opcode::RC_SEND_ONLY, 2, b"data");
    sent!(solo, [RC_ACKNOWLEDGE]);
    recv!(solo, 1, 0, 8);
    solo.request(Opcode::RC_SEND_ONLY, 1, b"data");
    sent!(solo, []);
    solo.request(Opcode::RC_SEND_ONLY, 0, b"data");
    received!(solo, [(1, Status::Success)]);
}

#[test]
fn a_long_send_that_found_no_receive_starts_over() {
    let mut pair = Pair::rc();
    let bytes = crate::support::pattern(3, 5000);
    pair.a.fill(0, &bytes);
    post!(pair.a, 1, SendOp::Send, 0, 5000);
    pair.exchange();
    recv!(pair.b, 2, 0, 5000);
    pair.advance(us(QUIET_US + TICK_US));
    pair.exchange();
    received!(pair.b, [(2, Status::Success)]);
    assert_eq!(pair.b.bytes(0, 5000), bytes);
}

#[test]
fn write_with_immediate_waits_at_its_last_packet() {
    let mut pair = Pair::rc();
    let bytes = crate::support::pattern(3, 3000);
    pair.a.fill(0, &bytes);
    let remote = pair.b.remote(100);
    post!(pair.a, 1, SendOp::WriteWithImmediate(remote, 9), 0, 3000);
    pair.exchange();
    received!(pair.b, []);
    assert_eq!(pair.b.nic.counters().rnr_naks_sent, 1);
    recv!(pair.b, 2, 0, 0);
    pair.advance(us(QUIET_US + TICK_US));
    assert_eq!(pair.exchange(), 2, "the last packet and its acknowledgement");
    completed!(pair.a, [(1, Status::Success)]);
    received!(pair.b, [(2, Status::Success)]);
    assert_eq!(pair.b.bytes(100, 3000), bytes);
}

#[test]
fn a_flood_without_receives_does_not_pile_up_answers() {
    let mut solo = Solo::rc();
    for _ in 0..10_000 {
        solo.request(Opcode::RC_SEND_ONLY, 0, b"data");
        solo.request(Opcode::RC_SEND_ONLY, 0x00ff_fff0, b"data");
    }
    assert!(solo.transmit().len() <= 1000);
}

#[test]
fn a_shorter_quiet_time_is_not_held_up_by_a_longer_one_before_it() {
    let mut solo = Solo::rc();
    post!(solo, 1, SendOp::Send, 0, 8);
    post!(solo, 2, SendOp::Send, 0, 8);
    solo.transmit();
    solo.answer(0, Syndrome::rnr(0));
    solo.answer(0, Syndrome::ack());
    completed!(solo, [(1, Status::Success)]);
    sent!(solo, [RC_SEND_ONLY]);
    solo.answer(1, Syndrome::rnr(1));
    solo.advance(us(20));
    sent!(solo, [RC_SEND_ONLY]);
}
