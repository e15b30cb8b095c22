//! One function that states what must hold for *any* bytes, for fuzzers and property tests.

use std::net::{IpAddr, Ipv4Addr};

use crate::cm::CmMad;
use crate::{Flow, ICRC_LEN, Packet, ROCE_PORT, Verdict, icrc, pcap};

/// Feeds `bytes` to every parser of this crate.
///
/// A fuzz target is one line: `fuzz_target!(|bytes: &[u8]| nonic_wire::check::any_bytes(bytes));`
///
/// # Panics
/// If an invariant of this crate is broken, which is a bug of the crate whatever the bytes are.
pub fn any_bytes(bytes: &[u8]) {
    packet_survives_a_round_trip(bytes);
    message_survives_a_round_trip(bytes);
    solved_identification_verifies(bytes);
    if let Ok(reader) = pcap::Reader::new(bytes) {
        for frame in reader.flatten() {
            if let Some(datagram) = frame.datagram() {
                let _ = icrc::compute_behind(datagram.headers, datagram.payload);
                packet_survives_a_round_trip(datagram.payload);
            }
        }
    }
}

fn packet_survives_a_round_trip(datagram: &[u8]) {
    let Ok(packet) = Packet::parse(datagram) else {
        return;
    };
    let mut emitted = Vec::with_capacity(datagram.len());
    packet.emit_into(&mut emitted);
    assert_eq!(emitted.len(), datagram.len(), "length changed: {packet:?}");
    let again = Packet::parse(&emitted).expect("what was emitted can be parsed");
    assert_eq!(again, packet, "value changed");
}

fn message_survives_a_round_trip(bytes: &[u8]) {
    if let Ok(mad) = CmMad::parse(bytes) {
        assert_eq!(CmMad::parse(&mad.emit()), Ok(mad), "value changed");
    }
}

fn solved_identification_verifies(datagram: &[u8]) {
    let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let flow = Flow {
        src: address(1),
        dst: address(2),
        src_port: 49_152,
        dst_port: ROCE_PORT,
    };
    let solved = icrc::verify(&flow, 0, true, datagram);
    if let Verdict::VerifiedWithId(identification) = solved {
        assert_eq!(
            icrc::verify(&flow, identification, false, datagram),
            Verdict::Verified
        );
    }
    // A sealed packet is accepted, and the Identification found, whatever its bytes are.
    let mut sealed = datagram.to_vec();
    if sealed.len() >= ICRC_LEN && sealed.len() <= 65_507 {
        let identification = (datagram.len() as u16).wrapping_mul(0x9e37) | 1;
        icrc::seal(&flow, identification, &mut sealed);
        assert_eq!(
            icrc::verify(&flow, identification, false, &sealed),
            Verdict::Verified
        );
        assert_eq!(
            icrc::verify(&flow, 0, true, &sealed),
            Verdict::VerifiedWithId(identification)
        );
    }
}
