//! UC and UD between two processes of one host: records in a lane follow the rules that packets follow, and may be lost.

use crate::support::{Pair, Setup, ms, pattern};
use crate::{completed, post, received, recv, sent};
use nonic_core::{Data, Destination, QpState, RecordAnswer, SendFlags, SendOp, Service, Status};

/// Length of the network header in front of a received datagram.
const GRH: usize = 40;

fn uc() -> Setup {
    Setup {
        lanes: true,
        ..Setup::uc()
    }
}

fn ud() -> Setup {
    Setup {
        lanes: true,
        ..Setup::ud()
    }
}

fn post_to_b(pair: &mut Pair, wr_id: u64, length: u32) {
    let to = pair.to_b();
    pair.a
        .post_to(wr_id, SendOp::SendWithImmediate(9), (0, length), to)
        .expect("posted");
}

fn deliver(pair: &mut Pair) -> Option<RecordAnswer> {
    let host = pair.host();
    host.deliver(&pair.a, &mut pair.b)
}

#[test]
fn datagrams_of_every_size_go_without_packets() {
    for ipv6 in [false, true] {
        let mut there = Pair::new(&Setup { ipv6, ..ud() });
        let mut wire = Pair::new(&Setup { ipv6, ..Setup::ud() });
        for size in [0, 1, 3, 64, 1024, 4096] {
            for pair in [&mut there, &mut wire] {
                pair.a.fill(0, &pattern(size as u8, size as usize));
                pair.b.fill(0, &[0xee; GRH]);
                recv!(pair.b, 2, 0, 8192);
                post_to_b(pair, 1, size);
                if pair.lanes.is_some() {
                    assert_eq!(
                        pair.host().waiting(&pair.a),
                        1,
                        "it was written while it was posted"
                    );
                    assert_eq!(pair.a.nic.ready_queue_pairs(), 0);
                    sent!(pair.a, []);
                }
                pair.exchange();
                completed!(pair.a, [(1, Status::Success)]);
            }
            let got = received!(there.b, [(2, Status::Success)]);
            let wanted = received!(wire.b, [(2, Status::Success)]);
            assert_eq!(got[0].byte_len, wanted[0].byte_len);
            assert_eq!(
                (got[0].immediate, got[0].grh, got[0].ipv4, got[0].src_qp),
                (Some(9), true, !ipv6, there.a.qpn)
            );
            let length = GRH + size as usize;
            assert_eq!(
                there.b.bytes(0, length),
                wire.b.bytes(0, length),
                "network header and payload are what a packet would have brought"
            );
        }
    }
}

#[test]
fn a_datagram_is_complete_when_it_is_written_and_its_answer_tells_nothing() {
    let mut pair = Pair::new(&ud());
    post_to_b(&mut pair, 1, 8);
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(
        deliver(&mut pair),
        Some(RecordAnswer::Executed),
        "though there is no receive"
    );
    assert_eq!(pair.b.nic.counters().rx_dropped, 1);
    pair.exchange();
    completed!(pair.a, []);
}

#[test]
fn each_datagram_takes_its_own_way() {
    let mut pair = Pair::new(&ud());
    let elsewhere = Destination {
        ip: "10.0.0.77".parse().expect("an address"),
        ..pair.to_b()
    };
    let apart = (pair.a.ip, elsewhere.ip);
    pair.host().state().apart.push(apart);
    for wr_id in 10..14 {
        recv!(pair.b, wr_id, 0, 256);
    }
    let to_b = pair.to_b();
    for (wr_id, to) in [(1, elsewhere), (2, to_b), (3, elsewhere), (4, to_b), (5, to_b)] {
        pair.a.post_to(wr_id, SendOp::Send, (0, 4), to).expect("posted");
    }
    sent!(pair.a, [UD_SEND_ONLY, UD_SEND_ONLY]);
    assert_eq!(pair.host().waiting(&pair.a), 3);
    pair.exchange();
    let all = [1, 2, 3, 4, 5].map(|wr_id| (wr_id, Status::Success));
    assert_eq!(crate::support::outcomes(&pair.a.completions()), all);
    received!(
        pair.b,
        [
            (10, Status::Success),
            (11, Status::Success),
            (12, Status::Success)
        ]
    );
}

/// A record would overtake the packet, which would then come late.
#[test]
fn a_connection_that_has_sent_a_packet_keeps_to_packets() {
    let mut pair = Pair::unconnected(&uc());
    let apart = (pair.a.ip, pair.b.ip);
    pair.host().state().apart.push(apart);
    let (a, b) = (pair.a.qpn, pair.b.qpn);
    pair.connect(a, b);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    sent!(pair.a, [UC_SEND_ONLY]);
    pair.host().state().apart.clear();
    post!(pair.a, 2, SendOp::Send, 0, 8);
    sent!(pair.a, [UC_SEND_ONLY]);
}

