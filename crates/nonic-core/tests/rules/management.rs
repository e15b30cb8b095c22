//! Queue pair 1: which management datagrams a NIC takes, and how it sends them.

use crate::support::{Node, Setup, Solo, Wire};
use crate::{expect_nothing, post, sent};
use nonic_core::cm::{Cm, CmConfig, CmEvent, ConnectParams};
use nonic_core::{
    Counters, ManagementDatagram, ManagementError, Psn, Qpn, Route, SeededEntropy, SendOp, Transmit,
};
use nonic_wire::cm::{PortSpace, ServiceId};
use nonic_wire::mad::{GSI_QKEY, MAD_LEN};
use nonic_wire::{Bth, Deth, Headers, Opcode};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// More than a NIC keeps.
const MANY: usize = 5000;

fn mad(number: u8) -> [u8; MAD_LEN] {
    std::array::from_fn(|index| number.wrapping_add(index as u8))
}

/// A management packet of the peer, after a last touch to its headers.
fn packet(solo: &Solo, payload: &[u8], touch: impl FnOnce(&mut Headers)) -> Wire {
    let mut headers = Headers::new(Bth::new(Opcode::UD_SEND_ONLY, Qpn::GSI, Psn::new(7)));
    headers.deth = Deth {
        qkey: GSI_QKEY,
        src_qp: Qpn::GSI,
    };
    touch(&mut headers);
    Wire::build(solo.flow(), headers, payload)
}

/// The route between the node and its peer, seen from the node.
fn route(solo: &Solo) -> Route {
    Route {
        local: solo.node.ip,
        remote: solo.peer.ip,
    }
}

fn datagram(solo: &Solo, number: u8) -> ManagementDatagram {
    ManagementDatagram {
        route: route(solo),
        mad: mad(number),
    }
}

/// Feeds a packet that must not be taken; what was counted besides its arrival.
fn refused(solo: &mut Solo, wire: &Wire) -> Counters {
    let before = *solo.nic.counters();
    solo.receive(wire);
    assert_eq!(solo.nic.poll_management(), None);
    expect_nothing!(solo.node);
    let after = *solo.nic.counters();
    assert_eq!(after.rx_packets, before.rx_packets + 1);
    Counters {
        rx_packets: 0,
        rx_bytes: 0,
        ..after
    }
}

#[test]
fn a_datagram_for_queue_pair_1_is_kept_for_the_caller() {
    let mut solo = Solo::rc();
    for number in [1, 2] {
        let wire = packet(&solo, &mad(number), |_| {});
        solo.receive(&wire);
    }
    for number in [1, 2] {
        assert_eq!(solo.nic.poll_management(), Some(datagram(&solo, number)));
    }
    assert_eq!(solo.nic.poll_management(), None);
    expect_nothing!(solo.node);
}

#[test]
fn a_wrong_queue_key_is_counted_and_dropped() {
    let mut solo = Solo::rc();
    let wire = packet(&solo, &mad(1), |headers| headers.deth.qkey ^= 1);
    assert_eq!(refused(&mut solo, &wire).rx_qkey_violations, 1);
}

#[test]
fn another_partition_is_counted_and_dropped() {
    let mut solo = Solo::rc();
    let wire = packet(&solo, &mad(1), |headers| headers.bth.pkey = 0x8001);
    assert_eq!(refused(&mut solo, &wire).rx_pkey_violations, 1);
}

#[test]
fn a_damaged_datagram_is_counted_and_dropped() {
    let mut solo = Solo::rc();
    let mut wire = packet(&solo, &mad(1), |_| {});
    wire.bytes[100] ^= 4;
    assert_eq!(refused(&mut solo, &wire).rx_icrc_errors, 1);
}

#[test]
fn any_other_length_is_counted_and_dropped() {
    for length in [0, 4, MAD_LEN - 4, MAD_LEN - 1, MAD_LEN + 4] {
        let mut solo = Solo::rc();
        let wire = packet(&solo, &vec![0; length], |_| {});
        assert_eq!(refused(&mut solo, &wire).rx_dropped, 1, "{length} bytes");
    }
}

