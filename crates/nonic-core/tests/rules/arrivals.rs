//! Which packets the NIC accepts: checksum, address, service, state, batches.

use crate::support::{Node, Pair, Setup, Solo};
use crate::{completed, expect_nothing, post, received, recv};
use nonic_core::{Arrival, Event, QpState, Qpn, SendOp, Status};
use nonic_wire::{Bth, Headers, Opcode, Syndrome};
use std::net::{IpAddr, SocketAddr};

#[test]
fn a_strict_nic_takes_only_the_identifications_its_own_kind_sends() {
    for (identification, taken) in [(0, true), (7, true), (63, true), (64, false), (0xbeef, false)] {
        let mut pair = Pair::new(&Setup {
            lenient_icrc: false,
            max_segments: 1,
            ..Setup::rc()
        });
        recv!(pair.b, 1, 0, 64);
        post!(pair.a, 1, SendOp::Send, 0, 8);
        let mut packet = pair.a.transmit().remove(0);
        packet.identification = identification;
        packet.seal();
        pair.b.receive(&packet);
        assert_eq!(pair.b.nic.counters().rx_icrc_errors, u64::from(!taken));
        if taken {
            received!(pair.b, [(1, Status::Success)]);
        } else {
            expect_nothing!(pair.b);
        }
    }
}

#[test]
fn a_lenient_nic_takes_any_identification_and_counts() {
    let mut pair = Pair::rc();
    recv!(pair.b, 1, 0, 64);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    let mut packet = pair.a.transmit().remove(0);
    packet.identification = 0xbeef;
    packet.seal();
    pair.b.receive(&packet);
    received!(pair.b, [(1, Status::Success)]);
    assert_eq!(pair.b.nic.counters().rx_identification_solved, 1);
}

#[test]
fn a_damaged_packet_is_dropped_silently_whatever_byte_is_hit() {
    for lenient_icrc in [false, true] {
        let mut pair = Pair::new(&Setup {
            lenient_icrc,
            ..Setup::rc()
        });
        recv!(pair.b, 1, 0, 64);
        post!(pair.a, 1, SendOp::Send, 0, 40);
        let packet = pair.a.transmit().remove(0);
        for at in 0..packet.bytes.len() {
            // The congestion byte is not covered.
            if at != 4 {
                let mut damaged = packet.clone();
                damaged.bytes[at] ^= 0x10;
                pair.b.receive(&damaged);
            }
        }
        expect_nothing!(pair.b);
        pair.b.receive(&packet);
        received!(pair.b, [(1, Status::Success)]);
    }
}

#[test]
fn damage_to_the_addresses_is_noticed() {
    let mut solo = Solo::ud();
    recv!(solo, 1, 0, 256);
    let mut headers = Headers::new(Bth::new(Opcode::UD_SEND_ONLY, solo.qpn, solo.peer.psn));
    headers.deth.qkey = solo.setup.qkey;
    let mut wire = crate::support::Wire::build(solo.flow(), headers, b"data");
    wire.flow.src = IpAddr::from([10, 0, 0, 98]);
    solo.receive(&wire);
    expect_nothing!(solo);
    assert_eq!(solo.nic.counters().rx_icrc_errors, 1);
}

#[test]
fn a_connection_hears_nobody_but_its_peer() {
    for setup in [Setup::rc(), Setup::uc()] {
        let mut solo = Solo::new(&setup);
        recv!(solo, 1, 0, 64);
        let true_peer = solo.peer.ip;
        solo.peer.ip = IpAddr::from([10, 0, 0, 98]);
        let opcode = if setup.service == nonic_core::Service::Rc {
            Opcode::RC_SEND_ONLY
        } else {
            Opcode::UC_SEND_ONLY
        };
        solo.request(opcode, 0, b"evil");
        solo.answer(0, Syndrome::nak(nonic_wire::NakCode::InvalidRequest));
        expect_nothing!(solo);
        assert_eq!(solo.nic.counters().rx_unclaimed, 2);
        solo.peer.ip = true_peer;
        solo.request(opcode, 0, b"good");
        received!(solo, [(1, Status::Success)]);
    }
}

#[test]
fn a_packet_to_another_of_our_addresses_is_not_for_the_connection() {
    let mut solo = Solo::rc();
    recv!(solo, 1, 0, 64);
    let headers = solo.headers(Opcode::RC_SEND_ONLY, 0);
    let mut flow = solo.flow();
    flow.dst = IpAddr::from([10, 0, 0, 200]);
    let wire = crate::support::Wire::build(flow, headers, b"data");
    solo.receive(&wire);
    expect_nothing!(solo);
}

#[test]
fn a_peers_port_may_change() {
    let mut solo = Solo::rc();
    recv!(solo, 1, 0, 64);
    let headers = solo.headers(Opcode::RC_SEND_ONLY, 0);
    let mut flow = solo.flow();
    flow.src_port = 1024;
    let wire = crate::support::Wire::build(flow, headers, b"data");
    solo.receive(&wire);
    received!(solo, [(1, Status::Success)]);
}

#[test]
fn packets_of_another_service_or_for_nobody_are_dropped() {
    let mut solo = Solo::rc();
    recv!(solo, 1, 0, 64);
    solo.request(Opcode::UC_SEND_ONLY, 0, b"data");
    solo.request(Opcode::UD_SEND_ONLY, 0, b"data");
    solo.request(Opcode::XRC_SEND_ONLY, 0, b"data");
    let stranger = Headers::new(Bth::new(Opcode::RC_SEND_ONLY, Qpn::new(0x55), solo.peer.psn));
    solo.feed(stranger, b"data");
    let group = Headers::new(Bth::new(Opcode::RC_SEND_ONLY, Qpn::MULTICAST, solo.peer.psn));
    solo.feed(group, b"data");
    expect_nothing!(solo);
    assert_eq!(solo.nic.counters().rx_unclaimed, 5);
    assert_eq!(solo.state(), QpState::Rts);
}

