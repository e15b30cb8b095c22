//! Terminate messages in both forms, and what is sent about which error.

use nonic_wire::iwarp::{
    DdpHeader, Header, ReadRequest, Segment, SendKind, Tagged, Terminate, TerminateCode, TerminateForm,
};

fn ulpdu(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Segment { header, payload }.emit_into(&mut bytes);
    bytes
}

fn emitted(terminate: &Terminate) -> Vec<u8> {
    let mut bytes = [0xee; Terminate::MAX_LEN];
    let len = terminate.emit(&mut bytes);
    bytes[..len].to_vec()
}

#[test]
fn a_write_is_reported_with_its_length_and_ddp_header() {
    let header = Header::Write(Tagged {
        last: true,
        stag: 0x0102_0304,
        to: 0x1000,
    });
    let bytes = ulpdu(header, &[0; 64]);
    let terminate = Terminate::about(TerminateCode::DDP_TAGGED_BOUNDS, &bytes);
    let expected = [&[0x11, 0x01, 0xc0, 0, 0, 78][..], &bytes[..DdpHeader::TAGGED_LEN]].concat();
    assert_eq!(emitted(&terminate), expected);
}

#[test]
fn a_read_is_reported_with_its_request_if_protection_was_the_matter() {
    let request = ReadRequest {
        sink_stag: 1,
        sink_to: 2,
        size: 3,
        source_stag: 4,
        source_to: 5,
    };
    let bytes = ulpdu(Header::ReadRequest { msn: 9, request }, &[]);
    let protection = Terminate::about(TerminateCode::RDMAP_INVALID_STAG, &bytes);
    assert_eq!(
        emitted(&protection),
        [&[0x01, 0, 0xe0, 0, 0, 46][..], &bytes].concat()
    );
    let operation = Terminate::about(TerminateCode::RDMAP_STREAM_CATASTROPHIC, &bytes);
    let expected = [&[0x02, 7, 0xc0, 0, 0, 46][..], &bytes[..DdpHeader::UNTAGGED_LEN]].concat();
    assert_eq!(emitted(&operation), expected);
}

#[test]
fn framing_and_local_errors_are_reported_without_headers() {
    let kind = SendKind::default();
    let bytes = ulpdu(
        Header::Send {
            kind,
            msn: 1,
            mo: 0,
            last: true,
        },
        b"x",
    );
    for code in [
        TerminateCode::MPA_CRC,
        TerminateCode::RDMAP_CATASTROPHIC,
        TerminateCode::DDP_CATASTROPHIC,
    ] {
        assert_eq!(Terminate::about(code, &bytes), Terminate::new(code));
    }
    assert_eq!(
        emitted(&Terminate::new(TerminateCode::MPA_CRC)),
        [0x20, 0x02, 0, 0]
    );
    // A segment too short for its header has none that could be sent back.
    let code = TerminateCode::DDP_UNTAGGED_NO_BUFFER;
    assert_eq!(Terminate::about(code, &bytes[..17]), Terminate::new(code));
}

#[test]
fn a_bare_code_is_read_in_the_form_that_makes_sense() {
    let read = |first: u8, code: u8, full_operation: bool| {
        let (terminate, form) = Terminate::parse(&[first, code, 0, 0], full_operation).unwrap();
        (terminate.code, form == TerminateForm::Siw)
    };
    // siw's answer to an opcode it does not know, and the same in the form of the RFC.
    let unexpected = TerminateCode::RDMAP_UNEXPECTED_OPCODE;
    assert_eq!(read(0x20, 0x06, true), (unexpected, true));
    assert_eq!(read(0x02, 0x06, true), (unexpected, false));
    // Before the first FPDU the same bytes are about start-up.
    assert_eq!(
        read(0x20, 0x06, false),
        (TerminateCode::MPA_INSUFFICIENT_IRD, false)
    );
    // Where only one reading has a meaning the time does not matter.
    for full_operation in [false, true] {
        assert_eq!(read(0x20, 0x02, full_operation), (TerminateCode::MPA_CRC, false));
        assert_eq!(read(0x02, 0x02, full_operation), (TerminateCode::MPA_CRC, true));
        assert_eq!(
            read(0x12, 0x05, full_operation),
            (TerminateCode::DDP_UNTAGGED_TOO_LONG, false)
        );
        assert_eq!(
            read(0x21, 0x05, full_operation),
            (TerminateCode::DDP_UNTAGGED_TOO_LONG, true)
        );
        assert_eq!(
            read(0x00, 0x77, full_operation),
            (TerminateCode::new(0, 0, 0x77), false)
        );
    }
    // What has no meaning either way is shown as the RFC would have it.
    assert_eq!(read(0x5a, 0x01, true), (TerminateCode::new(5, 10, 1), false));
}

#[test]
fn every_assigned_code_survives_both_forms() {
    for &code in TerminateCode::ALL {
        let swapped = code.etype << 4 | code.layer;
        let header = [0, 0, 0x81, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
        let siw = [&[swapped, code.code, 0x03, 0][..], &header].concat();
        let (terminate, form) = Terminate::parse(&siw, true).unwrap();
        assert_eq!((terminate.code, form), (code, TerminateForm::Siw));
        let again = Terminate::parse(&emitted(&terminate), true);
        assert_eq!(again, Some((terminate, TerminateForm::Rfc)));
        assert!(code.is_assigned());
    }
    assert_eq!(TerminateCode::new(3, 0, 0).text(), None);
}

#[test]
fn a_truncated_terminate_keeps_what_is_whole() {
    let request = ReadRequest::default();
    let bytes = ulpdu(Header::ReadRequest { msn: 1, request }, &[]);
    let whole = Terminate::about(TerminateCode::RDMAP_BOUNDS, &bytes);
    let body = emitted(&whole);
    assert_eq!(body.len(), Terminate::MAX_LEN);
    for len in 0..=body.len() {
        let read = Terminate::parse(&body[..len], true).map(|(terminate, _)| terminate);
        let expected = (len >= 4).then_some(Terminate {
            code: whole.code,
            segment_len: whole.segment_len.filter(|_| len >= 6),
            ddp: whole.ddp.filter(|_| len >= 24),
            read_request: whole.read_request.filter(|_| len >= 52),
        });
        assert_eq!(read, expected, "{len} bytes");
    }
}

#[test]
fn reserved_bits_do_not_make_it_the_form_of_siw() {
    // Layer 1, type 2, M and D; all bits that the RFC reserves are set.
    let body = [
        &[0x12, 0x05, 0xc0 | 0x1f, 0xff, 0, 20][..],
        &[0x41, 0x43],
        &[0; 16],
    ]
    .concat();
    let (terminate, form) = Terminate::parse(&body, true).unwrap();
    assert_eq!(
        (terminate.code, form),
        (TerminateCode::DDP_UNTAGGED_TOO_LONG, TerminateForm::Rfc)
    );
    assert!(terminate.ddp.is_some() && terminate.read_request.is_none());
}
