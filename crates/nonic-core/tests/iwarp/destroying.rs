//! A queue pair that is destroyed leaves a stream behind, and perhaps a program that waits to hear that it is over.

use crate::iwarp::bench::{End, Pair};
use nonic_core::QpState;
use nonic_core::iwarp::{StreamEnd, StreamEvent};

/// Destroys the queue pair; what the owner of its stream is told.
fn destroyed(end: &mut End) -> Vec<StreamEvent> {
    end.told();
    assert!(end.nic.destroy_qp(end.now, end.qpn));
    std::iter::from_fn(|| end.nic.poll_stream_event()).collect()
}

#[test]
fn destroying_a_connected_queue_pair_ends_its_connection() {
    let mut pair = Pair::new();
    let qpn = pair.a.qpn;
    let expected = [
        StreamEvent::Disconnected(qpn, StreamEnd::Aborted),
        StreamEvent::Close(qpn),
    ];
    assert_eq!(destroyed(&mut pair.a), expected);
}

#[test]
fn destroying_a_queue_pair_that_waits_for_its_peer_to_end_ends_the_connection() {
    let mut pair = Pair::new();
    let qpn = pair.a.qpn;
    pair.a.go_to(QpState::Sqd);
    pair.a.act();
    let expected = [
        StreamEvent::Disconnected(qpn, StreamEnd::Aborted),
        StreamEvent::Close(qpn),
    ];
    assert_eq!(destroyed(&mut pair.a), expected);
}

#[test]
fn a_connection_ends_once() {
    let mut pair = Pair::new();
    pair.a.go_to(QpState::Error);
    assert_eq!(pair.a.end(), StreamEnd::Aborted);
    assert_eq!(destroyed(&mut pair.a), []);
}

#[test]
fn an_end_that_nobody_has_heard_of_outlives_the_queue_pair() {
    let mut pair = Pair::new();
    let (qpn, now) = (pair.a.qpn, pair.a.now);
    pair.a.told();
    let error = nonic_core::QpAttributes {
        state: Some(QpState::Error),
        ..nonic_core::QpAttributes::default()
    };
    pair.a
        .nic
        .modify_qp(now, qpn, &error)
        .expect("any state leads there");
    assert!(pair.a.nic.destroy_qp(pair.a.now, qpn));
    let told: Vec<StreamEvent> = std::iter::from_fn(|| pair.a.nic.poll_stream_event()).collect();
    let expected = [
        StreamEvent::Disconnected(qpn, StreamEnd::Aborted),
        StreamEvent::Close(qpn),
    ];
    assert_eq!(told, expected);
}

/// The deadline for its peer's first message was met long ago, and stands in the wheel all the same.
#[test]
fn a_nic_without_queue_pairs_has_nothing_to_wake_for() {
    let mut pair = Pair::new();
    let ends = [&mut pair.a, &mut pair.b];
    assert!(ends.iter().any(|end| end.nic.poll_timeout().is_some()));
    for end in ends {
        destroyed(end);
        assert_eq!(end.nic.poll_timeout(), None);
    }
}
