//! Fences, local invalidation, and how many READs and atomics may be under way.

use crate::support::{Pair, Setup, Solo};
use crate::{completed, post, received, recv, sent};
use nonic_core::{Data, Event, KeyError, QpState, RemoteAddress, SendFlags, SendOp, Status};
use nonic_wire::{Opcode, Syndrome};

#[test]
fn a_fenced_request_waits_for_the_reads_before_it() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, 8);
    let element = pair.a.sge(0, 8);
    pair.a
        .post(2, SendOp::Write(remote), Data::Sges(&[element]), SendFlags::FENCE)
        .expect("posted");
    post!(pair.a, 3, SendOp::Write(remote), 0, 8);
    let request = sent!(pair.a, [RC_RDMA_READ_REQUEST]);
    pair.b.receive_all(&request);
    let answer = sent!(pair.b, [RC_RDMA_READ_RESPONSE_ONLY]);
    pair.a.receive_all(&answer);
    sent!(pair.a, [RC_RDMA_WRITE_ONLY, RC_RDMA_WRITE_ONLY]);
}

#[test]
fn without_a_fence_requests_do_not_wait() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, 8);
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    sent!(pair.a, [RC_RDMA_READ_REQUEST, RC_RDMA_WRITE_ONLY]);
}

#[test]
fn a_fence_does_not_wait_for_writes() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    let element = pair.a.sge(0, 8);
    pair.a
        .post(2, SendOp::Write(remote), Data::Sges(&[element]), SendFlags::FENCE)
        .expect("posted");
    sent!(pair.a, [RC_RDMA_WRITE_ONLY, RC_RDMA_WRITE_ONLY]);
}

#[test]
fn no_more_fetches_than_max_rd_atomic_are_under_way() {
    for limit in [1, 2, 3] {
        let mut solo = Solo::new(&Setup {
            max_rd_atomic: limit,
            ..Setup::rc()
        });
        let remote = solo.remote(0);
        for wr_id in 0..6 {
            if wr_id % 2 == 0 {
                post!(solo, wr_id, SendOp::Read(remote), 0, 8);
            } else {
                post!(solo, wr_id, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
            }
        }
        assert_eq!(solo.transmit().len(), usize::from(limit));
        solo.respond(Opcode::RC_RDMA_READ_RESPONSE_ONLY, 0, Syndrome::ack(), &[0; 8]);
        assert_eq!(solo.transmit().len(), 1);
        solo.respond(Opcode::RC_ATOMIC_ACKNOWLEDGE, 1, Syndrome::ack(), &[]);
        assert_eq!(solo.transmit().len(), 1);
        completed!(solo, [(0, Status::Success), (1, Status::Success)]);
    }
}

#[test]
fn a_responder_answers_as_many_fetches_as_agreed() {
    let mut pair = Pair::new(&Setup {
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    for wr_id in 0..20 {
        post!(pair.a, wr_id, SendOp::Read(remote), 0, 5000);
    }
    pair.exchange();
    assert_eq!(pair.a.completions().len(), 20);
    assert_eq!(pair.b.state(), QpState::Rts);
}

#[test]
fn local_invalidation_runs_in_its_turn() {
    let mut pair = Pair::rc();
    let key = pair.a.register(|_| {});
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.a
        .post(
            2,
            SendOp::LocalInvalidate(key.value()),
            Data::Sges(&[]),
            SendFlags::SIGNALED,
        )
        .expect("posted");
    post!(pair.a, 3, SendOp::Write(remote), 0, 8);
    let first = sent!(pair.a, [RC_RDMA_WRITE_ONLY]);
    assert!(pair.a.keys().find(key.value(), pair.a.pd, pair.a.qpn).is_ok());
    pair.b.receive_all(&first);
    pair.exchange();
    completed!(
        pair.a,
        [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
    );
    let found = pair.a.keys().find(key.value(), pair.a.pd, pair.a.qpn);
    assert_eq!(found.err(), Some(KeyError::Unknown));
}

#[test]
fn local_invalidation_of_a_key_that_cannot_be_fails_the_queue_pair() {
    let mut pair = Pair::rc();
    let value = pair.a.key.value();
    pair.a
        .post(
            1,
            SendOp::LocalInvalidate(value),
            Data::Sges(&[]),
            SendFlags::SIGNALED,
        )
        .expect("posted");
    post!(pair.a, 2, SendOp::Send, 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::LocalQpOperation), (2, Status::Flushed)]);
    assert_eq!(pair.a.state(), QpState::Error);
}

#[test]
fn send_with_invalidate_revokes_the_peers_key() {
    for length in [0, 100, 5000] {
        let mut pair = Pair::rc();
        let key = pair.b.register(|_| {});
        recv!(pair.b, 9, 0, 8192);
        post!(pair.a, 1, SendOp::SendWithInvalidate(key.value()), 0, length);
        pair.exchange();
        completed!(pair.a, [(1, Status::Success)]);
        let got = received!(pair.b, [(9, Status::Success)]);
        assert_eq!(got[0].invalidated_rkey, Some(key.value()));
        assert_eq!((got[0].byte_len, got[0].immediate), (length, None));
        let remote = RemoteAddress {
            rkey: key.value(),
            ..pair.b.remote(0)
        };
        post!(pair.a, 2, SendOp::Write(remote), 0, 8);
        pair.exchange();
        completed!(pair.a, [(2, Status::RemoteAccess)]);
    }
}

#[test]
fn send_with_invalidate_of_a_key_that_cannot_be_is_an_access_error() {
    let mut pair = Pair::rc();
    recv!(pair.b, 9, 0, 8192);
    let value = pair.b.key.value();
    post!(pair.a, 1, SendOp::SendWithInvalidate(value), 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteAccess)]);
    received!(pair.b, [(9, Status::LocalQpOperation)]);
    assert!(pair.b.keys().find(value, pair.b.pd, pair.b.qpn).is_ok());
}

