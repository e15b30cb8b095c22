//! Invariants that must hold for *any* bytes, as one function for fuzzers and property tests.

use std::net::{IpAddr, Ipv4Addr};

use crate::cm::CmMad;
use crate::iwarp::{MpaFrame, ParsedMpa, Segment, Terminate};
use crate::{Flow, ICRC_LEN, Packet, ROCE_PORT, SelectiveAck, Verdict, icrc, pcap};

/// Feeds `bytes` to every parser of this crate.
///
/// A fuzz target is one line: `fuzz_target!(|bytes: &[u8]| nonic_wire::check::any_bytes(bytes));`
///
/// # Panics
/// If an invariant of this crate is broken, which is a bug of the crate whatever the bytes are.
pub fn any_bytes(bytes: &[u8]) {
    packet_survives_a_round_trip(bytes);
    selective_acknowledgement_survives_a_round_trip(bytes);
    message_survives_a_round_trip(bytes);
    start_up_frame_survives_a_round_trip(bytes);
    segment_survives_a_round_trip(bytes);
    terminate_survives_a_round_trip(bytes);
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

fn selective_acknowledgement_survives_a_round_trip(payload: &[u8]) {
    if let Some(ack) = SelectiveAck::parse(payload) {
        let mut emitted = [0; SelectiveAck::MAX_LEN];
        let len = SelectiveAck::emit(ack.ranges(), &mut emitted);
        assert_eq!(&emitted[..len], payload, "bytes changed");
    }
}

fn message_survives_a_round_trip(bytes: &[u8]) {
    if let Ok(mad) = CmMad::parse(bytes) {
        assert_eq!(CmMad::parse(&mad.emit()), Ok(mad), "value changed");
    }
}

fn start_up_frame_survives_a_round_trip(bytes: &[u8]) {
    if let Ok(ParsedMpa::Whole { frame, len }) = MpaFrame::parse(bytes) {
        let mut emitted = Vec::with_capacity(len);
        frame
            .emit_into(&mut emitted)
            .expect("what was parsed is not too long");
        assert_eq!(MpaFrame::parse(&emitted), Ok(ParsedMpa::Whole { frame, len }));
    }
}

fn segment_survives_a_round_trip(ulpdu: &[u8]) {
    if let Ok(segment) = Segment::parse(ulpdu) {
        let mut emitted = Vec::with_capacity(ulpdu.len());
        segment.emit_into(&mut emitted);
        assert_eq!(emitted.len(), ulpdu.len(), "length changed: {segment:?}");
        assert_eq!(Segment::parse(&emitted), Ok(segment), "value changed");
    }
}

/// A Terminate with headers is unambiguous; one without may be read in two ways.
fn terminate_survives_a_round_trip(body: &[u8]) {
    for full_operation in [false, true] {
        if let Some((terminate, _)) = Terminate::parse(body, full_operation) {
            let mut emitted = [0; Terminate::MAX_LEN];
            let len = terminate.emit(&mut emitted);
            let (again, _) = Terminate::parse(&emitted[..len], full_operation).expect("it has a code");
            let has_headers = terminate.segment_len.is_some() || terminate.ddp.is_some();
            assert!(again == terminate || !has_headers, "{terminate:?}");
        }
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
