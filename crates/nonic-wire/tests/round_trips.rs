//! What can be built can be emitted and read back; what arrives can be anything.

use crate::common;
use crate::common::sample_headers;
use nonic_wire::*;
use proptest::array;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

proptest! {
    #[test]
    fn psn_distance_undoes_add(start: u32, step in -0x80_0000i32..0x80_0000) {
        let start = Psn::new(start);
        let end = start.add(step as u32);
        prop_assert_eq!(end.distance_from(start), step);
        prop_assert_eq!(end.sub(step as u32), start);
        prop_assert_eq!(end.is_before(start), step < 0);
        prop_assert_eq!(end.is_after(start), step > 0);
    }

    #[test]
    fn bth_bytes_come_back(opcode in opcode(), mut bytes: [u8; Bth::LEN]) {
        bytes[0] = opcode.byte();
        bytes[1] &= 0xf0;
        let mut emitted = [0; Bth::LEN];
        Bth::parse(&bytes).unwrap().emit(&mut emitted);
        prop_assert_eq!(emitted, bytes);
    }

    #[test]
    fn bth_value_comes_back(bth in bth()) {
        let mut bytes = [0; Bth::LEN];
        bth.emit(&mut bytes);
        prop_assert_eq!(Bth::parse(&bytes), Ok(bth));
    }

    #[test]
    fn bth_refuses_what_it_does_not_know(bytes: [u8; Bth::LEN]) {
        let expected = match (Opcode::from_byte(bytes[0]), bytes[1] & 0x0f) {
            (None, _) => Err(ParseError::UnknownOpcode(bytes[0])),
            (Some(_), 0) => Ok(()),
            (Some(_), version) => Err(ParseError::UnsupportedVersion(version)),
        };
        prop_assert_eq!(Bth::parse(&bytes).map(|_| ()), expected);
    }

    #[test]
    fn deth(mut bytes: [u8; Deth::LEN]) {
        bytes[4] = 0;
        let mut emitted = [0xff; Deth::LEN];
        Deth::parse(&bytes).emit(&mut emitted);
        prop_assert_eq!(emitted, bytes);
    }

    #[test]
    fn reth(bytes: [u8; Reth::LEN]) {
        let mut emitted = [0xff; Reth::LEN];
        Reth::parse(&bytes).emit(&mut emitted);
        prop_assert_eq!(emitted, bytes);
    }

    #[test]
    fn atomic_eth(bytes in array::uniform28(any::<u8>())) {
        let mut emitted = [0xff; AtomicEth::LEN];
        AtomicEth::parse(&bytes).emit(&mut emitted);
        prop_assert_eq!(emitted, bytes);
    }

    #[test]
    fn aeth(bytes: [u8; Aeth::LEN]) {
        let mut emitted = [0xff; Aeth::LEN];
        Aeth::parse(&bytes).emit(&mut emitted);
        prop_assert_eq!(emitted, bytes);
    }

    #[test]
    fn feth(low in 0u8..0x40) {
        let bytes = [0, 0, 0, low];
        let mut emitted = [0xff; Feth::LEN];
        Feth::parse(&bytes).emit(&mut emitted);
        prop_assert_eq!(emitted, bytes);
    }

    #[test]
    fn packet_value_comes_back(headers in headers(), payload in vec(any::<u8>(), 0..300), icrc: [u8; 4]) {
        let mut bytes = vec![0xee];
        Packet { headers, payload: &payload, icrc }.emit_into(&mut bytes);
        let packet = Packet::parse(&bytes[1..]).unwrap();
        prop_assert_eq!(packet.payload, &payload);
        prop_assert_eq!(packet.icrc, icrc);
        // The padding follows from the payload; fields the opcode does not call for are not transmitted.
        let mut expected = only_what_the_opcode_calls_for(&headers);
        expected.bth.pad = pad_len(payload.len()) as u8;
        prop_assert_eq!(packet.headers, expected);
        prop_assert_eq!(bytes.len(), 1 + headers.len() + payload.len() + pad_len(payload.len()) + ICRC_LEN);
    }

    #[test]
    fn any_bytes_are_survived(bytes in vec(any::<u8>(), 0..200)) {
        check::any_bytes(&bytes);
    }

    #[test]
    fn any_bytes_behind_a_plausible_start_are_survived(
        opcode in opcode(),
        flags in 0u8..16,
        rest in vec(any::<u8>(), 0..120),
    ) {
        let mut bytes = vec![opcode.byte(), flags << 4];
        bytes.extend(rest);
        check::any_bytes(&bytes);
    }

    #[test]
    fn a_damaged_capture_is_survived(len: Index, damage in vec((any::<Index>(), any::<u8>()), 0..20)) {
        let mut bytes = SMALL_CAPTURE.to_vec();
        for (at, value) in damage {
            bytes[at.index(SMALL_CAPTURE.len())] = value;
        }
        bytes.truncate(len.index(SMALL_CAPTURE.len() + 1));
        check::any_bytes(&bytes);
    }
}

#[test]
fn a_packet_cut_anywhere_is_refused_or_shorter() {
    for &opcode in Opcode::ALL {
        let bytes = common::sample_packet(opcode, &common::flow_v4(), 0);
        let whole = Packet::parse(&bytes).unwrap();
        for len in 0..bytes.len() {
            match Packet::parse(&bytes[..len]) {
                Ok(shorter) => assert!(
                    shorter.payload.len() < whole.payload.len(),
                    "{opcode} cut to {len}"
                ),
                Err(ParseError::TooShort) => {
                    assert!(len < opcode.header_len() + ICRC_LEN, "{opcode} cut to {len}")
                }
                Err(ParseError::Misaligned(_)) => assert_ne!(len % 4, 0, "{opcode} cut to {len}"),
                Err(ParseError::BadPad(_)) => assert_eq!(len, opcode.header_len() + ICRC_LEN, "{opcode}"),
                Err(other) => panic!("{opcode} cut to {len}: {other}"),
            }
        }
    }
}

