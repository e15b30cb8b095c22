//! Everything siw put on the wire is understood, and emitted again byte for byte.

use std::collections::{BTreeMap, BTreeSet};

use nonic_wire::iwarp::{
    Crc32c, Deframer, FrameKind, Framer, Framing, Header, MpaFrame, Opcode, ParsedMpa, Revision, Segment,
    Terminate, TerminateCode, TerminateForm, fpdu,
};

use crate::iwarp::streams::{self, Connection};

/// FPDUs in all captures together. A test that looks at nothing would pass, so this is counted.
const FPDUS: usize = 303;
/// FPDUs, of any kind, that siw padded with bytes left over from an earlier one, where the RFC has zeros.
const DIRTY_PADS: usize = 6;

#[test]
fn every_fpdu_is_emitted_byte_for_byte_as_it_was_parsed() {
    let (mut fpdus, mut dirty_pads) = (0, 0);
    for connection in streams::all() {
        for direction in Direction::both(&connection) {
            let mut framer = Framer::new(direction.framing);
            let mut emitted = Vec::new();
            for (index, ulpdu) in direction.ulpdus(usize::MAX).iter().enumerate() {
                let segment =
                    Segment::parse(ulpdu).unwrap_or_else(|error| panic!("{}: {error}", connection.name));
                let start = emitted.len();
                framer.frame(&segment, &mut emitted);
                let mut received = direction.stream[start..emitted.len()].to_vec();
                dirty_pads += usize::from(clean_pad(&mut received, ulpdu.len(), direction.framing.crc));
                assert_eq!(
                    emitted[start..],
                    received,
                    "{} FPDU {index}: {:?}",
                    connection.name,
                    segment.header
                );
                fpdus += 1;
            }
            assert_eq!(emitted.len(), direction.stream.len(), "{}", connection.name);
        }
    }
    assert_eq!((fpdus, dirty_pads), (FPDUS, DIRTY_PADS));
}

/// Makes the padding of a frame zero, as it should be, and its CRC fit. Returns whether it was not.
fn clean_pad(fpdu: &mut [u8], ulpdu_len: usize, crc: bool) -> bool {
    let (covered, found) = fpdu.split_at_mut(fpdu.len() - fpdu::CRC_LEN);
    let pad = &mut covered[fpdu::LENGTH_LEN + ulpdu_len..];
    let dirty = pad.iter().any(|&byte| byte != 0);
    pad.fill(0);
    if dirty && crc {
        found.copy_from_slice(&Crc32c::of(covered));
    }
    dirty
}

#[test]
fn the_frames_are_the_same_however_the_stream_is_cut() {
    for connection in streams::all() {
        for direction in Direction::both(&connection) {
            let whole = direction.ulpdus(usize::MAX);
            for chunk_len in [1, 3, 64, 1447, 1448, 4096] {
                assert!(
                    direction.ulpdus(chunk_len) == whole,
                    "{} in chunks of {chunk_len}",
                    connection.name
                );
            }
        }
    }
}

#[test]
fn every_start_up_frame_is_emitted_byte_for_byte_as_it_was_parsed() {
    let mut seen = BTreeSet::new();
    for connection in streams::all() {
        for (stream, kind) in [
            (&connection.from_initiator, FrameKind::Request),
            (&connection.from_responder, FrameKind::Reply),
        ] {
            let (frame, len) = start_up_frame(stream);
            assert_eq!(frame.kind, kind, "{}", connection.name);
            let mut emitted = Vec::new();
            frame.emit_into(&mut emitted).expect("it has been received");
            assert_eq!(emitted, stream[..len], "{}", connection.name);
            for end in 0..len {
                let prefix = MpaFrame::parse(&stream[..end]);
                assert!(
                    matches!(prefix, Ok(ParsedMpa::Incomplete { missing }) if missing <= len - end),
                    "{} up to {end}: {prefix:?}",
                    connection.name
                );
            }
            let peer_to_peer = frame
                .enhanced()
                .is_some_and(|enhanced| enhanced.peer_to_peer.is_some());
            seen.insert((frame.revision.number(), frame.crc, frame.rejected, peer_to_peer));
        }
    }
    let expected = [
        (1, false, false, false),
        (2, false, false, false),
        (2, true, false, false),
        (2, true, false, true),
        (2, true, true, false),
    ];
    assert_eq!(seen, expected.into());
}

#[test]
fn the_captures_hold_every_message_that_siw_sends() {
    let mut seen = BTreeMap::new();
    for_each_segment(|_, segment| *seen.entry(segment.header.opcode() as u8).or_insert(0) += 1);
    let expected = [
        Opcode::Write,
        Opcode::ReadRequest,
        Opcode::ReadResponse,
        Opcode::Send,
        Opcode::Terminate,
    ];
    assert_eq!(
        seen.keys().copied().collect::<Vec<_>>(),
        expected.map(|opcode| opcode as u8)
    );
}