#[test]
fn nothing_but_a_send_without_immediate_data_is_taken() {
    for opcode in [
        Opcode::UD_SEND_ONLY_WITH_IMMEDIATE,
        Opcode::RC_SEND_ONLY,
        Opcode::UC_SEND_ONLY,
        Opcode::RC_ACKNOWLEDGE,
    ] {
        let mut solo = Solo::rc();
        let wire = packet(&solo, &mad(1), |headers| headers.bth.opcode = opcode);
        assert_eq!(refused(&mut solo, &wire).rx_unclaimed, 1, "{opcode:?}");
    }
}

#[test]
fn a_strict_nic_takes_any_identification_at_queue_pair_1() {
    let mut solo = Solo::new(&Setup {
        lenient_icrc: false,
        ..Setup::rc()
    });
    let mut wire = packet(&solo, &mad(1), |_| {});
    wire.identification = 0x4321;
    wire.seal();
    solo.receive(&wire);
    assert_eq!(solo.nic.poll_management(), Some(datagram(&solo, 1)));
    assert_eq!(solo.nic.counters().rx_identification_solved, 1);
}

#[test]
fn the_flood_that_nobody_takes_is_dropped() {
    let mut solo = Solo::rc();
    let wire = packet(&solo, &mad(1), |_| {});
    for _ in 0..MANY {
        solo.receive(&wire);
    }
    let kept = std::iter::from_fn(|| solo.nic.poll_management()).count();
    assert!(kept > 0 && kept < MANY, "{kept}");
    assert_eq!(solo.nic.counters().rx_dropped, (MANY - kept) as u64);
    solo.receive(&wire);
    assert!(solo.nic.poll_management().is_some(), "there is room again");
}

/// What the node sends, with the queue pair each batch is said to go to.
fn transmits(solo: &mut Solo) -> Vec<(Transmit, Wire)> {
    let mut buffer = vec![0; nonic_core::MAX_BATCH_LEN];
    let mut sent = Vec::new();
    let now = solo.now;
    while let Some(transmit) = solo.nic.poll_transmit(now, 8, &mut buffer) {
        let wire = Wire {
            flow: transmit.flow,
            identification: 0,
            bytes: buffer[..transmit.len].to_vec(),
        };
        sent.push((transmit, wire));
    }
    sent
}

#[test]
fn datagrams_leave_as_single_packets_with_numbers_of_their_own() {
    let mut solo = Solo::rc();
    let hints = [Qpn::GSI, Qpn::new(0x5000), Qpn::GSI];
    for (number, hint) in hints.into_iter().enumerate() {
        let datagram = datagram(&solo, number as u8);
        assert_eq!(solo.nic.send_management(datagram, hint), Ok(()));
    }
    let sent = transmits(&mut solo);
    assert_eq!(sent.len(), hints.len());
    for (number, (transmit, wire)) in sent.iter().enumerate() {
        assert_eq!((transmit.segments, transmit.dest_qpn), (1, hints[number]));
        assert_eq!(transmit.flow, solo.node.flow_to(solo.peer.ip));
        let headers = wire.headers();
        assert_eq!(headers.bth.opcode, Opcode::UD_SEND_ONLY);
        assert_eq!(headers.bth.dest_qp, Qpn::GSI, "whatever the hint");
        assert_eq!(headers.bth.psn, Psn::new(number as u32));
        let expected = Deth {
            qkey: GSI_QKEY,
            src_qp: Qpn::GSI,
        };
        assert_eq!(headers.deth, expected);
        assert_eq!(wire.payload(), mad(number as u8));
        let mut sealed = wire.clone();
        sealed.seal();
        assert_eq!(wire, &sealed, "the ICRC is right");
    }
    assert_eq!(solo.nic.counters().tx_packets, hints.len() as u64);
    expect_nothing!(solo.node);
}

#[test]
fn queue_pair_1_takes_turns_with_the_others() {
    let mut solo = Solo::rc();
    post!(solo.node, 1, SendOp::Send, 0, 64);
    for number in 0..2 {
        let datagram = datagram(&solo, number);
        solo.nic
            .send_management(datagram, Qpn::GSI)
            .expect("there is room");
    }
    assert_eq!(solo.nic.ready_queue_pairs(), 2);
    sent!(solo.node, [RC_SEND_ONLY, UD_SEND_ONLY, UD_SEND_ONLY]);
    assert_eq!(solo.nic.ready_queue_pairs(), 0);
}

