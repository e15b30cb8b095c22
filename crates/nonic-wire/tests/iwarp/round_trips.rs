//! What can be built can be emitted and read back; what arrives can be anything.

use nonic_wire::iwarp::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

proptest! {
    #[test]
    fn start_up_frames_come_back(frame in start_up_frame(), behind in vec(any::<u8>(), 0..8)) {
        let (kind, flags, revision, private_data) = frame;
        let frame = MpaFrame {
            kind,
            markers: flags & 1 != 0,
            crc: flags & 2 != 0,
            rejected: kind == FrameKind::Reply && flags & 4 != 0,
            revision,
            private_data: &private_data,
        };
        let mut bytes = Vec::new();
        prop_assert_eq!(frame.emit_into(&mut bytes), Ok(()));
        let len = bytes.len();
        bytes.extend_from_slice(&behind);
        prop_assert_eq!(MpaFrame::parse(&bytes), Ok(ParsedMpa::Whole { frame, len }));
        for end in 0..len {
            let incomplete = matches!(MpaFrame::parse(&bytes[..end]), Ok(ParsedMpa::Incomplete { .. }));
            prop_assert!(incomplete);
        }
    }

    #[test]
    fn enhanced_data_comes_back(enhanced in enhanced()) {
        prop_assert_eq!(Enhanced::parse(&enhanced.emit()), enhanced);
    }

    #[test]
    fn segments_come_back(header in header(), payload in vec(any::<u8>(), 0..100)) {
        let payload = if header.carries_payload() { payload } else { Vec::new() };
        let segment = Segment { header, payload: &payload };
        let mut bytes = Vec::new();
        segment.emit_into(&mut bytes);
        prop_assert_eq!(bytes.len(), segment.len());
        prop_assert_eq!(Segment::parse(&bytes), Ok(segment));
        prop_assert_eq!(DdpHeader::parse(&bytes).map(|(ddp, _)| ddp), Some(header.ddp()));
    }

    #[test]
    fn any_ddp_header_comes_back(bytes in vec(any::<u8>(), 0..40)) {
        if let Some((header, rest)) = DdpHeader::parse(&bytes) {
            let mut emitted = [0; DdpHeader::UNTAGGED_LEN];
            let len = header.emit(&mut emitted);
            prop_assert_eq!([&emitted[..len], rest].concat(), bytes);
        }
    }

    #[test]
    fn terminates_come_back(
        code in (0..16u8, 0..16u8, any::<u8>()),
        segment_len: u16,
        about in option::of((header(), option::of(read_request()))),
    ) {
        let mut terminate = Terminate::new(TerminateCode::new(code.0, code.1, code.2));
        if let Some((header, read_request)) = about {
            terminate.segment_len = Some(segment_len);
            terminate.ddp = Some(header.ddp());
            terminate.read_request = read_request;
        }
        let mut bytes = [0; Terminate::MAX_LEN];
        let len = terminate.emit(&mut bytes);
        let read = Terminate::parse(&bytes[..len], true);
        if terminate.ddp.is_some() {
            prop_assert_eq!(read, Some((terminate, TerminateForm::Rfc)));
        } else {
            prop_assert!(read.is_some());
        }
    }

    #[test]
    fn streams_come_back_however_they_are_cut(
        segments in vec((header(), vec(any::<u8>(), 0..1500)), 1..12),
        crc: bool,
        markers: bool,
        cuts in vec(1..700usize, 1..6),
    ) {
        let framing = Framing { crc, markers };
        let mut framer = Framer::new(framing);
        let (mut stream, mut ulpdus) = (Vec::new(), Vec::new());
        for (header, payload) in &segments {
            let segment = Segment { header: *header, payload };
            framer.frame(&segment, &mut stream);
            let mut ulpdu = Vec::new();
            segment.emit_into(&mut ulpdu);
            ulpdus.push(ulpdu);
        }
        prop_assert_eq!(stream.len() % 4, 0);
        let mut deframer = Deframer::new(framing);
        let mut received = Vec::new();
        let mut rest = stream.as_slice();
        for len in cuts.iter().cycle() {
            let (mut chunk, behind) = rest.split_at(rest.len().min(*len));
            while let Some(ulpdu) = deframer.next(&mut chunk).expect("an undamaged stream") {
                received.push(ulpdu.to_vec());
            }
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(deframer.is_at_boundary());
        prop_assert_eq!(received, ulpdus);
    }

    #[test]
    fn a_damaged_stream_is_noticed(
        payload in vec(any::<u8>(), 0..1500),
        markers: bool,
        at: prop::sample::Index,
        damage in 1..=255u8,
    ) {
        let framing = Framing { crc: true, markers };
        let mut stream = Vec::new();
        let mut framer = Framer::new(framing);
        let header = Header::Write(Tagged::default());
        framer.frame(&Segment { header, payload: &payload }, &mut stream);
        let at = at.index(stream.len());
        stream[at] ^= damage;
        let mut deframer = Deframer::new(framing);
        let found = deframer.next(&mut stream.as_slice());
        // Too long a length makes the receiver wait; the bytes that then come cannot make the CRC fit.
        prop_assert!(found.is_err() || found == Ok(None));
    }

    #[test]
    fn any_bytes_are_answered(bytes in vec(any::<u8>(), 0..600), crc: bool, markers: bool) {
        let _ = MpaFrame::parse(&bytes);
        let _ = Segment::parse(&bytes);
        let _ = Terminate::parse(&bytes, crc);
        let mut deframer = Deframer::new(Framing { crc, markers });
        let mut chunk = bytes.as_slice();
        while let Ok(Some(ulpdu)) = deframer.next(&mut chunk) {
            let _ = Segment::parse(ulpdu);
        }
    }
}

type StartUpParts = (FrameKind, u8, Revision, Vec<u8>);

fn start_up_frame() -> impl Strategy<Value = StartUpParts> {
    let kind = prop_oneof![Just(FrameKind::Request), Just(FrameKind::Reply)];
    let revision = prop_oneof![
        Just(Revision::One),
        option::of(enhanced()).prop_map(Revision::Two)
    ];
    (kind, any::<u8>(), revision, vec(any::<u8>(), 0..=508))
}

fn enhanced() -> impl Strategy<Value = Enhanced> {
    let rtr = any::<[bool; 3]>().prop_map(|[send, write, read]| Rtr { send, write, read });
    (0..0x4000u16, 0..0x4000u16, option::of(rtr)).prop_map(|(ird, ord, peer_to_peer)| Enhanced {
        ird,
        ord,
        peer_to_peer,
    })
}

fn header() -> impl Strategy<Value = Header> {
    prop_oneof![
        tagged().prop_map(Header::Write),
        tagged().prop_map(Header::ReadResponse),
        (any::<u32>(), read_request()).prop_map(|(msn, request)| Header::ReadRequest { msn, request }),
        (any::<(bool, Option<u32>)>(), any::<(u32, u32, bool)>()).prop_map(
            |((solicited, invalidate_stag), (msn, mo, last))| Header::Send {
                kind: SendKind {
                    solicited,
                    invalidate_stag
                },
                msn,
                mo,
                last,
            }
        ),
        any::<u32>().prop_map(|msn| Header::Terminate { msn }),
        any::<(bool, u32, u64)>().prop_map(|(solicited, msn, data)| Header::Immediate {
            solicited,
            msn,
            data
        }),
        (any::<u32>(), atomic_request()).prop_map(|(msn, request)| Header::AtomicRequest { msn, request }),
        any::<(u32, u32, u64)>().prop_map(|(msn, request_id, original)| Header::AtomicResponse {
            msn,
            request_id,
            original,
        }),
    ]
}

fn tagged() -> impl Strategy<Value = Tagged> {
    any::<(bool, u32, u64)>().prop_map(|(last, stag, to)| Tagged { last, stag, to })
}

fn read_request() -> impl Strategy<Value = ReadRequest> {
    any::<(u32, u64, u32, u32, u64)>().prop_map(|(sink_stag, sink_to, size, source_stag, source_to)| {
        ReadRequest {
            sink_stag,
            sink_to,
            size,
            source_stag,
            source_to,
        }
    })
}

fn atomic_request() -> impl Strategy<Value = AtomicRequest> {
    let operation = prop_oneof![
        Just(AtomicOperation::FetchAdd),
        Just(AtomicOperation::CompareSwap)
    ];
    (operation, any::<(u32, u32, u64)>(), any::<[u64; 4]>()).prop_map(
        |(operation, (request_id, stag, to), [add_swap, add_swap_mask, compare, compare_mask])| {
            AtomicRequest {
                operation,
                request_id,
                stag,
                to,
                add_swap,
                add_swap_mask,
                compare,
                compare_mask,
            }
        },
    )
}