#[test]
fn terminates_of_siw_are_read_as_they_were_meant() {
    let mut seen = BTreeMap::new();
    for_each_segment(|name, segment| {
        if let Header::Terminate { msn } = segment.header {
            assert_eq!(msn, 1);
            let (terminate, form) = Terminate::parse(segment.payload, true).expect("it has a code");
            assert_eq!(form, TerminateForm::Siw, "{name}");
            let offender = terminate.ddp.expect("siw sends the header back").control();
            let offender = Opcode::from_bits(offender.opcode()).expect("a known message");
            let capture = name.split(':').next().expect("the name of a capture").to_owned();
            let sizes = terminate.read_request.map(|request| request.size);
            seen.insert(capture, (terminate.code, terminate.segment_len, offender, sizes));
            // What we would send about the same matter reads the same, in the form of the RFC.
            let mut ours = [0; Terminate::MAX_LEN];
            let len = terminate.emit(&mut ours);
            let again = Terminate::parse(&ours[..len], true);
            assert_eq!(again, Some((terminate, TerminateForm::Rfc)));
        }
    });
    let expected = [
        (
            "siw_badrkey",
            (TerminateCode::DDP_TAGGED_INVALID_STAG, Opcode::Write),
        ),
        (
            "siw_crc_badrkey",
            (TerminateCode::DDP_TAGGED_INVALID_STAG, Opcode::Write),
        ),
        (
            "siw_crc_noaccess",
            (TerminateCode::DDP_TAGGED_INVALID_STAG, Opcode::Write),
        ),
        (
            "siw_crc_norecv",
            (TerminateCode::DDP_UNTAGGED_NO_BUFFER, Opcode::Send),
        ),
        ("siw_crc_oob", (TerminateCode::DDP_TAGGED_BOUNDS, Opcode::Write)),
        (
            "siw_crc_readbadrkey",
            (TerminateCode::RDMAP_INVALID_STAG, Opcode::ReadRequest),
        ),
        (
            "siw_crc_toolong",
            (TerminateCode::DDP_UNTAGGED_NO_BUFFER, Opcode::Send),
        ),
    ];
    let expected: BTreeMap<_, _> = expected
        .into_iter()
        .map(|(name, (code, opcode))| {
            // The length is that of the payload only, and a Read Request has none.
            let (segment_len, read_size) = match opcode {
                Opcode::ReadRequest => (Some(0), Some(64)),
                _ => (Some(64), None),
            };
            (name.to_owned(), (code, segment_len, opcode, read_size))
        })
        .collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_flipped_bit_anywhere_in_a_frame_is_noticed() {
    for connection in streams::all() {
        for direction in Direction::both(&connection) {
            if !direction.framing.crc {
                continue;
            }
            let Some(first) = direction.ulpdus(usize::MAX).into_iter().next() else {
                continue;
            };
            let len = fpdu::fpdu_len(first.len());
            for bit in 0..len * 8 {
                let mut damaged = direction.stream[..len].to_vec();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let mut deframer = Deframer::new(direction.framing);
                let found = deframer.next(&mut damaged.as_slice());
                // A longer length makes the receiver wait for bytes that do not belong to the frame.
                let waits = bit < 16 && found == Ok(None);
                assert!(found.is_err() || waits, "{} bit {bit}", connection.name);
            }
        }
    }
}

/// One direction of a connection in full operation.
struct Direction<'a> {
    stream: &'a [u8],
    framing: Framing,
}

impl<'a> Direction<'a> {
    fn both(connection: &'a Connection) -> [Direction<'a>; 2] {
        let (request, request_len) = start_up_frame(&connection.from_initiator);
        let (reply, reply_len) = start_up_frame(&connection.from_responder);
        assert!(matches!(request.revision, Revision::One | Revision::Two(Some(_))));
        let crc = request.crc || reply.crc;
        let direction = |stream, markers| Direction {
            stream,
            framing: Framing { crc, markers },
        };
        [
            direction(&connection.from_initiator[request_len..], reply.markers),
            direction(&connection.from_responder[reply_len..], request.markers),
        ]
    }

    /// All frames, the stream cut into chunks of the given length.
    fn ulpdus(&self, chunk_len: usize) -> Vec<Vec<u8>> {
        let mut deframer = Deframer::new(self.framing);
        let mut ulpdus = Vec::new();
        for mut chunk in self.stream.chunks(chunk_len) {
            while let Some(ulpdu) = deframer.next(&mut chunk).expect("siw frames correctly") {
                ulpdus.push(ulpdu.to_vec());
            }
            assert!(chunk.is_empty());
        }
        assert!(deframer.is_at_boundary());
        ulpdus
    }
}

fn start_up_frame(stream: &[u8]) -> (MpaFrame<'_>, usize) {
    match MpaFrame::parse(stream) {
        Ok(ParsedMpa::Whole { frame, len }) => (frame, len),
        other => panic!("no start-up frame: {other:?}"),
    }
}

fn for_each_segment(mut look: impl FnMut(&str, Segment<'_>)) {
    for connection in streams::all() {
        for direction in Direction::both(&connection) {
            for ulpdu in direction.ulpdus(usize::MAX) {
                look(
                    &connection.name,
                    Segment::parse(&ulpdu).expect("siw sends segments"),
                );
            }
        }
    }
}