#[test]
fn headers_are_no_longer_than_promised() {
    let longest = Opcode::ALL
        .iter()
        .map(|opcode| opcode.header_len())
        .max()
        .unwrap();
    assert_eq!(longest, Headers::MAX_LEN);
    for &opcode in Opcode::ALL {
        let mut out = [0; Headers::MAX_LEN];
        assert_eq!(
            sample_headers(opcode).emit(&mut out),
            opcode.header_len(),
            "{opcode}"
        );
    }
}

#[test]
fn values_wider_than_their_field_do_not_spill_into_the_next() {
    let mut out = [0; Headers::MAX_LEN];
    Aeth {
        syndrome: Syndrome::ack(),
        msn: u32::MAX,
    }
    .emit(&mut out);
    assert_eq!(out[..Aeth::LEN], [Syndrome::ack().0, 0xff, 0xff, 0xff]);

    Feth {
        placement: 0xff,
        selectivity: 0,
    }
    .emit(&mut out);
    assert_eq!(out[..Feth::LEN], [0, 0, 0, 0x0f]);
    Feth {
        placement: 0,
        selectivity: 0xff,
    }
    .emit(&mut out);
    assert_eq!(out[..Feth::LEN], [0, 0, 0, 0x30]);

    let neutral = Bth {
        migrated: false,
        pkey: 0,
        ..Bth::default()
    };
    Bth {
        pad: 0xff,
        resv6: 0xff,
        resv7: 0xff,
        ..neutral
    }
    .emit(&mut out);
    assert_eq!(out[..Bth::LEN], [0x04, 0x30, 0, 0, 0x3f, 0, 0, 0, 0x7f, 0, 0, 0]);
    Bth {
        version: 0xff,
        ..neutral
    }
    .emit(&mut out);
    assert_eq!(out[..Bth::LEN], [0x04, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);

    let bth = Bth::new(Opcode::XRC_SEND_ONLY, Qpn::default(), Psn::default());
    let headers = Headers {
        xrc_srqn: u32::MAX,
        ..Headers::new(bth)
    };
    assert_eq!(headers.emit(&mut out), 16);
    assert_eq!(out[12..16], [0, 0xff, 0xff, 0xff]);
}

static SMALL_CAPTURE: &[u8] = include_bytes!("../../../tests/data/captures/rxe_cm_udaddy_sidr.pcap");

fn opcode() -> impl Strategy<Value = Opcode> {
    select(Opcode::ALL)
}

prop_compose! {
    fn bth()(
        opcode in opcode(),
        flags: [bool; 5],
        pad in 0u8..4,
        pkey: u16,
        resv6 in 0u8..0x40,
        resv7 in 0u8..0x80,
        dest_qp: u32,
        psn: u32,
    ) -> Bth {
        let [solicited, migrated, fecn, becn, ack_request] = flags;
        let (dest_qp, psn) = (Qpn::new(dest_qp), Psn::new(psn));
        Bth {
            opcode, solicited, migrated, pad, version: 0, pkey, fecn, becn, resv6, dest_qp, ack_request, resv7, psn,
        }
    }
}

prop_compose! {
    /// Headers with something in every field, whatever the opcode.
    fn headers()(
        bth in bth(),
        words: [u32; 8],
        doubles: [u64; 5],
        syndrome: u8,
        placement in 0u8..16,
        selectivity in 0u8..4,
    ) -> Headers {
        Headers {
            bth,
            deth: Deth { qkey: words[0], src_qp: Qpn::new(words[1]) },
            xrc_srqn: words[2] & 0xff_ffff,
            feth: Feth { placement, selectivity },
            reth: Reth { va: doubles[0], rkey: words[3], dma_len: words[4] },
            atomic: AtomicEth { va: doubles[1], rkey: words[5], swap_add: doubles[2], compare: doubles[3] },
            aeth: Aeth { syndrome: Syndrome(syndrome), msn: words[6] & 0xff_ffff },
            atomic_original: doubles[4],
            immediate: words[7],
            invalidate_rkey: words[0] ^ words[7],
        }
    }
}

fn only_what_the_opcode_calls_for(full: &Headers) -> Headers {
    let set = full.bth.opcode.headers();
    let mut headers = Headers::new(full.bth);
    if set.contains(HeaderSet::DETH) {
        headers.deth = full.deth;
    }
    if set.contains(HeaderSet::XRCETH) {
        headers.xrc_srqn = full.xrc_srqn;
    }
    if set.contains(HeaderSet::FETH) {
        headers.feth = full.feth;
    }
    if set.contains(HeaderSet::RETH) {
        headers.reth = full.reth;
    }
    if set.contains(HeaderSet::ATOMIC) {
        headers.atomic = full.atomic;
    }
    if set.contains(HeaderSet::AETH) {
        headers.aeth = full.aeth;
    }
    if set.contains(HeaderSet::ATOMIC_ACK) {
        headers.atomic_original = full.atomic_original;
    }
    if set.contains(HeaderSet::IMMEDIATE) {
        headers.immediate = full.immediate;
    }
    if set.contains(HeaderSet::IETH) {
        headers.invalidate_rkey = full.invalidate_rkey;
    }
    headers
}
