//! Each message's bytes, written down by hand from the figures of the RFCs, and each way a segment can be wrong.

use nonic_wire::iwarp::rdmap::{QUEUE_ATOMIC_RESPONSE, QUEUE_REQUEST, QUEUE_SEND, QUEUE_TERMINATE};
use nonic_wire::iwarp::{
    AtomicRequest, Header, Opcode, ReadRequest, Segment, SegmentError, SendKind, Tagged,
    TerminateCode as Code,
};

/// An untagged header as bytes.
fn untagged(control: [u8; 2], stag: u32, qn: u32, msn: u32, mo: u32) -> Vec<u8> {
    let words = [stag, qn, msn, mo].map(u32::to_be_bytes);
    [&control[..], words.as_flattened()].concat()
}

fn assert_bytes(header: Header, payload: &[u8], expected: &[u8]) {
    let segment = Segment { header, payload };
    let mut emitted = Vec::new();
    segment.emit_into(&mut emitted);
    assert_eq!(emitted, expected, "{header:?}");
    assert_eq!(segment.len(), expected.len());
    assert_eq!(Segment::parse(expected), Ok(segment));
}

#[test]
fn tagged_messages() {
    let tagged = |last| Tagged {
        last,
        stag: 0x0102_0304,
        to: 0x1112_1314_1516_1718,
    };
    let place = [1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
    let bytes = |control: [u8; 2]| [&control[..], &place, b"data"].concat();
    assert_bytes(Header::Write(tagged(true)), b"data", &bytes([0xc1, 0x40]));
    assert_bytes(Header::Write(tagged(false)), b"data", &bytes([0x81, 0x40]));
    assert_bytes(Header::ReadResponse(tagged(true)), b"data", &bytes([0xc1, 0x42]));
    assert_bytes(Header::ReadResponse(tagged(false)), b"data", &bytes([0x81, 0x42]));
}

#[test]
fn sends() {
    for (opcode, solicited, invalidate_stag) in [
        (0x43, false, None),
        (0x44, false, Some(0xaabb_ccdd)),
        (0x45, true, None),
        (0x46, true, Some(0xaabb_ccdd)),
    ] {
        for (first, last) in [(0x41, true), (0x01, false)] {
            let kind = SendKind {
                solicited,
                invalidate_stag,
            };
            let header = Header::Send {
                kind,
                msn: 7,
                mo: 1424,
                last,
            };
            let mut bytes = untagged([first, opcode], invalidate_stag.unwrap_or(0), QUEUE_SEND, 7, 1424);
            bytes.extend_from_slice(b"payload");
            assert_bytes(header, b"payload", &bytes);
        }
    }
}

#[test]
fn read_request() {
    let request = ReadRequest {
        sink_stag: 0x0102_0304,
        sink_to: 0x1112_1314_1516_1718,
        size: 0x2122_2324,
        source_stag: 0x3132_3334,
        source_to: 0x4142_4344_4546_4748,
    };
    let mut bytes = untagged([0x41, 0x41], 0, QUEUE_REQUEST, 3, 0);
    bytes.extend_from_slice(b"\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18");
    bytes.extend_from_slice(b"\x21\x22\x23\x24\x31\x32\x33\x34\x41\x42\x43\x44\x45\x46\x47\x48");
    assert_eq!(bytes.len(), 46);
    assert_bytes(Header::ReadRequest { msn: 3, request }, &[], &bytes);
}

#[test]
fn immediates() {
    for (opcode, solicited) in [(0x48, false), (0x49, true)] {
        let mut bytes = untagged([0x41, opcode], 0, QUEUE_SEND, 5, 0);
        bytes.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let header = Header::Immediate {
            solicited,
            msn: 5,
            data: 0x0102_0304_0506_0708,
        };
        assert_bytes(header, &[], &bytes);
    }
}

#[test]
fn atomics() {
    let mut add = untagged([0x41, 0x4a], 0, QUEUE_REQUEST, 4, 0);
    add.extend_from_slice(b"\0\0\0\0\0\0\0\x09\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18");
    add.extend_from_slice(&0x2122_2324_2526_2728u64.to_be_bytes());
    add.extend_from_slice(&[0; 16]);
    add.extend_from_slice(&[0xff; 8]);
    assert_eq!(add.len(), 70);
    let request = AtomicRequest::fetch_add(9, 0x0102_0304, 0x1112_1314_1516_1718, 0x2122_2324_2526_2728);
    assert_bytes(Header::AtomicRequest { msn: 4, request }, &[], &add);

    let mut swap = untagged([0x41, 0x4a], 0, QUEUE_REQUEST, 4, 0);
    swap.extend_from_slice(b"\0\0\0\x02\0\0\0\x09\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18");
    swap.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0x0b]);
    swap.extend_from_slice(&[0xff; 8]);
    swap.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0x0a]);
    swap.extend_from_slice(&[0xff; 8]);
    let request = AtomicRequest::compare_swap(9, 0x0102_0304, 0x1112_1314_1516_1718, 0x0a, 0x0b);
    assert_bytes(Header::AtomicRequest { msn: 4, request }, &[], &swap);

    let mut response = untagged([0x41, 0x4b], 0, QUEUE_ATOMIC_RESPONSE, 1, 0);
    response.extend_from_slice(b"\0\0\0\x09\x01\x02\x03\x04\x05\x06\x07\x08");
    assert_eq!(response.len(), 30);
    let header = Header::AtomicResponse {
        msn: 1,
        request_id: 9,
        original: 0x0102_0304_0506_0708,
    };
    assert_bytes(header, &[], &response);
}

