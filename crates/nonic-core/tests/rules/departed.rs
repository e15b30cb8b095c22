//! What a peer hears when it sends to a queue pair that was destroyed a moment ago.

use crate::support::{Node, Pair, Solo, Wire};
use crate::{completed, expect_nothing, post, recv, sent};
use nonic_core::record::QpEvent;
use nonic_core::{Event, QpState, SendOp, Status};
use nonic_wire::{Aeth, Bth, Headers, NakCode, Opcode, Service, Syndrome};
use std::time::Duration;

fn destroy(node: &mut Node) {
    let qpn = node.qpn;
    assert!(node.destroy_qp(qpn));
}

/// The same, and the peer is told.
fn leave(node: &mut Node) {
    let qpn = node.qpn;
    destroy(node);
    assert!(node.nic.departed_peer(qpn).is_some());
    node.nic.bid_farewell(qpn);
}

/// A pair of which one side has left, after it had executed a request, and the other was told.
fn parted() -> Pair {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    leave(&mut pair.b);
    pair.exchange();
    pair
}

/// It is the reason that explanations give.
fn knows_that_the_peer_is_gone(node: &Node) -> bool {
    let mut recorded = node.nic.recorded(node.qpn);
    recorded.any(|recorded| recorded.event == QpEvent::PeerGone)
}

/// No retry is used up: nothing waits for a timeout. But programs that leave requests under way have some time to leave too.
#[test]
fn what_it_has_not_executed_ends_soon() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    destroy(&mut pair.b);
    post!(pair.a, 2, SendOp::Write(remote), 0, 0);
    post!(pair.a, 3, SendOp::Send, 0, 8);
    pair.exchange();
    pair.advance(GRACE / 2);
    expect_nothing!(pair.a);
    pair.advance(GRACE / 2);
    completed!(pair.a, [(2, Status::RetryExceeded), (3, Status::Flushed)]);
    assert_eq!(pair.a.nic.counters().timeouts, 0);
    assert!(knows_that_the_peer_is_gone(&pair.a));
}

/// The device may be closed by then, so that it can answer nothing.
#[test]
fn what_is_posted_after_a_farewell_ends_soon() {
    let mut pair = parted();
    completed!(pair.a, []);
    post!(pair.a, 2, SendOp::Send, 0, 8);
    expect_nothing!(pair.a);
    pair.advance(GRACE);
    completed!(pair.a, [(2, Status::RetryExceeded)]);
    assert!(knows_that_the_peer_is_gone(&pair.a));
}

#[test]
fn what_a_drained_queue_has_not_begun_ends_when_the_program_lets_it_begin() {
    let mut pair = parted();
    post!(pair.a, 2, SendOp::Send, 0, 8);
    expect_nothing!(pair.a);
    pair.a.go_to(QpState::Sqd);
    assert_eq!(pair.a.events(), [Event::SqDrained(pair.a.qpn)]);
    pair.advance(GRACE);
    expect_nothing!(pair.a);
    assert_eq!(pair.a.state(), QpState::Sqd);
    pair.a.go_to(QpState::Rts);
    expect_nothing!(pair.a);
    pair.advance(GRACE);
    completed!(pair.a, [(2, Status::RetryExceeded)]);
}

/// A farewell says how far the peer came, as every acknowledgement does.
#[test]
fn what_was_executed_before_a_farewell_completes() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.b.receive_all(&pair.a.transmit());
    // The acknowledgement is lost.
    pair.b.transmit();
    leave(&mut pair.b);
    let farewell = pair.b.transmit();
    assert_eq!(farewell.len(), 1);
    pair.a.receive_all(&farewell);
    completed!(pair.a, [(1, Status::Success)]);
}

