//! A queue pair in error: every request ends as flushed, in order, also those posted afterwards.

use crate::support::{Pair, Setup, Solo};
use crate::{completed, expect_nothing, post, received, recv, sent};
use nonic_core::{PostError, QpState, SendOp, Status};
use nonic_wire::{Opcode, Syndrome};

#[test]
fn moving_to_error_flushes_both_queues_in_order() {
    for setup in [Setup::rc(), Setup::uc()] {
        let mut pair = Pair::new(&setup);
        let remote = pair.b.remote(0);
        for wr_id in 1..=3 {
            post!(pair.a, wr_id, SendOp::Write(remote), 0, 8);
            recv!(pair.a, 10 + wr_id, 0, 8);
        }
        pair.a.go_to(QpState::Error);
        let flushed = |ids: [u64; 3]| ids.map(|id| (id, Status::Flushed));
        assert_eq!(
            crate::support::outcomes(&pair.a.completions()),
            flushed([1, 2, 3])
        );
        assert_eq!(
            crate::support::outcomes(&pair.a.receptions()),
            flushed([11, 12, 13])
        );
        sent!(pair.a, []);
    }
}

#[test]
fn requests_under_way_are_flushed_too() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, 8);
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    let requests = pair.a.transmit();
    pair.a.go_to(QpState::Error);
    pair.b.receive_all(&requests);
    pair.exchange();
    completed!(pair.a, [(1, Status::Flushed), (2, Status::Flushed)]);
    assert_eq!(pair.a.nic.usage().in_flight_bytes, 0);
}

#[test]
fn a_half_received_message_is_flushed_before_the_receives_behind_it() {
    for setup in [Setup::rc(), Setup::uc()] {
        let mut solo = Solo::new(&setup);
        recv!(solo, 1, 0, 4096);
        recv!(solo, 2, 0, 4096);
        let first = if setup.service == nonic_core::Service::Rc {
            Opcode::RC_SEND_FIRST
        } else {
            Opcode::UC_SEND_FIRST
        };
        solo.request(first, 0, &[1; 1024]);
        solo.go_to(QpState::Error);
        received!(solo, [(1, Status::Flushed), (2, Status::Flushed)]);
    }
}

#[test]
fn posts_in_error_complete_as_flushed() {
    for setup in [Setup::rc(), Setup::uc()] {
        let mut pair = Pair::new(&setup);
        pair.a.go_to(QpState::Error);
        post!(pair.a, 1, SendOp::Send, 0, 8);
        post!(pair.a, 2, SendOp::Send, 0, 8);
        recv!(pair.a, 3, 0, 8);
        completed!(pair.a, [(1, Status::Flushed), (2, Status::Flushed)]);
        received!(pair.a, [(3, Status::Flushed)]);
        sent!(pair.a, []);
    }
}

#[test]
fn unsignaled_requests_are_flushed_with_a_completion() {
    let mut pair = Pair::new(&Setup {
        signal_all: false,
        ..Setup::rc()
    });
    let element = pair.a.sge(0, 8);
    pair.a
        .post(
            1,
            SendOp::Send,
            nonic_core::Data::Sges(&[element]),
            nonic_core::SendFlags::empty(),
        )
        .expect("posted");
    pair.a.go_to(QpState::Error);
    completed!(pair.a, [(1, Status::Flushed)]);
}

#[test]
fn a_queue_pair_in_error_hears_nothing() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    solo.transmit();
    solo.go_to(QpState::Error);
    completed!(solo, [(1, Status::Flushed)]);
    solo.answer(0, Syndrome::ack());
    solo.request(Opcode::RC_SEND_ONLY, 0, b"data");
    expect_nothing!(solo);
    assert_eq!(solo.nic.counters().rx_unclaimed, 2);
}

#[test]
fn entering_error_twice_flushes_once() {
    let mut pair = Pair::rc();
    post!(pair.a, 1, SendOp::Send, 0, 8);
    pair.a.go_to(QpState::Error);
    pair.a.go_to(QpState::Error);
    completed!(pair.a, [(1, Status::Flushed)]);
}

#[test]
fn reset_forgets_without_completions() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    recv!(pair.a, 2, 0, 8);
    sent!(pair.a, [RC_RDMA_WRITE_ONLY]);
    pair.a.go_to(QpState::Reset);
    expect_nothing!(pair.a);
    let usage = pair.a.nic.usage();
    assert_eq!(
        (usage.send_requests, usage.in_flight_bytes, usage.peers),
        (0, 0, 0)
    );
    let posted = pair.a.try_recv(3, 0, 8);
    assert_eq!(posted, Err(PostError::State(QpState::Reset)));
}

#[test]
fn a_queue_pair_can_be_used_again_after_reset() {
    let mut pair = Pair::rc();
    pair.a.go_to(QpState::Error);
    pair.b.go_to(QpState::Error);
    for node in [&mut pair.a, &mut pair.b] {
        node.go_to(QpState::Reset);
        let (qpn, to_init) = (node.qpn, node.setup.to_init());
        node.modify(qpn, &to_init).expect("RESET to INIT");
    }
    let (a, b) = (pair.a.qpn, pair.b.qpn);
    pair.connect(a, b);
    recv!(pair.b, 2, 0, 4096);
    post!(pair.a, 1, SendOp::Send, 0, 4096);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    received!(pair.b, [(2, Status::Success)]);
}

#[test]
fn destroying_a_queue_pair_takes_its_completions_along() {
    let mut pair = Pair::rc();
    post!(pair.a, 1, SendOp::Send, 0, 8);
    pair.a.go_to(QpState::Error);
    pair.a.nic.publish();
    assert_eq!(pair.a.send_cq.len(), 1);
    // One more that is not published yet.
    recv!(pair.a, 2, 0, 8);
    let qpn = pair.a.qpn;
    assert!(pair.a.destroy_qp(qpn));
    pair.a.nic.publish();
    assert_eq!((pair.a.send_cq.len(), pair.a.recv_cq.len()), (0, 0));
    assert!(!pair.a.destroy_qp(qpn));
    assert_eq!(pair.a.nic.usage(), nonic_core::Usage::default());
}