#[test]
fn nonsense_is_counted_as_malformed() {
    let mut solo = Solo::rc();
    let arrival = Arrival {
        src: SocketAddr::new(solo.peer.ip, 49_152),
        dst: solo.ip,
        stride: 100,
        congested: false,
    };
    let now = solo.now;
    for bytes in [&[0u8; 3][..], &[0xff; 40], &[0; 15]] {
        solo.nic.handle_datagram(now, &arrival, bytes);
    }
    solo.nic.handle_datagram(now, &arrival, &[]);
    assert_eq!(solo.nic.counters().rx_malformed, 3);
    assert_eq!(solo.nic.counters().rx_packets, 3);
}

#[test]
fn a_batch_is_cut_at_its_stride_and_checked_packet_by_packet() {
    for lenient_icrc in [false, true] {
        let mut pair = Pair::new(&Setup {
            lenient_icrc,
            ..Setup::rc()
        });
        let remote = pair.b.remote(0);
        pair.a.fill(0, &crate::support::pattern(1, 6000));
        post!(pair.a, 1, SendOp::Write(remote), 0, 6000);
        let mut buffer = vec![0; nonic_core::MAX_BATCH_LEN];
        let now = pair.a.now;
        while let Some(batch) = pair.a.nic.poll_transmit(now, 64, &mut buffer) {
            let arrival = Arrival {
                src: SocketAddr::new(batch.flow.src, batch.flow.src_port),
                dst: batch.flow.dst,
                stride: batch.segment_size,
                congested: false,
            };
            pair.b.nic.handle_datagram(now, &arrival, &buffer[..batch.len]);
        }
        assert_eq!(pair.b.bytes(0, 6000), crate::support::pattern(1, 6000));
        assert_eq!(pair.b.nic.counters().rx_identification_solved, 0);
        pair.exchange();
        completed!(pair.a, [(1, Status::Success)]);
    }
}

#[test]
fn packets_sent_one_by_one_and_merged_on_arrival_are_taken() {
    // Each carries Identification 0, though all but the first stand elsewhere in the merged datagram.
    let mut pair = Pair::new(&Setup {
        lenient_icrc: false,
        max_segments: 1,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    for wr_id in 0..3 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 100);
    }
    let packets = pair.a.transmit();
    let merged: Vec<u8> = packets.iter().flat_map(|wire| wire.bytes.clone()).collect();
    let arrival = Arrival {
        src: SocketAddr::new(pair.a.ip, packets[0].flow.src_port),
        dst: pair.b.ip,
        stride: packets[0].bytes.len(),
        congested: false,
    };
    let now = pair.b.now;
    pair.b.nic.handle_datagram(now, &arrival, &merged);
    pair.exchange();
    assert_eq!(pair.a.completions().len(), 3);
    assert_eq!(pair.b.nic.counters().rx_icrc_errors, 0);
}

#[test]
fn before_rtr_nothing_is_heard() {
    let setup = Setup::rc();
    let mut pair = Pair::new(&setup);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    let packet = pair.a.transmit().remove(0);
    let mut deaf = Node::new(2, &setup);
    assert_eq!(deaf.state(), QpState::Init);
    assert_eq!(deaf.qpn, pair.b.qpn, "the same seed gives the same number");
    recv!(deaf, 1, 0, 64);
    deaf.receive(&packet);
    expect_nothing!(deaf);
}

#[test]
fn the_first_packet_in_rtr_is_announced_once() {
    let setup = Setup::rc();
    let mut solo = Solo::new(&setup);
    let (qpn, peer) = (solo.qpn, solo.peer);
    solo.go_to(QpState::Reset);
    let to_init = setup.to_init();
    solo.modify(qpn, &to_init).expect("RESET to INIT");
    let to_rtr = setup.to_rtr(&peer);
    solo.modify(qpn, &to_rtr).expect("INIT to RTR");
    recv!(solo, 1, 0, 64);
    recv!(solo, 2, 0, 64);
    solo.request(Opcode::RC_SEND_ONLY, 0, b"one.");
    solo.request(Opcode::RC_SEND_ONLY, 1, b"two.");
    assert_eq!(solo.events(), [Event::CommunicationEstablished(qpn)]);
    received!(solo, [(1, Status::Success), (2, Status::Success)]);
    assert!(!solo.transmit().is_empty(), "answers leave in RTR");
}

#[test]
fn packets_of_another_partition_are_dropped_and_counted() {
    let remote_access = |pkey: u16| {
        let mut solo = Solo::rc();
        let remote = solo.remote(0);
        solo.request_with(Opcode::RC_RDMA_WRITE_ONLY, 0, &[7; 8], |headers| {
            headers.bth.pkey = pkey;
            headers.reth = nonic_wire::Reth {
                va: remote.va,
                rkey: remote.rkey,
                dma_len: 8,
            };
        });
        (solo.bytes(0, 8) == [7; 8], solo.nic.counters().rx_pkey_violations)
    };
    // We are a full member, so a limited one may talk to us.
    assert_eq!(remote_access(0xffff), (true, 0));
    assert_eq!(remote_access(0x7fff), (true, 0));
    for foreign in [0, 0x8000, 0x8001, 0x7ffe, 0xfffe, 0x1234] {
        assert_eq!(remote_access(foreign), (false, 1), "{foreign:#x}");
    }
}
