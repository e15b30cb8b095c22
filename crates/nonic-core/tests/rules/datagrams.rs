//! UD: single packets to any queue pair, a Q_Key as the only guard, 40 bytes of network header in every receive.

use crate::support::{Pair, Setup, Solo, pattern};
use crate::{completed, expect_nothing, received, recv, sent};
use nonic_core::{Destination, Event, PathMtu, PostError, QpState, Qpn, SendOp, Status};
use nonic_wire::{Bth, Deth, Headers, Opcode};
use std::net::IpAddr;

/// Length of the network header in front of a received datagram.
const GRH: usize = 40;

fn post_to_b(pair: &mut Pair, wr_id: u64, op: SendOp, length: u32) -> Result<(), PostError> {
    let to = pair.to_b();
    pair.a.post_to(wr_id, op, (0, length), to)
}

#[test]
fn datagrams_of_every_size_up_to_the_mtu() {
    let mut pair = Pair::ud();
    for size in [0, 1, 2, 3, 4, 64, 1024, 4095, 4096] {
        let bytes = pattern(size as u8, size as usize);
        pair.a.fill(0, &bytes);
        recv!(pair.b, 2, 0, 8192);
        post_to_b(&mut pair, 1, SendOp::SendWithImmediate(size), size).expect("posted");
        pair.exchange();
        completed!(pair.a, [(1, Status::Success)]);
        let got = received!(pair.b, [(2, Status::Success)]);
        assert_eq!(got[0].byte_len, size + GRH as u32);
        assert_eq!((got[0].immediate, got[0].grh), (Some(size), true));
        assert!(got[0].ipv4, "the pair has IPv4 addresses");
        assert_eq!(got[0].src_qp, pair.a.qpn);
        assert_eq!(pair.b.bytes(GRH, size as usize), bytes);
    }
    assert_eq!(
        post_to_b(&mut pair, 1, SendOp::Send, 4097),
        Err(PostError::Length)
    );
}

#[test]
fn the_network_header_over_ipv4() {
    let mut pair = Pair::ud();
    recv!(pair.b, 2, 0, 256);
    pair.b.fill(0, &[0xee; 60]);
    post_to_b(&mut pair, 1, SendOp::Send, 10).expect("posted");
    pair.exchange();
    received!(pair.b, [(2, Status::Success)]);
    let header = pair.b.bytes(0, GRH);
    assert_eq!(header[..20], [0; 20], "the first half is unused");
    let ip = &header[20..];
    assert_eq!(ip[0], 0x45);
    // IP, UDP, BTH, DETH, ten bytes and two of padding, ICRC.
    let length = 20 + 8 + 12 + 8 + 12 + 4;
    assert_eq!(u16::from_be_bytes([ip[2], ip[3]]), length);
    assert_eq!((ip[6], ip[9]), (0x40, 17), "don't fragment, UDP");
    assert_eq!(ip[12..20], [10, 0, 0, 1, 10, 0, 0, 2]);
}

#[test]
fn the_network_header_over_ipv6() {
    let mut pair = Pair::new(&Setup {
        ipv6: true,
        ..Setup::ud()
    });
    recv!(pair.b, 2, 0, 256);
    post_to_b(&mut pair, 1, SendOp::Send, 10).expect("posted");
    pair.exchange();
    received!(pair.b, [(2, Status::Success)]);
    let header = pair.b.bytes(0, GRH);
    assert_eq!(header[0] >> 4, 6);
    assert_eq!(u16::from_be_bytes([header[4], header[5]]), 8 + 12 + 8 + 12 + 4);
    assert_eq!(header[6], 17);
    let octets = |ip| match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(_) => unreachable!("the setup asked for IPv6"),
    };
    assert_eq!(header[8..24], octets(pair.a.ip));
    assert_eq!(header[24..40], octets(pair.b.ip));
}

#[test]
fn a_wrong_qkey_is_dropped_and_counted() {
    for lanes in [false, true] {
        let mut pair = Pair::new(&Setup { lanes, ..Setup::ud() });
        recv!(pair.b, 2, 0, 256);
        let wrong = Destination {
            qkey: 0x2222,
            ..pair.to_b()
        };
        pair.a.post_to(1, SendOp::Send, (0, 4), wrong).expect("posted");
        pair.exchange();
        completed!(pair.a, [(1, Status::Success)]);
        expect_nothing!(pair.b);
        assert_eq!(pair.b.nic.counters().rx_qkey_violations, 1);
    }
}