#[test]
fn memory_revoked_in_the_middle_of_a_write_stops_it() {
    let mut pair = Pair::rc();
    pair.a.fill(0, &[7; 3072]);
    let key = pair.b.register(|_| {});
    let remote = RemoteAddress {
        rkey: key.value(),
        ..pair.b.remote(0)
    };
    post!(pair.a, 1, SendOp::Write(remote), 0, 3072);
    let packets = pair.a.transmit();
    pair.b.receive(&packets[0]);
    pair.b.keys().revoke(key.value());
    pair.b.receive_all(&packets[1..]);
    assert_eq!(pair.b.bytes(0, 1024), [7; 1024]);
    assert_eq!(pair.b.bytes(1024, 2048), [0; 2048]);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteAccess)]);
    assert_eq!(pair.b.events(), [Event::QpAccessError(pair.b.qpn)]);
}

#[test]
fn memory_revoked_in_the_middle_of_a_read_stops_it() {
    let mut pair = Pair::new(&Setup {
        max_segments: 1,
        ..Setup::rc()
    });
    let key = pair.b.register(|_| {});
    let remote = RemoteAddress {
        rkey: key.value(),
        ..pair.b.remote(0)
    };
    post!(pair.a, 1, SendOp::Read(remote), 0, 4096);
    // What would have been answered behind it is not answered any more.
    post!(pair.a, 2, SendOp::Read(pair.b.remote(0)), 0, 8);
    let request = pair.a.transmit();
    pair.b.receive_all(&request);
    let mut buffer = vec![0; nonic_core::MAX_BATCH_LEN];
    let first = pair.b.nic.poll_transmit(pair.b.now, 1, &mut buffer);
    assert!(first.is_some());
    pair.b.keys().revoke(key.value());
    let answers = sent!(pair.b, [RC_ACKNOWLEDGE]);
    assert_eq!(
        answers[0].syndrome(),
        Syndrome::nak(nonic_wire::NakCode::RemoteAccessError)
    );
    assert_eq!(answers[0].psn(), request[0].psn().add(1));
    assert_eq!(pair.b.state(), QpState::Error);
    assert_eq!(pair.b.events(), [Event::QpAccessError(pair.b.qpn)]);
}

#[test]
fn memory_revoked_before_a_send_leaves_is_a_protection_error() {
    let mut pair = Pair::rc();
    let key = pair.a.register(|_| {});
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    let element = nonic_core::Sge {
        lkey: key.value(),
        ..pair.a.sge(0, 8)
    };
    pair.a
        .post(2, SendOp::Send, Data::Sges(&[element]), SendFlags::SIGNALED)
        .expect("posted");
    post!(pair.a, 3, SendOp::Write(remote), 0, 8);
    pair.a.keys().revoke(key.value());
    // The request before it still completes first.
    let packets = sent!(pair.a, [RC_RDMA_WRITE_ONLY]);
    completed!(pair.a, []);
    pair.b.receive_all(&packets);
    pair.exchange();
    completed!(
        pair.a,
        [
            (1, Status::Success),
            (2, Status::LocalProtection),
            (3, Status::Flushed)
        ]
    );
}