/// The answer to a READ may be on its way, so it is waited for, but not for long.
#[test]
fn a_read_that_a_farewell_overtakes_is_answered_or_fails() {
    for answered in [true, false] {
        let mut pair = Pair::rc();
        post!(pair.a, 1, SendOp::Read(pair.b.remote(0)), 0, 8);
        pair.b.receive_all(&pair.a.transmit());
        let answer = pair.b.transmit();
        leave(&mut pair.b);
        pair.a.receive_all(&pair.b.transmit());
        post!(pair.a, 2, SendOp::Send, 0, 8);
        expect_nothing!(pair.a);
        if answered {
            pair.a.receive_all(&answer);
            completed!(pair.a, [(1, Status::Success)]);
            sent!(pair.a, []);
            pair.advance(GRACE);
            completed!(pair.a, [(2, Status::RetryExceeded)]);
        } else {
            pair.advance(GRACE);
            completed!(pair.a, [(1, Status::RetryExceeded), (2, Status::Flushed)]);
        }
    }
}

/// A forger would have to guess the sequence number and how many messages there were.
#[test]
fn a_farewell_that_does_not_know_how_far_the_connection_is_means_nothing() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    for number in 1..=3 {
        post!(pair.a, number, SendOp::Write(remote), 0, 8);
        pair.exchange();
    }
    completed!(
        pair.a,
        [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
    );
    leave(&mut pair.b);
    let psn = pair.b.transmit()[0].psn();
    for (psn, msn) in [(psn.next(), 3), (psn.prev(), 3), (psn, 2), (psn, 4)] {
        let mut headers = Headers::new(Bth::new(Opcode::RC_ACKNOWLEDGE, pair.a.qpn, psn));
        headers.bth.resv7 = Bth::SELECTIVE;
        headers.aeth = Aeth {
            syndrome: Syndrome::nak(NakCode::RemoteOperationalError),
            msn,
        };
        let flow = pair.b.flow_to(pair.a.ip);
        pair.a.receive_all(&[Wire::build(flow, headers, b"")]);
    }
    post!(pair.a, 4, SendOp::Send, 0, 8);
    sent!(pair.a, [RC_SEND_ONLY]);
    completed!(pair.a, []);
}

/// Its acknowledgement was lost, or did not leave before the queue pair was destroyed.
#[test]
fn what_it_has_executed_is_acknowledged() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    pair.a.fill(0, b"executed");
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.b.receive_all(&pair.a.transmit());
    assert_eq!(pair.b.bytes(0, 8), b"executed");
    destroy(&mut pair.b);
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    repeat(&mut pair);
    completed!(pair.a, [(1, Status::Success), (2, Status::RetryExceeded)]);
    assert_eq!(pair.a.nic.counters().timeouts, 0);
}

/// What will not be answered fails after this time.
const GRACE: Duration = Duration::from_millis(500);

/// Lets the time pass after which no request waits any more.
fn repeat(pair: &mut Pair) {
    for _ in 0..260 {
        pair.exchange();
        pair.advance(Duration::from_millis(2));
    }
    pair.exchange();
}

#[test]
fn a_read_whose_answer_was_lost_ends() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.exchange();
    post!(pair.a, 2, SendOp::Read(remote), 0, 3000);
    pair.b.receive_all(&pair.a.transmit());
    destroy(&mut pair.b);
    repeat(&mut pair);
    completed!(pair.a, [(1, Status::Success), (2, Status::RetryExceeded)]);
}

/// Nothing is claimed of what lies between what was executed and what comes.
#[test]
fn a_later_packet_does_not_acknowledge_an_earlier_one() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    for wr_id in 1..=3 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 8);
    }
    let requests = pair.a.transmit();
    pair.b.receive(&requests[0]);
    destroy(&mut pair.b);
    pair.b.receive(&requests[2]);
    pair.exchange();
    pair.advance(GRACE);
    completed!(
        pair.a,
        [
            (1, Status::Success),
            (2, Status::RetryExceeded),
            (3, Status::Flushed)
        ]
    );
}

/// What the peer of a destroyed queue pair would send, with a last touch.
fn after_the_end(solo: &mut Solo, index: u32, touch: impl FnOnce(&mut Headers)) {
    solo.request_with(Opcode::RC_SEND_ONLY, index, b"late", |headers| {
        headers.bth.resv7 = Bth::SELECTIVE;
        touch(headers);
    });
}

