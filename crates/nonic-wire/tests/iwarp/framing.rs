//! Frames in a stream: the examples of RFC 5044, limits, markers, and what a damaged stream leads to.

use nonic_wire::iwarp::fpdu::{
    CRC_LEN, FpduHead, LENGTH_LEN, MAX_MULPDU, MAX_ULPDU, MIN_MULPDU, Trailer, fpdu_len, mulpdu, pad_len,
};
use nonic_wire::iwarp::{
    Crc32c, Deframer, Framer, Framing, FramingError, Header, Segment, SendKind, Tagged, TerminateCode,
    markers,
};

const PLAIN: Framing = Framing {
    crc: false,
    markers: false,
};
const CRC: Framing = Framing {
    crc: true,
    markers: false,
};
const CRC_AND_MARKERS: Framing = Framing {
    crc: true,
    markers: true,
};

fn send(msn: u32) -> Header {
    Header::Send {
        kind: SendKind::default(),
        msn,
        mo: 0,
        last: true,
    }
}

/// The stream of the examples: a Send whose FPDU is 488 bytes or, without it, none; then a Send of 24 zeros.
fn example_stream(framing: Framing, with_first: bool) -> (Vec<u8>, usize) {
    let mut framer = Framer::new(framing);
    let mut stream = Vec::new();
    if with_first {
        // 492 bytes with the marker at its head.
        let payload = [0xa5; 488 - 24];
        let header = send(1);
        framer.frame(
            &Segment {
                header,
                payload: &payload,
            },
            &mut stream,
        );
    }
    let start = stream.len();
    let header = send(if with_first { 2 } else { 1 });
    framer.frame(
        &Segment {
            header,
            payload: &[0; 24],
        },
        &mut stream,
    );
    (stream, start)
}

#[test]
fn figure_5_of_rfc_5044() {
    let (stream, _) = example_stream(CRC_AND_MARKERS, false);
    let mut expected = vec![0, 0, 0, 0, 0x00, 0x2a, 0x41, 0x43];
    expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    expected.extend_from_slice(&[0; 24]);
    expected.extend_from_slice(&[0x52, 0x23, 0x99, 0x83]);
    assert_eq!(stream, expected);
}

#[test]
fn figure_6_of_rfc_5044() {
    let (stream, start) = example_stream(CRC_AND_MARKERS, true);
    assert_eq!(start, 0x1ec);
    let mut expected = vec![0x00, 0x2a, 0x41, 0x43];
    expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    expected.extend_from_slice(&[0, 0, 0, 0x14]);
    expected.extend_from_slice(&[0; 24]);
    expected.extend_from_slice(&[0x84, 0x92, 0x58, 0x98]);
    assert_eq!(stream[start..], expected);
    let mut deframer = Deframer::new(CRC_AND_MARKERS);
    let mut chunk = stream.as_slice();
    assert_eq!(deframer.next(&mut chunk).unwrap().unwrap().len(), 18 + 464);
    assert_eq!(deframer.next(&mut chunk).unwrap().unwrap().len(), 18 + 24);
    assert_eq!(deframer.next(&mut chunk), Ok(None));
}

