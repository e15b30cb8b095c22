//! Parsing, checksums and captures: any bytes are answered, none panic, and what was understood survives.

use nonic_wire::{Flow, ICRC_LEN, Packet, ROCE_PORT, Verdict};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A packet that parses is emitted with the same length and parses to the same value.
pub fn parse(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else {
        return;
    };
    let mut emitted = Vec::new();
    packet.emit_into(&mut emitted);
    assert_eq!(emitted.len(), bytes.len(), "{packet:?}");
    assert_eq!(Packet::parse(&emitted), Ok(packet));
}

/// The check never panics; what was sealed verifies, strictly with the right Identification and leniently
/// with any; a single flipped bit is noticed.
pub fn icrc(bytes: &[u8]) {
    let Some((choice, packet)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let identification = u16::from_be_bytes([choice[0], choice[1]]);
    let flow = if choice[2] & 1 == 0 {
        flow(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, choice[3]))
    } else {
        flow(Ipv6Addr::LOCALHOST, Ipv6Addr::from_bits(u128::from(choice[3])))
    };
    for lenient in [false, true] {
        let verdict = nonic_wire::icrc::verify(&flow, identification, lenient, packet);
        if let Verdict::VerifiedWithId(id) = verdict {
            assert!(lenient && id != identification && flow.src.is_ipv4());
            assert_eq!(
                nonic_wire::icrc::verify(&flow, id, false, packet),
                Verdict::Verified
            );
        }
    }
    let mut sealed = packet.to_vec();
    if sealed.len() < ICRC_LEN || sealed.len() > 9000 {
        return;
    }
    nonic_wire::icrc::seal(&flow, identification, &mut sealed);
    let strict = |packet: &[u8]| nonic_wire::icrc::verify(&flow, identification, false, packet);
    assert_eq!(strict(&sealed), Verdict::Verified);
    let wrong_guess = identification ^ 0x5a5a;
    let expected = if flow.src.is_ipv4() {
        Verdict::VerifiedWithId(identification)
    } else {
        Verdict::Verified
    };
    assert_eq!(
        nonic_wire::icrc::verify(&flow, wrong_guess, true, &sealed),
        expected
    );
    // The congestion byte is not covered; every other bit is.
    let bit = usize::from(choice[3]) * 8 + usize::from(choice[2] >> 5);
    let at = bit / 8 % sealed.len();
    if at != 4 {
        sealed[at] ^= 1 << (bit % 8);
        assert_eq!(strict(&sealed), Verdict::Bad);
    }
}

/// A capture ends in an error or at its end, and its frames lie within it.
pub fn pcap(bytes: &[u8]) {
    let mut growing = nonic_wire::pcap::CaptureReader::new();
    for piece in bytes.chunks(97) {
        growing.handle(piece);
        while let Ok(Some(frame)) = growing.next() {
            assert!(frame.bytes.len() <= bytes.len());
            let _ = (frame.datagram(), frame.tcp_segment());
        }
    }
    let Ok(reader) = nonic_wire::pcap::Reader::new(bytes) else {
        return;
    };
    let mut seen = 0;
    for frame in reader.flatten() {
        seen += 1;
        assert!(seen <= bytes.len() / 16, "more frames than record headers");
        if let Some(datagram) = frame.datagram() {
            assert!(datagram.payload.len() <= frame.bytes.len());
            let _ = nonic_wire::icrc::compute_behind(datagram.headers, datagram.payload);
            parse(datagram.payload);
        }
    }
}

fn flow(src: impl Into<IpAddr>, dst: impl Into<IpAddr>) -> Flow {
    Flow {
        src: src.into(),
        dst: dst.into(),
        src_port: 49_152,
        dst_port: ROCE_PORT,
    }
}