#[test]
fn an_acknowledgement_does_not_wait_beside_a_management_datagram() {
    let mut solo = Solo::rc();
    crate::recv!(solo.node, 1, 0, 64);
    solo.request(Opcode::RC_SEND_ONLY, 0, &[1; 8]);
    assert!(solo.nic.only_acknowledges());
    let datagram = datagram(&solo, 1);
    solo.nic
        .send_management(datagram, Qpn::GSI)
        .expect("there is room");
    assert!(solo.nic.has_management_to_send());
    assert!(!solo.nic.only_acknowledges());
    sent!(solo.node, [RC_ACKNOWLEDGE, UD_SEND_ONLY]);
    assert!(!solo.nic.has_management_to_send());
}

#[test]
fn what_waits_to_be_sent_is_bounded() {
    let mut solo = Solo::rc();
    let mut queued = 0;
    while solo.nic.has_management_room() {
        let datagram = datagram(&solo, 1);
        assert_eq!(solo.nic.send_management(datagram, Qpn::GSI), Ok(()));
        queued += 1;
        assert!(queued < MANY);
    }
    let one_more = datagram(&solo, 1);
    let full = Err(ManagementError::Full);
    assert_eq!(solo.nic.send_management(one_more, Qpn::GSI), full);
    assert_eq!(solo.transmit().len(), queued);
}

#[test]
fn nothing_is_sent_from_an_address_the_nic_does_not_have() {
    let mut solo = Solo::rc();
    let mut foreign = datagram(&solo, 1);
    foreign.route.local = IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9));
    let mut mixed = datagram(&solo, 1);
    mixed.route.remote = IpAddr::V6(Ipv6Addr::LOCALHOST);
    for datagram in [foreign, mixed] {
        let refused = Err(ManagementError::NoAddress);
        assert_eq!(solo.nic.send_management(datagram, Qpn::GSI), refused);
    }
    expect_nothing!(solo.node);
}

#[test]
fn a_failed_nic_sends_no_management_datagrams() {
    let mut solo = Solo::rc();
    let waiting = datagram(&solo, 1);
    solo.nic
        .send_management(waiting, Qpn::GSI)
        .expect("there is room");
    let now = solo.now;
    solo.nic.fail(now);
    let late = datagram(&solo, 2);
    let failed = Err(ManagementError::DeviceFailed);
    assert_eq!(solo.nic.send_management(late, Qpn::GSI), failed);
    assert_eq!(solo.transmit(), []);
}

#[test]
fn the_connection_manager_speaks_through_queue_pair_1() {
    let mut solo = Solo::rc();
    let mut cm = Cm::new(CmConfig::default(), Box::new(SeededEntropy::new(1)));
    let service = ServiceId::from_port(PortSpace::Tcp, 7000);
    let params = ConnectParams::new(route(&solo), service, Qpn::new(0x42), Psn::new(3));
    let now = solo.now;
    cm.connect(now, &params).expect("nothing is in the way");
    cm.exchange(now, &mut solo.nic, |_| Qpn::GSI);
    let requests = sent!(solo.node, [UD_SEND_ONLY]);
    // There is no listener at the peer, whose manager is behind a queue pair 1 like ours.
    let mut peer = Node::new(99, &Setup::rc());
    assert_eq!(peer.ip, solo.peer.ip);
    peer.receive_all(&requests);
    let mut passive = Cm::new(CmConfig::default(), Box::new(SeededEntropy::new(2)));
    passive.exchange(now, &mut peer.nic, |_| Qpn::GSI);
    let refusals = sent!(peer, [UD_SEND_ONLY]);
    solo.receive_all(&refusals);
    cm.exchange(now, &mut solo.nic, |_| Qpn::GSI);
    assert!(matches!(cm.poll_event(), Some(CmEvent::Rejected { .. })));
}