#[test]
fn a_peer_by_the_book_hears_nothing() {
    let mut solo = Solo::rc();
    destroy(&mut solo);
    after_the_end(&mut solo, 0, |headers| headers.bth.resv7 = 0);
    expect_nothing!(solo);
}

#[test]
fn others_hear_nothing() {
    let mut solo = Solo::rc();
    destroy(&mut solo);
    // Another address.
    let mut flow = solo.flow();
    flow.src = "10.0.0.66".parse().expect("an address");
    let mut headers = solo.headers(Opcode::RC_SEND_ONLY, 0);
    headers.bth.resv7 = Bth::SELECTIVE;
    let wire = Wire::build(flow, headers, b"late");
    solo.receive(&wire);
    // Another service, another partition, something that is no request, a broken checksum.
    for opcode in [
        Opcode::UC_SEND_ONLY,
        Opcode::RC_ACKNOWLEDGE,
        Opcode::RC_RDMA_READ_RESPONSE_ONLY,
        Opcode::RC_ATOMIC_ACKNOWLEDGE,
    ] {
        solo.request_with(opcode, 0, &[], |headers| headers.bth.resv7 = Bth::SELECTIVE);
    }
    after_the_end(&mut solo, 0, |headers| headers.bth.pkey = 0x7ffe);
    let mut broken = Wire::build(solo.flow(), headers, b"late");
    *broken.bytes.last_mut().expect("it has bytes") ^= 1;
    solo.receive(&broken);
    expect_nothing!(solo);
    // And then the peer.
    after_the_end(&mut solo, 0, |_| {});
    sent!(solo, [RC_ACKNOWLEDGE]);
}

#[test]
fn a_flood_is_answered_once_in_a_millisecond() {
    let mut solo = Solo::rc();
    destroy(&mut solo);
    let mut answers = 0;
    for index in 0..10_000 {
        after_the_end(&mut solo, index, |_| {});
        answers += solo.transmit().len();
        solo.advance(Duration::from_micros(1));
    }
    assert!((10..=11).contains(&answers), "{answers}");
}

#[test]
fn a_peer_of_another_kind_is_not_bidden_farewell() {
    let mut solo = Solo::rc();
    recv!(solo, 1, 0, 8);
    solo.request(Opcode::RC_SEND_ONLY, 0, b"late");
    sent!(solo, [RC_ACKNOWLEDGE]);
    let qpn = solo.qpn;
    destroy(&mut solo);
    assert_eq!(solo.nic.departed_peer(qpn), None);
    solo.nic.bid_farewell(qpn);
    assert_eq!(solo.transmit(), []);
}

#[test]
fn a_queue_pair_that_was_never_connected_leaves_nothing() {
    let mut solo = Solo::rc();
    let qpn = solo.add_qp();
    solo.destroy_qp(qpn);
    solo.request_with(Opcode::RC_SEND_ONLY, 0, b"late", |headers| {
        (headers.bth.resv7, headers.bth.dest_qp) = (Bth::SELECTIVE, qpn);
    });
    expect_nothing!(solo);
}

/// How many numbers rest at a time is bounded too: `numbers.rs`.
#[test]
fn what_is_known_of_them_is_forgotten() {
    let mut solo = Solo::rc();
    let (first, other) = (solo.qpn, solo.add_qp());
    destroy(&mut solo);
    solo.advance(Duration::from_secs(5));
    solo.destroy_qp(other);
    solo.request_with(Opcode::RC_SEND_ONLY, 0, b"late", |headers| {
        (headers.bth.resv7, headers.bth.dest_qp) = (Bth::SELECTIVE, first);
    });
    expect_nothing!(solo);
}

#[test]
fn a_refusal_is_not_taken_for_the_end_of_the_peer() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    solo.transmit();
    solo.answer(0, Syndrome::nak(nonic_wire::NakCode::RemoteOperationalError));
    completed!(solo, [(1, Status::RemoteOperation)]);
    assert_eq!(solo.setup.service, Service::Rc);
}
