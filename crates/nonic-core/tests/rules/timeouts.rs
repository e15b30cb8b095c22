//! Acknowledgement timeouts: a peer that does not answer.

use crate::support::{Fate, Pair, Setup, Side, Solo, ms};
use crate::{completed, post, received, recv, sent};
use nonic_core::{AckTimeout, QpState, SendOp, Status};
use nonic_wire::Syndrome;

/// The default timeout, rounded up: exponent 14 is 67.1 ms.
const TIMEOUT_MS: u64 = 68;

/// A timeout shorter than an answer is waited for otherwise: 16.8 ms.
fn short() -> Setup {
    Setup {
        timeout_exponent: 12,
        ..Setup::rc()
    }
}
const SHORT_MS: u64 = 17;

#[test]
fn a_lost_request_is_sent_again_after_the_timeout_and_not_before() {
    let mut pair = Pair::new(&short());
    recv!(pair.b, 2, 0, 64);
    post!(pair.a, 1, SendOp::Send, 0, 64);
    let lost = sent!(pair.a, [RC_SEND_ONLY]);
    pair.advance(ms(16));
    sent!(pair.a, []);
    pair.advance(ms(1));
    let again = sent!(pair.a, [RC_SEND_ONLY]);
    assert_eq!(again[0].psn(), lost[0].psn());
    assert_eq!(again[0].payload(), lost[0].payload());
    pair.b.receive_all(&again);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    received!(pair.b, [(2, Status::Success)]);
    assert_eq!(pair.a.nic.counters().retransmitted_packets, 1);
}

#[test]
fn n_retries_are_n_plus_one_transmissions_then_everything_is_flushed() {
    for retry_count in [0, 1, 2, 7] {
        let mut solo = Solo::new(&Setup {
            retry_count,
            ..Setup::rc()
        });
        let remote = solo.remote(0);
        post!(solo, 1, SendOp::Write(remote), 0, 8);
        post!(solo, 2, SendOp::Write(remote), 0, 8);
        recv!(solo, 3, 0, 8);
        let mut transmissions = 0;
        while solo.state() == QpState::Rts {
            transmissions += solo
                .transmit()
                .iter()
                .filter(|wire| wire.psn().value() == solo.setup.first_psn)
                .count();
            completed!(solo, []);
            solo.advance(ms(TIMEOUT_MS));
            assert!(transmissions < 20);
        }
        assert_eq!(transmissions, usize::from(retry_count) + 1);
        completed!(solo, [(1, Status::RetryExceeded), (2, Status::Flushed)]);
        received!(solo, [(3, Status::Flushed)]);
        sent!(solo, []);
    }
}

/// The standard allows an answer to be waited for up to four times as long as was asked.
#[test]
fn who_does_not_answer_is_waited_for_longer_each_time() {
    let mut solo = Solo::new(&Setup {
        retry_count: 7,
        ..short()
    });
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    sent!(solo, [RC_RDMA_WRITE_ONLY]);
    for timeouts in [1, 2, 4, 4] {
        solo.advance(ms((timeouts - 1) * SHORT_MS + 15));
        sent!(solo, []);
        solo.advance(ms(SHORT_MS - 15));
        sent!(solo, [RC_RDMA_WRITE_ONLY]);
    }
    solo.answer(0, Syndrome::ack());
    completed!(solo, [(1, Status::Success)]);
    post!(solo, 2, SendOp::Write(remote), 0, 8);
    sent!(solo, [RC_RDMA_WRITE_ONLY]);
    solo.advance(ms(SHORT_MS));
    sent!(solo, [RC_RDMA_WRITE_ONLY]);
}

#[test]
fn long_timeouts_are_meant() {
    let short = AckTimeout::from_exponent(14).expect("a timeout");
    let waits = |timeout: AckTimeout, timeouts| timeout.after_timeouts(timeouts).expect("finite");
    assert_eq!(waits(short, 0), short.duration().expect("finite"));
    assert_eq!(waits(short, 7), 4 * short.duration().expect("finite"));
    for (exponent, longest) in [(15, AckTimeout::LONGEST_STRETCHED), (17, ms(536)), (20, ms(4294))] {
        let timeout = AckTimeout::from_exponent(exponent).expect("a timeout");
        assert_eq!(waits(timeout, 7).as_millis(), longest.as_millis());
    }
    assert_eq!(AckTimeout::INFINITE.after_timeouts(3), None);
}

#[test]
fn progress_gives_the_retries_back() {
    let mut solo = Solo::new(&Setup {
        retry_count: 1,
        ..Setup::rc()
    });
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 5 * 1024);
    solo.transmit();
    for index in 0..5 {
        solo.advance(ms(TIMEOUT_MS));
        assert!(!solo.transmit().is_empty());
        solo.answer(index, Syndrome::ack());
    }
    completed!(solo, [(1, Status::Success)]);
}

#[test]
fn each_acknowledgement_starts_the_wait_anew() {
    let mut solo = Solo::new(&short());
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 3 * 1024);
    assert_eq!(solo.transmit().len(), 3);
    solo.advance(ms(15));
    solo.answer(0, Syndrome::ack());
    solo.advance(ms(15));
    sent!(solo, []);
    solo.advance(ms(2));
    assert_eq!(solo.transmit()[0].psn().value(), solo.setup.first_psn + 1);
}