#[test]
fn a_connection_that_has_sent_nothing_takes_a_lane_that_came_late() {
    let mut pair = Pair::unconnected(&uc());
    let apart = (pair.a.ip, pair.b.ip);
    pair.host().state().apart.push(apart);
    let (a, b) = (pair.a.qpn, pair.b.qpn);
    pair.connect(a, b);
    pair.host().state().apart.clear();
    post!(pair.a, 1, SendOp::Send, 0, 8);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 1);
}

#[test]
fn a_message_for_a_full_lane_waits_until_its_reader_has_gone_on() {
    for setup in [uc(), ud()] {
        let mut pair = Pair::new(&setup);
        pair.host().state().room = Some(2);
        for wr_id in 11..=13 {
            recv!(pair.b, wr_id, 0, 256);
        }
        for wr_id in 1..=3 {
            post_any(&mut pair, wr_id);
        }
        sent!(pair.a, []);
        completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
        pair.advance(ms(19));
        sent!(pair.a, []);
        completed!(pair.a, []);
        pair.exchange();
        completed!(pair.a, [(3, Status::Success)]);
        received!(
            pair.b,
            [
                (11, Status::Success),
                (12, Status::Success),
                (13, Status::Success)
            ]
        );
        assert_eq!(pair.a.nic.counters().lane_drops, 0);
        pair.advance(ms(100));
        assert_eq!(pair.a.nic.usage().timers, 0, "nothing waits any more");
    }
}

/// As on a network that loses them: a process that was stopped holds nobody up.
#[test]
fn messages_for_a_lane_that_nobody_reads_are_lost_until_it_is_read_again() {
    for setup in [uc(), ud()] {
        let mut pair = Pair::new(&setup);
        pair.host().state().room = Some(1);
        for wr_id in 11..=13 {
            recv!(pair.b, wr_id, 0, 256);
        }
        for wr_id in 1..=3 {
            post_any(&mut pair, wr_id);
        }
        sent!(pair.a, []);
        completed!(pair.a, [(1, Status::Success)]);
        // The time of the post may have been an old one, so the first end of patience begins another.
        pair.advance(ms(21));
        sent!(pair.a, []);
        completed!(pair.a, []);
        pair.advance(ms(21));
        sent!(pair.a, []);
        completed!(pair.a, [(2, Status::Success), (3, Status::Success)]);
        post_any(&mut pair, 4);
        sent!(pair.a, []);
        completed!(pair.a, [(4, Status::Success)]);
        assert_eq!(pair.a.nic.counters().lane_drops, 3);
        pair.exchange();
        post_any(&mut pair, 5);
        pair.exchange();
        completed!(pair.a, [(5, Status::Success)]);
        received!(pair.b, [(11, Status::Success), (12, Status::Success)]);
    }
}

#[test]
fn a_connection_whose_lane_has_ended_goes_on_with_packets() {
    let mut pair = Pair::new(&uc());
    pair.host().state().room = Some(0);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    sent!(pair.a, []);
    let host = pair.host();
    host.state().apart.push((pair.a.ip, pair.b.ip));
    host.end_lanes(&mut pair.a);
    sent!(pair.a, [UC_SEND_ONLY]);
    completed!(pair.a, [(1, Status::Success)]);
}

#[test]
fn a_send_whose_memory_may_not_be_read_stops_sending_but_not_receiving() {
    let mut pair = Pair::new(&uc());
    let mut wrong = pair.a.sge(0, 8);
    wrong.lkey ^= 1;
    pair.a
        .post(1, SendOp::Send, Data::Sges(&[wrong]), SendFlags::SIGNALED)
        .expect("wrong keys show on use");
    post!(pair.a, 2, SendOp::Send, 0, 8);
    completed!(pair.a, [(1, Status::LocalProtection), (2, Status::Flushed)]);
    assert_eq!(pair.a.state(), QpState::Sqe);
    assert_eq!(pair.host().waiting(&pair.a), 0);
    recv!(pair.a, 3, 0, 64);
    post!(pair.b, 1, SendOp::Send, 0, 8);
    pair.exchange();
    received!(pair.a, [(3, Status::Success)]);
}

/// A message to wherever the service of the pair sends.
fn post_any(pair: &mut Pair, wr_id: u64) {
    match pair.a.setup.service {
        Service::Ud => post_to_b(pair, wr_id, 8),
        _ => post!(pair.a, wr_id, SendOp::Send, 0, 8),
    }
}
