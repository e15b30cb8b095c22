//! ECN: a packet that was marked on its way is answered with a notification, and a notification shrinks the window.

use crate::support::{Pair, Setup, Wire};
use crate::{completed, expect_nothing, post, recv, sent};
use nonic_core::{SendOp, Status, WindowConfig};
use std::time::Duration;

const MTU: u32 = 1024;

/// A WRITE of one packet, on its way.
fn one_packet(pair: &mut Pair) -> Wire {
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 64);
    let mut packets = pair.a.transmit();
    assert_eq!(packets.len(), 1);
    packets.remove(0)
}

fn notifications(packets: &[Wire]) -> usize {
    packets
        .iter()
        .filter(|wire| wire.opcode() == nonic_wire::Opcode::CNP)
        .count()
}

#[test]
fn a_mark_is_answered_with_a_notification_of_sixteen_empty_bytes() {
    let mut pair = Pair::rc();
    let packet = one_packet(&mut pair);
    pair.b.receive_marked(&packet, true);
    let answers = sent!(pair.b, [CNP, RC_ACKNOWLEDGE]);
    let bth = answers[0].headers().bth;
    assert!(bth.becn && !bth.fecn);
    assert_eq!((bth.dest_qp, bth.psn.value()), (pair.a.qpn, 0));
    assert_eq!(answers[0].bytes.len(), 12 + 16 + 4);
    assert_eq!(answers[0].bytes[12..28], [0; 16]);
    let counters = pair.b.nic.counters();
    assert_eq!((counters.rx_marked, counters.cnps_sent), (1, 1));
}

#[test]
fn nothing_but_a_mark_provokes_one() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 50_000);
    let packets = pair.a.transmit();
    // Lost, doubled and out of order.
    for packet in packets.iter().rev().chain(&packets) {
        pair.b.receive(packet);
        assert_eq!(notifications(&pair.b.transmit()), 0);
    }
}

#[test]
fn there_is_one_in_fifty_microseconds_at_most() {
    let mut pair = Pair::rc();
    let mut count = 0;
    for _ in 0..100 {
        let packet = one_packet(&mut pair);
        pair.b.receive_marked(&packet, true);
        let answers = pair.b.transmit();
        count += notifications(&answers);
        pair.a.receive_all(&answers);
        pair.advance(Duration::from_micros(5));
    }
    assert_eq!(count, 10);
}

#[test]
fn an_unreliable_connection_tells_its_peer_too() {
    let mut pair = Pair::uc();
    recv!(pair.b, 1, 0, 64);
    post!(pair.a, 1, SendOp::Send, 0, 64);
    for packet in pair.a.transmit() {
        pair.b.receive_marked(&packet, true);
    }
    let answers = sent!(pair.b, [CNP]);
    pair.a.receive_all(&answers);
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.a.nic.counters().cnps_received, 1);
    expect_nothing!(pair.a);
}

/// A datagram queue pair is not connected to the sender of a datagram.
#[test]
fn datagrams_are_not_answered() {
    let mut pair = Pair::ud();
    recv!(pair.b, 1, 0, 128);
    let to = pair.to_b();
    pair.a.post_to(1, SendOp::Send, (0, 64), to).expect("posted");
    for packet in pair.a.transmit() {
        pair.b.receive_marked(&packet, true);
    }
    sent!(pair.b, []);
    assert_eq!(pair.b.nic.counters().rx_marked, 1);
}

#[test]
fn a_notification_halves_the_window_and_later_ones_of_the_round_do_not() {
    let mut pair = Pair::new(&Setup {
        window: WindowConfig {
            initial: 32 * MTU,
            max: 32 * MTU,
        },
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 200 * MTU);
    let packets = pair.a.transmit();
    assert_eq!(packets.len(), 32);
    pair.b.receive_marked(&packets[0], true);
    let notification = pair.b.transmit().remove(0);
    for _ in 0..3 {
        pair.a.receive(&notification);
    }
    assert_eq!(pair.a.nic.counters().cnps_received, 3);
    pair.b.receive_all(&packets[1..]);
    pair.a.receive_all(&pair.b.transmit());
    let under_way = pair.a.transmit().len();
    assert!(
        (15..=18).contains(&under_way),
        "{under_way} packets after half of 32"
    );
}

#[test]
fn a_notification_of_a_stranger_is_nobodys() {
    let mut pair = Pair::rc();
    let packet = one_packet(&mut pair);
    pair.b.receive_marked(&packet, true);
    let notification = pair.b.transmit().remove(0);
    let mut flow = notification.flow;
    flow.src = [10, 9, 9, 9].into();
    let forged = Wire::build(flow, notification.headers(), &[0; 16]);
    pair.a.receive(&forged);
    let counters = pair.a.nic.counters();
    assert_eq!((counters.cnps_received, counters.rx_unclaimed), (0, 1));
}