#[test]
fn after_a_timeout_one_packet_at_a_time_is_tried_until_there_is_an_answer() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 40 * 1024);
    assert_eq!(solo.transmit().len(), 40);
    for timeouts in [1, 2] {
        solo.advance(ms(timeouts * TIMEOUT_MS));
        let probe = sent!(solo, [RC_RDMA_WRITE_FIRST]);
        assert!(probe[0].asks_for_ack());
    }
    solo.answer(0, Syndrome::ack());
    assert!(solo.transmit().len() > 1);
}

#[test]
fn a_dead_connection_does_not_keep_the_window_from_the_living() {
    let mut pair = Pair::new(&Setup {
        window: nonic_core::WindowConfig {
            initial: 8 * 1024,
            max: 8 * 1024,
        },
        ..Setup::rc()
    });
    let dead = pair.b.qpn;
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 100_000);
    assert_eq!(pair.a.transmit().len(), 8, "it has the whole window");
    pair.a.qpn = pair.connect_more().0;
    for wr_id in 2..=5 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 20_000);
    }
    let to_the_dead = |_: Side, wire: &crate::support::Wire| {
        if wire.headers().bth.dest_qp == dead {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    };
    pair.exchange_with(to_the_dead);
    completed!(pair.a, []);
    pair.advance(ms(TIMEOUT_MS));
    pair.exchange_with(to_the_dead);
    completed!(
        pair.a,
        [
            (2, Status::Success),
            (3, Status::Success),
            (4, Status::Success),
            (5, Status::Success)
        ]
    );
}

#[test]
fn an_infinite_timeout_never_comes() {
    let mut solo = Solo::new(&Setup {
        timeout_exponent: 0,
        ..Setup::rc()
    });
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    sent!(solo, [RC_RDMA_WRITE_ONLY]);
    assert_eq!(solo.nic.poll_timeout(), None);
    solo.advance(ms(3_600_000));
    sent!(solo, []);
    assert_eq!(solo.state(), QpState::Rts);
}

#[test]
fn poll_timeout_names_a_moment_that_is_enough_to_act_on() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    solo.transmit();
    let mut wake_ups = 0;
    while solo.state() == QpState::Rts {
        let next = solo.nic.poll_timeout().expect("something is under way");
        assert!(next > solo.now, "a wake-up in the past would spin");
        solo.now = next;
        solo.node.nic.handle_timeout(next);
        solo.transmit();
        wake_ups += 1;
        assert!(wake_ups < 100);
    }
    completed!(solo, [(1, Status::RetryExceeded)]);
}

#[test]
fn a_lost_acknowledgement_costs_a_repetition_but_no_second_execution() {
    let mut pair = Pair::rc();
    recv!(pair.b, 10, 0, 8);
    recv!(pair.b, 11, 0, 8);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    pair.exchange_with(|from, _| {
        if from == Side::B {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    pair.advance(ms(TIMEOUT_MS));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    received!(pair.b, [(10, Status::Success)]);
    assert_eq!(pair.b.nic.counters().rx_duplicates, 1);
}

#[test]
fn timers_are_given_back_when_nothing_is_under_way() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    for wr_id in 0..20 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 3000);
        pair.exchange();
        pair.advance(ms(5));
    }
    assert_eq!(pair.a.completions().len(), 20);
    pair.advance(ms(200));
    assert_eq!(pair.a.nic.usage().timers, 0);
    assert_eq!(pair.a.nic.poll_timeout(), None);
    assert_eq!(pair.a.nic.counters().timeouts, 0);
}

#[test]
fn a_destroyed_queue_pair_leaves_no_timer_behind() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    solo.transmit();
    let qpn = solo.qpn;
    assert!(solo.destroy_qp(qpn));
    solo.advance(ms(200));
    assert_eq!(solo.nic.usage(), nonic_core::Usage::default());
    sent!(solo, []);
}

#[test]
fn time_may_stand_still_and_jump() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    sent!(pair.a, [RC_RDMA_WRITE_ONLY]);
    let before = pair.a.now;
    pair.a.advance(ms(10));
    // A clock read on another processor may lag behind.
    pair.a.now = before;
    pair.a.advance(ms(0));
    sent!(pair.a, []);
    pair.a.advance(ms(10_000_000));
    sent!(pair.a, [RC_RDMA_WRITE_ONLY]);
    pair.exchange();
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    pair.exchange();
    assert_eq!(pair.a.state(), QpState::Rts);
}

#[test]
fn after_a_timeout_a_reported_gap_is_acted_on_again() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    sent!(solo, [RC_RDMA_WRITE_ONLY]);
    let gap = Syndrome::nak(nonic_wire::NakCode::PsnSequenceError);
    solo.answer(0, gap);
    sent!(solo, [RC_RDMA_WRITE_ONLY]);
    solo.answer(0, gap);
    sent!(solo, []);
    solo.advance(ms(TIMEOUT_MS));
    sent!(solo, [RC_RDMA_WRITE_ONLY]);
    solo.answer(0, gap);
    sent!(solo, [RC_RDMA_WRITE_ONLY]);
}