#[test]
fn reserved_bits_are_ignored() {
    let mut bytes = untagged([0x41 | 0x3c, 0x43 | 0x30], 0xffff_ffff, QUEUE_SEND, 1, 0);
    bytes.push(9);
    let header = Header::Send {
        kind: SendKind::default(),
        msn: 1,
        mo: 0,
        last: true,
    };
    assert_eq!(
        Segment::parse(&bytes),
        Ok(Segment {
            header,
            payload: &[9]
        })
    );
}

fn assert_refused(bytes: &[u8], error: SegmentError, code: Code) {
    assert_eq!(Segment::parse(bytes), Err(error), "{bytes:02x?}");
    assert_eq!(error.terminate_code(), code, "{error}");
}

/// An empty tagged segment.
fn empty_tagged(control: [u8; 2]) -> Vec<u8> {
    [&control[..], &[0; 12]].concat()
}

/// An untagged segment with a body of zeros.
fn zeros(control: [u8; 2], qn: u32, mo: u32, body: usize) -> Vec<u8> {
    let mut bytes = untagged(control, 0, qn, 1, mo);
    bytes.resize(18 + body, 0);
    bytes
}

#[test]
fn a_segment_without_a_whole_header_is_refused_as_framed_wrongly() {
    for (first, len) in [(0, 0), (0xc1, 13), (0x41, 17)] {
        assert_refused(&vec![first; len], SegmentError::TooShort(len), Code::MPA_MARKER);
    }
}

#[test]
fn another_version_is_refused_by_the_layer_it_is_of() {
    let version = |tagged, version| SegmentError::DdpVersion { tagged, version };
    let bytes = empty_tagged([0xc0, 0x40]);
    assert_refused(&bytes, version(true, 0), Code::DDP_TAGGED_VERSION);
    let bytes = zeros([0x42, 0x41], 1, 0, 28);
    assert_refused(&bytes, version(false, 2), Code::DDP_UNTAGGED_VERSION);
    let bytes = empty_tagged([0xc1, 0x00]);
    assert_refused(&bytes, SegmentError::RdmapVersion(0), Code::RDMAP_VERSION);
}

#[test]
fn an_operation_that_is_unknown_or_of_the_other_model_is_unexpected() {
    let cases = [
        (empty_tagged([0xc1, 0x4c]), SegmentError::UnknownOpcode(12)),
        (zeros([0x41, 0x4f], 0, 0, 0), SegmentError::UnknownOpcode(15)),
        (empty_tagged([0xc1, 0x43]), SegmentError::WrongTag(Opcode::Send)),
        (
            zeros([0x41, 0x40], 0, 0, 0),
            SegmentError::WrongTag(Opcode::Write),
        ),
    ];
    for (bytes, error) in cases {
        assert_refused(&bytes, error, Code::RDMAP_UNEXPECTED_OPCODE);
    }
    let mut atomic = zeros([0x41, 0x4a], 1, 0, 52);
    atomic[21] = 1;
    let error = SegmentError::UnknownAtomic(1);
    assert_refused(&atomic, error, Code::RDMAP_UNEXPECTED_OPCODE);
}

#[test]
fn a_request_is_one_segment_of_its_queue_and_length() {
    let opcode = Opcode::ReadRequest;
    let bytes = zeros([0x41, 0x41], QUEUE_TERMINATE, 0, 28);
    let error = SegmentError::WrongQueue { opcode, qn: 2 };
    assert_refused(&bytes, error, Code::DDP_UNTAGGED_INVALID_QN);
    let bytes = zeros([0x41, 0x41], 1, 4, 28);
    let error = SegmentError::OffsetInSingleSegment { opcode, mo: 4 };
    assert_refused(&bytes, error, Code::DDP_UNTAGGED_INVALID_MO);
    let bytes = zeros([0x01, 0x41], 1, 0, 28);
    let error = SegmentError::NotLast(opcode);
    assert_refused(&bytes, error, Code::RDMAP_UNEXPECTED_OPCODE);
    let bytes = zeros([0x41, 0x41], 1, 0, 27);
    let error = SegmentError::BodyTooShort { opcode, len: 27 };
    assert_refused(&bytes, error, Code::RDMAP_UNSPECIFIED);
    let bytes = zeros([0x41, 0x41], 1, 0, 29);
    let error = SegmentError::BodyTooLong { opcode, len: 29 };
    assert_refused(&bytes, error, Code::DDP_UNTAGGED_TOO_LONG);
}

#[test]
fn the_header_of_a_long_segment_can_be_read_before_its_end() {
    let tagged = Tagged {
        last: true,
        stag: 1,
        to: 2,
    };
    let mut bytes = Vec::new();
    let segment = Segment {
        header: Header::Write(tagged),
        payload: &[5; 1000],
    };
    segment.emit_into(&mut bytes);
    for end in 14..bytes.len() {
        assert_eq!(
            Header::parse(&bytes[..end]),
            Ok((segment.header, &segment.payload[..end - 14]))
        );
    }
}