#[test]
fn crc_check_values_of_rfc_3720() {
    // Appendix B.4: bytes of zeros, of ones, rising and falling.
    let rising: Vec<u8> = (0..32).collect();
    let falling: Vec<u8> = (0..32).rev().collect();
    for (bytes, crc) in [
        (&[0; 32][..], [0xaa, 0x36, 0x91, 0x8a]),
        (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
        (&rising, [0x4e, 0x79, 0xdd, 0x46]),
        (&falling, [0x5c, 0xdb, 0x3f, 0x11]),
    ] {
        assert_eq!(Crc32c::of(bytes), crc);
        for cut in 0..=bytes.len() {
            let mut pieces = Crc32c::new();
            pieces.update(&bytes[..cut]);
            pieces.update(&bytes[cut..]);
            assert_eq!(pieces.finish(), crc);
        }
    }
}

#[test]
fn frames_are_multiples_of_four() {
    for len in 0..=MAX_ULPDU {
        assert!(pad_len(len) < 4 && fpdu_len(len) % 4 == 0);
        assert_eq!(fpdu_len(len), LENGTH_LEN + len + pad_len(len) + CRC_LEN);
    }
}

#[test]
fn the_longest_ulpdu_fills_a_segment_and_no_more() {
    for emss in 0..70_000 {
        for markers in [false, true] {
            let longest = mulpdu(emss, markers);
            assert!((MIN_MULPDU..=MAX_MULPDU).contains(&longest));
            if longest > MIN_MULPDU {
                let markers = if markers { emss.div_ceil(512) * 4 } else { 0 };
                assert!(fpdu_len(longest) + markers <= emss, "EMSS {emss}");
                assert!(
                    longest == MAX_MULPDU || fpdu_len(longest + 1) + markers > emss,
                    "EMSS {emss}"
                );
            }
        }
    }
}

#[test]
fn pieces_for_a_gathering_call_are_the_frame_in_a_buffer() {
    let payload: Vec<u8> = (0..=255).cycle().take(1429).collect();
    let tagged = Tagged {
        last: true,
        stag: 1,
        to: 0x1000,
    };
    for len in [0, 1, 2, 3, 4, 5, 1426, 1427, 1428, 1429] {
        for framing in [PLAIN, CRC] {
            let segment = Segment {
                header: Header::Write(tagged),
                payload: &payload[..len],
            };
            let mut whole = Vec::new();
            Framer::new(framing).frame(&segment, &mut whole);

            let head = FpduHead::new(&segment.header, len);
            let trailer = if framing.crc {
                let mut crc = Crc32c::new();
                crc.update(&head);
                let (first, second) = segment.payload.split_at(len / 3);
                crc.update(first);
                crc.update(second);
                Trailer::sealed(segment.len(), crc)
            } else {
                Trailer::unchecked(segment.len())
            };
            assert_eq!(
                [&head[..], segment.payload, &trailer].concat(),
                whole,
                "{len} bytes"
            );
        }
    }
}

#[test]
fn a_frame_in_one_chunk_is_borrowed_and_a_cut_one_is_collected() {
    let mut stream = Vec::new();
    let mut framer = Framer::new(CRC);
    for msn in 1..=3 {
        framer.frame(
            &Segment {
                header: send(msn),
                payload: &[msn as u8; 100],
            },
            &mut stream,
        );
    }
    let mut deframer = Deframer::new(CRC);
    let mut chunk = stream.as_slice();
    for _ in 0..3 {
        let ulpdu = deframer.next(&mut chunk).unwrap().unwrap();
        assert!(stream.as_ptr_range().contains(&ulpdu.as_ptr()));
    }
    assert_eq!(deframer.capacity(), 0);
    assert!(deframer.is_at_boundary());

    let frame = stream.len() / 3;
    let (mut first, mut second) = stream.split_at(frame + 50);
    let mut deframer = Deframer::new(CRC);
    assert!(deframer.next(&mut first).unwrap().is_some());
    assert_eq!(deframer.next(&mut first), Ok(None));
    assert!(!deframer.is_at_boundary());
    assert_eq!(deframer.missing(), frame - 50);
    let ulpdu = deframer.next(&mut second).unwrap().unwrap();
    assert!(!stream.as_ptr_range().contains(&ulpdu.as_ptr()));
    // The third lies whole in its chunk again.
    assert!(deframer.is_at_boundary());
    let ulpdu = deframer.next(&mut second).unwrap().unwrap();
    assert!(stream.as_ptr_range().contains(&ulpdu.as_ptr()));
    deframer.release_memory();
    assert_eq!(deframer.capacity(), 0);
}

#[test]
fn memory_grows_with_what_came_and_not_with_what_was_announced() {
    let mut deframer = Deframer::new(PLAIN);
    assert_eq!(deframer.next(&mut &[0xff, 0xff, 1][..]), Ok(None));
    assert!(deframer.capacity() < 100);
    assert_eq!(deframer.missing(), fpdu_len(0xffff) - 3);
    let rest = vec![0; deframer.missing()];
    let mut chunk = rest.as_slice();
    assert_eq!(deframer.next(&mut chunk).unwrap().unwrap().len(), 0xffff);
    assert!(deframer.capacity() < 2 * fpdu_len(0xffff));
}

#[test]
fn without_crcs_the_field_may_hold_anything() {
    let mut stream = Vec::new();
    let header = send(1);
    Framer::new(PLAIN).frame(
        &Segment {
            header,
            payload: b"x",
        },
        &mut stream,
    );
    let crc_at = stream.len() - CRC_LEN;
    stream[crc_at..].fill(0xcc);
    // Padding is not looked at either.
    stream[crc_at - 1] = 0xdd;
    assert_eq!(pad_len(19), 3);
    let mut deframer = Deframer::new(PLAIN);
    let ulpdu = deframer.next(&mut stream.as_slice()).unwrap().unwrap();
    assert_eq!(
        Segment::parse(ulpdu),
        Ok(Segment {
            header,
            payload: b"x"
        })
    );
}

#[test]
fn after_a_wrong_crc_nothing_more_is_read() {
    for framing in [CRC, CRC_AND_MARKERS] {
        let (mut stream, _) = example_stream(framing, false);
        let good = stream.clone();
        let last = stream.len() - 1;
        stream[last] ^= 0x80;
        for cut in [0, 1, 10, last] {
            let mut deframer = Deframer::new(framing);
            let (mut first, mut second) = stream.split_at(cut);
            assert_eq!(deframer.next(&mut first), Ok(None));
            let error = deframer.next(&mut second).unwrap_err();
            assert!(matches!(error, FramingError::Crc { .. }));
            assert_eq!(error.terminate_code(), TerminateCode::MPA_CRC);
            assert_eq!(deframer.next(&mut good.as_slice()), Err(error));
            assert!(!deframer.is_at_boundary());
        }
    }
}

#[test]
fn a_marker_that_points_elsewhere_ends_the_stream() {
    let (stream, start) = example_stream(CRC_AND_MARKERS, true);
    for (at, expected) in [(3, 0), (0x203, 0x14)] {
        let mut damaged = stream.clone();
        damaged[at] ^= 0x04;
        let mut deframer = Deframer::new(CRC_AND_MARKERS);
        let mut chunk = damaged.as_slice();
        if at > start {
            assert!(deframer.next(&mut chunk).unwrap().is_some());
        }
        let error = deframer.next(&mut chunk).unwrap_err();
        let found = expected ^ 0x04;
        assert_eq!(error, FramingError::Marker { found, expected });
        assert_eq!(error.terminate_code(), TerminateCode::MPA_MARKER);
    }
}

#[test]
fn a_marker_is_never_the_last_thing_in_a_stream() {
    // With the marker at its head this FPDU ends exactly where the next marker belongs.
    let mut stream = Vec::new();
    let mut framer = Framer::new(CRC_AND_MARKERS);
    let payload = [1; markers::INTERVAL - markers::LEN - 24];
    let header = send(1);
    framer.frame(
        &Segment {
            header,
            payload: &payload,
        },
        &mut stream,
    );
    assert_eq!(stream.len(), markers::INTERVAL);
    let mut deframer = Deframer::new(CRC_AND_MARKERS);
    let mut chunk = stream.as_slice();
    assert!(deframer.next(&mut chunk).unwrap().is_some());
    assert!(deframer.is_at_boundary());

    framer.frame(
        &Segment {
            header: send(2),
            payload: &[],
        },
        &mut stream,
    );
    assert_eq!(
        stream[512..518],
        [0, 0, 0, 0, 0, 18],
        "the marker is between two frames and points nowhere"
    );
    let mut marker = &stream[512..516];
    assert_eq!(deframer.next(&mut marker), Ok(None));
    assert!(
        !deframer.is_at_boundary(),
        "a marker is a part of what follows it"
    );
    let mut rest = &stream[516..];
    assert_eq!(deframer.next(&mut rest).unwrap().unwrap().len(), 18);
    assert!(deframer.is_at_boundary());
}

#[test]
fn a_marker_between_padding_and_crc_is_covered_by_the_crc() {
    // Head, payload and padding fill the 508 bytes up to the second marker, which then precedes the CRC.
    let payload = [1; 508 - LENGTH_LEN - 18 - 1];
    let segment = Segment {
        header: send(1),
        payload: &payload,
    };
    assert_eq!(pad_len(segment.len()), 1);
    let mut stream = Vec::new();
    Framer::new(CRC_AND_MARKERS).frame(&segment, &mut stream);
    assert_eq!(stream.len(), 520);
    assert_eq!(stream[512..516], [0, 0, 0x01, 0xfc]);
    assert_eq!(stream[516..], Crc32c::of(&stream[..516]));
    let mut deframer = Deframer::new(CRC_AND_MARKERS);
    let ulpdu = deframer.next(&mut stream.as_slice()).unwrap().unwrap();
    assert_eq!(Segment::parse(ulpdu), Ok(segment));
}
