//! Snapshots of a NIC for tools that inspect a running process.

use crate::support::{Fate, Pair, Setup, SharedHost, us};
use crate::{completed, post, recv};
use nonic_core::{QpState, Qpn, QueuePairView, SendOp, Status};
use nonic_wire::Service;

/// All queue pairs of a NIC, so many slots at a time.
fn views(nic: &nonic_core::Nic, slots: usize) -> Vec<QueuePairView> {
    let mut views = Vec::new();
    let mut from = Some(0);
    while let Some(slot) = from {
        let before = views.len();
        from = nic.view_queue_pairs(slot, slots, &mut |view| views.push(view));
        assert!(
            views.len() - before <= slots,
            "a portion is no larger than was asked for"
        );
    }
    views
}

fn view_of(nic: &nonic_core::Nic, qpn: Qpn) -> QueuePairView {
    let mut found = views(nic, 64).into_iter().filter(|view| view.qpn == qpn);
    found.next().expect("it is there")
}

#[test]
fn a_connection_shows_its_peer_its_numbers_and_what_went_over_it() {
    let mut pair = Pair::rc();
    recv!(pair.b, 2, 0, 64);
    let before = view_of(&pair.a.nic, pair.a.qpn);
    post!(pair.a, 1, SendOp::Send, 0, 64);
    assert_eq!(view_of(&pair.a.nic, pair.a.qpn).send_requests, 1);
    assert_eq!(view_of(&pair.b.nic, pair.b.qpn).receives, 1);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    let (a, b) = (view_of(&pair.a.nic, pair.a.qpn), view_of(&pair.b.nic, pair.b.qpn));
    assert_eq!((a.service, a.state, a.iwarp), (Service::Rc, QpState::Rts, false));
    let peer = a.peer.expect("it is connected");
    assert_eq!(
        (peer.local, peer.remote, peer.qpn),
        (pair.a.ip, pair.b.ip, pair.b.qpn)
    );
    assert_eq!(a.sequence.next, before.sequence.next.map(|psn| psn.next()));
    assert_eq!(a.sequence.unacknowledged, a.sequence.next);
    assert_eq!(b.sequence.expected, a.sequence.next);
    assert_eq!((a.send_requests, b.receives), (0, 0));
    assert_eq!((a.traffic.tx_packets, b.traffic.rx_packets), (1, 1));
    assert_eq!((a.traffic.rx_packets, b.traffic.tx_packets), (1, 1), "the answer");
    assert_eq!(a.traffic.tx_bytes, b.traffic.rx_bytes);
    assert_eq!(a.traffic.tx_bytes, pair.a.nic.counters().tx_bytes);
    assert_eq!(a.traffic.rx_bytes, pair.a.nic.counters().rx_bytes);
    assert!(a.window_bytes.is_some_and(|window| window > 0));
}

#[test]
fn what_went_wrong_is_seen_at_both_ends() {
    let mut pair = Pair::rc();
    post!(pair.a, 1, SendOp::Send, 0, 64);
    pair.exchange();
    let (a, b) = (view_of(&pair.a.nic, pair.a.qpn), view_of(&pair.b.nic, pair.b.qpn));
    assert_eq!(a.troubles.rnr_naks_received, 1);
    assert_eq!(b.troubles.rnr_naks_sent, 1);
    recv!(pair.b, 2, 0, 64);
    pair.advance(us(1_000));
    pair.exchange();
    let a = view_of(&pair.a.nic, pair.a.qpn);
    assert_eq!(a.troubles.retransmitted_packets, 1);
    let counters = pair.a.nic.counters();
    assert_eq!(counters.retransmitted_packets, 1);
}

#[test]
fn an_answer_that_does_not_come_is_a_timeout() {
    let mut pair = Pair::rc();
    post!(pair.a, 1, SendOp::Write(pair.b.remote(0)), 0, 64);
    let patience = pair.a.setup.timeout().duration().expect("it has one");
    pair.exchange_with(|_, _| Fate::Drop);
    assert!(view_of(&pair.a.nic, pair.a.qpn).in_flight_bytes > 0);
    let retries = view_of(&pair.a.nic, pair.a.qpn).retries_left;
    pair.a.advance(patience + us(1_000));
    let view = view_of(&pair.a.nic, pair.a.qpn);
    assert_eq!(view.troubles.timeouts, 1);
    assert_eq!(view.retries_left, retries - 1);
}

#[test]
fn portions_show_every_queue_pair_once_whatever_has_been_destroyed() {
    let mut pair = Pair::rc();
    let made: Vec<Qpn> = (0..100).map(|_| pair.a.add_qp()).collect();
    for qpn in made.iter().step_by(2) {
        assert!(pair.a.destroy_qp(*qpn));
    }
    let mut expected: Vec<u32> = made
        .iter()
        .skip(1)
        .step_by(2)
        .chain([&pair.a.qpn])
        .map(|qpn| qpn.value())
        .collect();
    expected.sort_unstable();
    for slots in [1, 7, 64, 1000] {
        let mut seen: Vec<u32> = views(&pair.a.nic, slots)
            .iter()
            .map(|view| view.qpn.value())
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, expected, "{slots} slots at a time");
    }
    assert_eq!(pair.a.nic.queue_pair_count(), expected.len());
}

#[test]
fn one_that_was_never_connected_has_neither_peer_nor_numbers() {
    let mut pair = Pair::new(&Setup::rc());
    let qpn = pair.a.add_qp();
    let view = view_of(&pair.a.nic, qpn);
    assert_eq!(
        (view.peer, view.sequence),
        (None, nonic_core::SequenceView::default())
    );
}

#[test]
fn what_is_moved_without_packets_is_told_apart() {
    let (mut pair, _host) = SharedHost::pair(&Setup::rc());
    post!(pair.a, 1, SendOp::Write(pair.b.remote(0)), 0, 4096);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    let view = view_of(&pair.a.nic, pair.a.qpn);
    assert!(view.direct);
    assert_eq!((view.traffic.direct_bytes, view.traffic.tx_bytes), (4096, 0));
    assert_eq!(pair.a.nic.counters().direct_bytes, 4096);
}
