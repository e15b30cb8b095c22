//! SQD: the send queue finishes what it began, says so, and starts nothing new.

use crate::support::{Pair, Setup, Solo, ms, us};
use crate::{completed, post, received, recv, sent};
use nonic_core::{Data, Event, QpAttributes, QpState, SendFlags, SendOp, Status};
use nonic_wire::{Opcode, Syndrome};

#[test]
fn an_idle_queue_has_drained_at_once() {
    for setup in [Setup::rc(), Setup::uc(), Setup::ud()] {
        let mut pair = Pair::new(&setup);
        pair.a.go_to(QpState::Sqd);
        assert_eq!(pair.a.events(), [Event::SqDrained(pair.a.qpn)]);
    }
}

#[test]
fn what_is_under_way_is_finished_first() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 5000);
    let requests = pair.a.transmit();
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    pair.a.go_to(QpState::Sqd);
    assert_eq!(pair.a.events(), []);
    sent!(pair.a, []);
    pair.b.receive_all(&requests);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.a.events(), [Event::SqDrained(pair.a.qpn)]);
    // Back in RTS the rest goes out.
    pair.a.go_to(QpState::Rts);
    pair.exchange();
    completed!(pair.a, [(2, Status::Success)]);
}

#[test]
fn a_message_half_sent_is_sent_to_its_end() {
    let mut pair = Pair::new(&Setup {
        max_segments: 1,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 3 * 1024);
    let mut buffer = vec![0; nonic_core::MAX_BATCH_LEN];
    let now = pair.a.now;
    let batch = pair.a.nic.poll_transmit(now, 1, &mut buffer).expect("a packet");
    let first = crate::support::Wire {
        flow: batch.flow,
        identification: 0,
        bytes: buffer[..batch.len].to_vec(),
    };
    pair.a.go_to(QpState::Sqd);
    pair.b.receive(&first);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.a.events(), [Event::SqDrained(pair.a.qpn)]);
}

#[test]
fn posts_while_draining_wait() {
    for setup in [Setup::rc(), Setup::uc()] {
        let mut pair = Pair::new(&setup);
        pair.a.go_to(QpState::Sqd);
        let remote = pair.b.remote(0);
        post!(pair.a, 1, SendOp::Write(remote), 0, 8);
        sent!(pair.a, []);
        pair.a.go_to(QpState::Rts);
        pair.exchange();
        completed!(pair.a, [(1, Status::Success)]);
    }
}

#[test]
fn a_local_invalidation_waits_as_well() {
    let mut pair = Pair::rc();
    let key = pair.a.register(|_| {});
    pair.a.go_to(QpState::Sqd);
    pair.a
        .post(
            1,
            SendOp::LocalInvalidate(key.value()),
            Data::Sges(&[]),
            SendFlags::SIGNALED,
        )
        .expect("posted");
    sent!(pair.a, []);
    completed!(pair.a, []);
    pair.a.go_to(QpState::Rts);
    sent!(pair.a, []);
    completed!(pair.a, [(1, Status::Success)]);
}

#[test]
fn receiving_goes_on() {
    let mut solo = Solo::rc();
    solo.go_to(QpState::Sqd);
    recv!(solo, 1, 0, 8);
    solo.request(Opcode::RC_SEND_ONLY, 0, b"data");
    sent!(solo, [RC_ACKNOWLEDGE]);
    received!(solo, [(1, Status::Success)]);
}

#[test]
fn a_request_being_repeated_has_not_drained() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    solo.transmit();
    solo.go_to(QpState::Sqd);
    solo.answer(0, Syndrome::rnr(1));
    solo.transmit();
    assert_eq!(solo.events(), [], "waiting out a receiver that is not ready");
    solo.advance(us(30));
    sent!(solo, [RC_RDMA_WRITE_ONLY]);
    solo.advance(ms(70));
    assert_eq!(solo.events(), [], "timed out");
    sent!(solo, [RC_RDMA_WRITE_ONLY]);
    solo.answer(0, Syndrome::ack());
    completed!(solo, [(1, Status::Success)]);
    assert_eq!(solo.events(), [Event::SqDrained(solo.qpn)]);
}

#[test]
fn the_event_comes_once_per_move() {
    let mut pair = Pair::rc();
    pair.a.go_to(QpState::Sqd);
    let tune = QpAttributes {
        retry_count: Some(1),
        ..QpAttributes::default()
    };
    let qpn = pair.a.qpn;
    pair.a.modify(qpn, &tune).expect("SQD to SQD");
    assert_eq!(pair.a.events(), [Event::SqDrained(qpn)]);
    pair.a.go_to(QpState::Rts);
    pair.a.go_to(QpState::Sqd);
    assert_eq!(pair.a.events(), [Event::SqDrained(qpn)]);
}

#[test]
fn a_shorter_timeout_counts_from_the_next_request_on() {
    let mut solo = Solo::new(&Setup {
        timeout_exponent: 22,
        ..Setup::rc()
    });
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    solo.transmit();
    solo.answer(0, Syndrome::ack());
    solo.go_to(QpState::Sqd);
    let quick = QpAttributes {
        timeout: nonic_core::AckTimeout::from_exponent(8),
        ..QpAttributes::default()
    };
    let qpn = solo.qpn;
    solo.modify(qpn, &quick).expect("SQD to SQD");
    solo.go_to(QpState::Rts);
    post!(solo, 2, SendOp::Write(remote), 0, 8);
    sent!(solo, [RC_RDMA_WRITE_ONLY]);
    solo.advance(ms(2));
    sent!(solo, [RC_RDMA_WRITE_ONLY]);
}