#[test]
fn a_qkey_with_its_top_bit_set_stands_for_the_senders_own() {
    let mut pair = Pair::ud();
    recv!(pair.b, 2, 0, 256);
    let own = Destination {
        qkey: 0x8000_0000,
        ..pair.to_b()
    };
    pair.a.post_to(1, SendOp::Send, (0, 4), own).expect("posted");
    let packets = sent!(pair.a, [UD_SEND_ONLY]);
    assert_eq!(packets[0].headers().deth.qkey, pair.a.setup.qkey);
}

#[test]
fn without_a_receive_a_datagram_is_dropped() {
    let mut pair = Pair::ud();
    post_to_b(&mut pair, 1, SendOp::Send, 4).expect("posted");
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    expect_nothing!(pair.b);
    assert_eq!(pair.b.nic.counters().rx_dropped, 1);
}

#[test]
fn a_receive_without_room_for_header_and_payload_is_a_length_error() {
    let mut pair = Pair::ud();
    pair.b.fill(0, &[0xee; 64]);
    recv!(pair.b, 2, 0, GRH as u32 + 3);
    post_to_b(&mut pair, 1, SendOp::Send, 4).expect("posted");
    pair.exchange();
    received!(pair.b, [(2, Status::LocalLength)]);
    assert_eq!(pair.b.state(), QpState::Error);
    assert_eq!(pair.b.bytes(0, 64), [0xee; 64]);
}

#[test]
fn a_datagram_longer_than_the_port_mtu_is_dropped() {
    let mut solo = Solo::ud();
    recv!(solo, 1, 0, 16 << 10);
    let headers = datagram(&solo, Opcode::UD_SEND_ONLY);
    solo.feed(headers, &vec![0; 4097]);
    solo.feed(headers, &vec![0; 4096]);
    let got = received!(solo, [(1, Status::Success)]);
    assert_eq!(got[0].byte_len, 4096 + GRH as u32);
}

#[test]
fn anyone_may_send() {
    let mut solo = Solo::ud();
    recv!(solo, 1, 0, 256);
    solo.peer.ip = IpAddr::from([192, 168, 1, 77]);
    let headers = datagram(&solo, Opcode::UD_SEND_ONLY_WITH_IMMEDIATE);
    solo.feed(headers, b"hello");
    let got = received!(solo, [(1, Status::Success)]);
    assert_eq!(got[0].src_qp, solo.peer.qpn);
    assert_eq!(solo.bytes(GRH, 5), b"hello");
}

#[test]
fn a_sequence_number_means_nothing() {
    let mut solo = Solo::ud();
    for wr_id in 0..3 {
        recv!(solo, wr_id, 0, 256);
    }
    let mut headers = datagram(&solo, Opcode::UD_SEND_ONLY);
    for psn in [5, 5, 1] {
        headers.bth.psn = nonic_core::Psn::new(psn);
        solo.feed(headers, b"hello");
    }
    assert_eq!(solo.receptions().len(), 3);
}

fn datagram(solo: &Solo, opcode: Opcode) -> Headers {
    let mut headers = Headers::new(Bth::new(opcode, solo.qpn, solo.peer.psn));
    headers.deth = Deth {
        qkey: solo.setup.qkey,
        src_qp: solo.peer.qpn,
    };
    headers
}

#[test]
fn a_group_gets_one_copy_per_member() {
    let mut pair = Pair::ud();
    let group = IpAddr::from([239, 0, 0, 9]);
    let second = pair.b.add_qp();
    let peer = crate::support::Remote {
        ip: pair.a.ip,
        qpn: pair.a.qpn,
        psn: nonic_core::Psn::new(0),
    };
    pair.b.connect(second, &peer, nonic_core::Psn::new(0));
    let first = pair.b.qpn;
    recv!(pair.b, 1, 0, 256);
    pair.b.qpn = second;
    recv!(pair.b, 2, 1024, 256);
    assert!(pair.b.nic.attach_multicast(first, group));
    assert!(pair.b.nic.attach_multicast(second, group));
    assert!(pair.b.nic.attach_multicast(second, group), "twice is once");
    let to = Destination {
        ip: group,
        qpn: Qpn::MULTICAST,
        ..pair.to_b()
    };
    pair.a.fill(0, b"all of you");
    pair.a.post_to(1, SendOp::Send, (0, 10), to).expect("posted");
    let packets = sent!(pair.a, [UD_SEND_ONLY]);
    assert_eq!(packets[0].flow.dst, group);
    assert_eq!(packets[0].headers().bth.dest_qp, Qpn::MULTICAST);
    pair.b.receive_all(&packets);
    let mut members: Vec<_> = pair.b.receptions().iter().map(|c| (c.wr_id, c.qpn)).collect();
    members.sort_unstable();
    assert_eq!(members, [(1, first), (2, second)]);
    assert_eq!(pair.b.bytes(GRH, 10), b"all of you");
    assert_eq!(pair.b.bytes(1024 + GRH, 10), b"all of you");

    assert!(pair.b.nic.detach_multicast(first, group));
    assert!(!pair.b.nic.detach_multicast(first, group));
    assert!(pair.b.destroy_qp(second));
    pair.b.receive_all(&packets);
    expect_nothing!(pair.b);
    assert_eq!(pair.b.nic.counters().rx_unclaimed, 1);
}

