//! Everything Linux rxe put on the wire is understood, and understood completely.

use std::collections::BTreeSet;

use crate::common::Capture;
use nonic_wire::pcap::Datagram;
use nonic_wire::{ICRC_LEN, Opcode, Packet, Service, Verdict, icrc};

/// Packets in all captures together. A test that looks at nothing would pass, so this is counted.
const PACKETS: usize = 2899;
/// Packets that a faulty link damaged, all in the one capture that was made for it.
const DAMAGED: usize = 17;

#[test]
fn every_packet_is_emitted_byte_for_byte_as_it_was_parsed() {
    let mut packets = 0;
    for capture in Capture::all() {
        for (index, datagram) in capture.datagrams().enumerate() {
            let packet = Packet::parse(datagram.payload)
                .unwrap_or_else(|error| panic!("{} packet {index}: {error}", capture.name));
            let mut emitted = Vec::new();
            packet.emit_into(&mut emitted);
            assert_eq!(emitted, datagram.payload, "{} packet {index}", capture.name);
            packets += 1;
        }
    }
    assert_eq!(packets, PACKETS);
}

#[test]
fn the_captures_hold_all_rc_uc_and_ud_opcodes_that_rxe_sends() {
    let mut missing: BTreeSet<u8> = Opcode::ALL.iter().map(|opcode| opcode.byte()).collect();
    for capture in Capture::all() {
        for datagram in capture.datagrams() {
            missing.remove(&datagram.payload[0]);
        }
    }
    missing.retain(|&byte| {
        let opcode = Opcode::from_byte(byte).expect("taken from the table");
        !matches!(opcode.service(), Service::Xrc | Service::Cnp)
    });
    let expected = [
        Opcode::RC_SEND_LAST_WITH_INVALIDATE,
        Opcode::RC_FLUSH,
        Opcode::RC_ATOMIC_WRITE,
    ];
    assert_eq!(missing, expected.map(Opcode::byte).into());
}

#[test]
fn every_icrc_verifies_with_the_identification_of_the_ip_header() {
    assert_verdicts("known", |datagram| {
        match icrc::verify(&datagram.flow, identification(datagram), false, datagram.payload) {
            Verdict::Verified => true,
            Verdict::Bad => false,
            Verdict::VerifiedWithId(id) => panic!("solved for {id:#06x} without being asked to"),
        }
    });
}

#[test]
fn every_icrc_verifies_without_knowing_the_identification_and_finds_it() {
    assert_verdicts("unknown", |datagram| {
        let actual = identification(datagram);
        // A wrong guess as far away as can be, so that every bit has to be found.
        match icrc::verify(&datagram.flow, !actual, true, datagram.payload) {
            // IPv6 has no Identification that could be wrong.
            Verdict::Verified => datagram.fragmentation.is_none(),
            Verdict::VerifiedWithId(found) => {
                assert_eq!(found, actual);
                true
            }
            Verdict::Bad => false,
        }
    });
}

#[test]
fn every_icrc_can_be_computed_from_the_headers_on_the_wire() {
    assert_verdicts("raw headers", |datagram| {
        let (packet, icrc) = datagram
            .payload
            .split_last_chunk::<ICRC_LEN>()
            .expect("packets have an ICRC");
        icrc::compute_behind(datagram.headers, packet) == Some(*icrc)
    });
}

#[test]
fn rxe_always_forbids_fragmentation_and_sends_no_udp_checksum() {
    for capture in Capture::all() {
        for datagram in capture.datagrams() {
            assert!(
                datagram.fragmentation.is_none_or(|fields| fields.dont_fragment),
                "{}",
                capture.name
            );
            assert_eq!(datagram.headers.last_chunk(), Some(&[0, 0]), "{}", capture.name);
        }
    }
}

/// Asserts that `accepts` refuses the damaged packets, which are counted exactly, and no other.
fn assert_verdicts(what: &str, accepts: impl Fn(&Datagram<'_>) -> bool) {
    let (mut packets, mut refused) = (0, 0);
    for capture in Capture::all() {
        for (index, datagram) in capture.datagrams().enumerate() {
            packets += 1;
            if !accepts(&datagram) {
                assert!(
                    capture.name.contains("corrupt"),
                    "{what}: {} packet {index} refused",
                    capture.name
                );
                refused += 1;
            }
        }
    }
    assert_eq!((packets, refused), (PACKETS, DAMAGED), "{what}");
}

fn identification(datagram: &Datagram<'_>) -> u16 {
    datagram.fragmentation.map_or(0, |fields| fields.identification)
}
