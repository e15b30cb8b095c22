//! SRQ: one queue of receives for several queue pairs.

use crate::support::{Pair, Setup, Solo};
use crate::{completed, expect_nothing, post, received, recv};
use nonic_core::{CreateError, Event, PostError, QpState, ReceiveQueue, RecvRefused, SendOp, SrqId, Status};
use std::sync::Arc;

fn shared() -> Setup {
    Setup {
        srq: true,
        ..Setup::rc()
    }
}

#[test]
fn several_queue_pairs_draw_from_one_queue_in_order() {
    let mut pair = Pair::new(&shared());
    let (a1, b1) = (pair.a.qpn, pair.b.qpn);
    let (a2, b2) = pair.connect_more();
    for wr_id in 1..=3 {
        recv!(pair.b, wr_id, 0, 64);
    }
    for (wr_id, qpn) in [(1, a1), (2, a2), (3, a1)] {
        pair.a.qpn = qpn;
        post!(pair.a, wr_id, SendOp::Send, 0, 8);
        pair.exchange();
    }
    let got = received!(
        pair.b,
        [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
    );
    let qpns: Vec<_> = got.iter().map(|completion| completion.qpn).collect();
    assert_eq!(qpns, [b1, b2, b1]);
}

#[test]
fn an_empty_queue_is_receiver_not_ready() {
    let mut pair = Pair::new(&shared());
    post!(pair.a, 1, SendOp::Send, 0, 8);
    pair.exchange();
    completed!(pair.a, []);
    assert_eq!(pair.b.nic.counters().rnr_naks_sent, 1);
}

#[test]
fn the_limit_event_comes_once_when_fewer_are_left() {
    let mut pair = Pair::new(&shared());
    let srq = pair.b.srq.clone().expect("the setup has one");
    for wr_id in 1..=5 {
        recv!(pair.b, wr_id, 0, 64);
    }
    assert_eq!(srq.set_limit(3), 0);
    let mut seen = Vec::new();
    for wr_id in 1..=5 {
        post!(pair.a, wr_id, SendOp::Send, 0, 8);
        pair.exchange();
        seen.push(pair.b.events());
    }
    // Five, four and three left are no fewer than three; two is.
    let limit = vec![Event::SrqLimit(SrqId(1))];
    assert_eq!(seen, [vec![], vec![], limit, vec![], vec![]]);
    assert_eq!(srq.limit(), 0, "disarmed");
}

#[test]
fn an_error_leaves_the_shared_receives_and_says_so() {
    let mut pair = Pair::new(&shared());
    recv!(pair.b, 1, 0, 64);
    pair.b.go_to(QpState::Error);
    received!(pair.b, []);
    assert_eq!(pair.b.events(), [Event::LastWqeReached(pair.b.qpn)]);
    let srq = pair.b.srq.clone().expect("the setup has one");
    assert_eq!(srq.len(), 1);
}

#[test]
fn a_half_filled_receive_is_flushed_to_the_queue_pair_that_took_it() {
    let mut solo = Solo::new(&shared());
    recv!(solo, 1, 0, 4096);
    recv!(solo, 2, 0, 4096);
    solo.request(nonic_wire::Opcode::RC_SEND_FIRST, 0, &[1; 1024]);
    solo.go_to(QpState::Error);
    received!(solo, [(1, Status::Flushed)]);
    assert_eq!(solo.srq.as_ref().map(|srq| srq.len()), Some(1));
}

#[test]
fn posting_goes_to_the_shared_queue_only() {
    let mut pair = Pair::new(&shared());
    let qpn = pair.a.qpn;
    let request = nonic_core::RecvRequest { wr_id: 1, sges: &[] };
    assert_eq!(
        pair.a.nic.post_recv(qpn, &request),
        Err(PostError::SharedReceiveQueue)
    );
}

#[test]
fn the_shared_queue_has_its_own_limits() {
    let pair = Pair::new(&shared());
    let srq = ReceiveQueue::shared(SrqId(5), pair.a.pd, 2, 1);
    let element = pair.a.sge(0, 8);
    let post = |elements: &[nonic_core::Sge]| {
        let request = nonic_core::RecvRequest {
            wr_id: 1,
            sges: elements,
        };
        srq.post(&request)
    };
    assert_eq!(post(&[element, element]), Err(RecvRefused::TooManySges));
    assert_eq!(post(&[element]), Ok(()));
    assert_eq!(post(&[element]), Ok(()));
    assert_eq!(post(&[element]), Err(RecvRefused::Full));
    assert!(!srq.resize(1));
    assert!(srq.resize(3));
    assert_eq!(post(&[element]), Ok(()));
    assert_eq!((srq.len(), srq.capacity(), srq.max_sge()), (3, 3, 1));
}

#[test]
fn a_queue_of_another_domain_is_refused() {
    let mut pair = Pair::rc();
    let other = pair.a.keys().alloc_pd();
    let mut init = pair.a.qp_init();
    init.srq = Some(Arc::new(ReceiveQueue::shared(SrqId(5), other, 2, 1)));
    assert_eq!(pair.a.nic.create_qp(init), Err(CreateError::Domain));
}

#[test]
fn datagrams_and_unreliable_connections_share_too() {
    let mut pair = Pair::new(&Setup {
        srq: true,
        ..Setup::uc()
    });
    post!(pair.a, 1, SendOp::Send, 0, 8);
    pair.exchange();
    expect_nothing!(pair.b);
    recv!(pair.b, 2, 0, 64);
    post!(pair.a, 3, SendOp::Send, 0, 8);
    pair.exchange();
    received!(pair.b, [(2, Status::Success)]);
}