#[test]
fn only_datagram_queue_pairs_join_groups_and_groups_are_multicast() {
    let mut rc = Pair::rc();
    let qpn = rc.a.qpn;
    assert!(!rc.a.nic.attach_multicast(qpn, IpAddr::from([239, 0, 0, 9])));
    let mut ud = Pair::ud();
    let qpn = ud.a.qpn;
    assert!(!ud.a.nic.attach_multicast(qpn, IpAddr::from([10, 0, 0, 9])));
    assert!(
        !ud.a
            .nic
            .attach_multicast(Qpn::new(5), IpAddr::from([239, 0, 0, 9]))
    );
}

#[test]
fn a_destination_is_needed_and_must_be_of_the_endpoints_family() {
    let mut pair = Pair::ud();
    assert_eq!(
        pair.a.try_send(1, SendOp::Send, 0, 4),
        Err(PostError::Destination)
    );
    let unknown_endpoint = Destination {
        gid_index: 1,
        ..pair.to_b()
    };
    let other_family = Destination {
        ip: IpAddr::from([0u16; 8]),
        ..pair.to_b()
    };
    for to in [unknown_endpoint, other_family] {
        let posted = pair.a.post_to(1, SendOp::Send, (0, 4), to);
        assert_eq!(posted, Err(PostError::Destination));
    }
    let mut rc = Pair::rc();
    let to = rc.to_b();
    assert_eq!(
        rc.a.post_to(1, SendOp::Send, (0, 4), to),
        Err(PostError::Destination)
    );
}

#[test]
fn datagrams_to_different_places_do_not_share_a_batch() {
    let mut pair = Pair::ud();
    let mut elsewhere = pair.to_b();
    elsewhere.ip = IpAddr::from([10, 0, 0, 77]);
    let mut neighbour = pair.to_b();
    neighbour.qpn = Qpn::new(0x1234);
    let to_b = pair.to_b();
    for to in [to_b, to_b, elsewhere, elsewhere, neighbour, to_b] {
        pair.a.post_to(1, SendOp::Send, (0, 64), to).expect("posted");
    }
    let mut buffer = vec![0; nonic_core::MAX_BATCH_LEN];
    let mut batches = Vec::new();
    let now = pair.a.now;
    while let Some(batch) = pair.a.nic.poll_transmit(now, 64, &mut buffer) {
        batches.push((batch.flow.dst, batch.dest_qpn, batch.segments));
        assert!(batches.len() < 10);
    }
    assert_eq!(
        batches,
        [
            (to_b.ip, to_b.qpn, 2),
            (elsewhere.ip, to_b.qpn, 2),
            (to_b.ip, neighbour.qpn, 1),
            (to_b.ip, to_b.qpn, 1),
        ]
    );
}

#[test]
fn the_send_queue_of_a_receiver_that_failed_is_flushed() {
    let mut pair = Pair::new(&Setup {
        mtu: PathMtu::Mtu1024,
        ..Setup::ud()
    });
    recv!(pair.b, 2, 0, 4);
    let back = Destination {
        ip: pair.a.ip,
        qpn: pair.a.qpn,
        ..pair.to_b()
    };
    pair.b.post_to(7, SendOp::Send, (0, 4), back).expect("posted");
    post_to_b(&mut pair, 1, SendOp::Send, 4).expect("posted");
    let packets = pair.a.transmit();
    pair.b.receive_all(&packets);
    received!(pair.b, [(2, Status::LocalLength)]);
    completed!(pair.b, [(7, Status::Flushed)]);
    assert_eq!(pair.b.events(), [] as [Event; 0]);
}
