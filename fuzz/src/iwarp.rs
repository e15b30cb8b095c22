//! iWARP: start-up frames, streams of FPDUs cut anywhere, segments and Terminates, from any bytes.

use nonic_wire::iwarp::fpdu::{MAX_ULPDU, fpdu_len};
use nonic_wire::iwarp::{
    Deframer, Framer, Framing, FramingError, MpaFrame, ParsedMpa, Segment, Terminate, TerminateForm,
};

/// A start-up frame that parses is emitted with the same length and parses to the same value; every prefix of
/// it is incomplete; what is refused stays refused when more bytes come.
pub fn mpa(bytes: &[u8]) {
    match MpaFrame::parse(bytes) {
        Ok(ParsedMpa::Whole { frame, len }) => {
            assert!(len <= bytes.len() && len <= MpaFrame::MAX_LEN);
            let mut emitted = Vec::new();
            frame
                .emit_into(&mut emitted)
                .expect("what was parsed is not too long");
            assert_eq!(emitted.len(), len);
            assert_eq!(MpaFrame::parse(&emitted), Ok(ParsedMpa::Whole { frame, len }));
            for end in 0..len {
                let prefix = MpaFrame::parse(&bytes[..end]);
                assert!(
                    matches!(prefix, Ok(ParsedMpa::Incomplete { missing }) if missing > 0 && missing <= len - end)
                );
            }
        }
        Ok(ParsedMpa::Incomplete { missing }) => {
            assert!(missing > 0 && bytes.len() + missing <= MpaFrame::MAX_LEN);
        }
        Err(error) => {
            let mut longer = bytes.to_vec();
            longer.extend_from_slice(&[0x5a; 3]);
            assert_eq!(MpaFrame::parse(&longer), Err(error));
        }
    }
}

/// The first byte chooses CRCs and markers, the second how the rest is used.
///
/// As it is: frames and the error, if any, do not depend on how the stream is cut, and the memory kept is
/// bounded. As content: what a framer made of it comes back, however it is cut.
pub fn deframer(bytes: &[u8]) {
    let Some((&[choice, pace], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let framing = Framing {
        crc: choice & 1 != 0,
        markers: choice & 2 != 0,
    };
    if choice & 4 == 0 {
        let whole = deframe(framing, rest, usize::MAX, 0);
        assert_eq!(deframe(framing, rest, 1, 0), whole);
        assert_eq!(deframe(framing, rest, usize::from(pace) + 1, choice), whole);
        return;
    }
    let mut framer = Framer::new(framing);
    let (mut stream, mut ulpdus) = (Vec::new(), Vec::new());
    // Pieces of uneven length, so that markers fall on every part of a frame.
    for (index, ulpdu) in rest.chunks(usize::from(pace) * 3 + 1).enumerate() {
        let ulpdu = ulpdu.repeat(index % 4 + 1);
        let start = stream.len();
        stream.extend_from_slice(&(ulpdu.len() as u16).to_be_bytes());
        stream.extend_from_slice(&ulpdu);
        framer.seal(&mut stream, start);
        assert!((stream.len() - start) % 4 == 0);
        ulpdus.push(ulpdu);
    }
    let expected = Outcome {
        ulpdus,
        error: None,
        at_boundary: true,
    };
    for (len, step) in [(usize::MAX, 0), (1, 0), (usize::from(pace) + 1, choice)] {
        assert_eq!(deframe(framing, &stream, len, step), expected);
    }
    // Any damage under a CRC is found: at the latest when the frame is whole, which a longer length delays.
    if framing.crc && !stream.is_empty() {
        let at = usize::from(choice) * 257 % stream.len();
        stream[at] ^= pace | 1;
        let outcome = deframe(framing, &stream, usize::MAX, 0);
        assert!(outcome.error.is_some() || !outcome.at_boundary);
    }
}

#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    ulpdus: Vec<Vec<u8>>,
    error: Option<FramingError>,
    at_boundary: bool,
}

/// Feeds a stream in chunks: the first `len` bytes long, each further one `step` bytes longer.
fn deframe(framing: Framing, mut stream: &[u8], mut len: usize, step: u8) -> Outcome {
    let mut deframer = Deframer::new(framing);
    let mut outcome = Outcome {
        ulpdus: Vec::new(),
        error: None,
        at_boundary: false,
    };
    while !stream.is_empty() && outcome.error.is_none() {
        let (mut chunk, behind) = stream.split_at(stream.len().min(len));
        loop {
            match deframer.next(&mut chunk) {
                Ok(Some(ulpdu)) => outcome.ulpdus.push(ulpdu.to_vec()),
                Ok(None) => break assert!(chunk.is_empty()),
                Err(error) => {
                    assert_eq!(deframer.next(&mut &behind[..0]), Err(error), "an error is final");
                    outcome.error = Some(error);
                    break;
                }
            }
        }
        assert!(deframer.capacity() <= 2 * fpdu_len(MAX_ULPDU));
        assert!(deframer.missing() > 0);
        stream = behind;
        len = len.saturating_add(usize::from(step));
    }
    outcome.at_boundary = deframer.is_at_boundary();
    outcome
}

/// A segment that parses is emitted with the same length and parses to the same value; one that does not has a
/// code, and the Terminate about it can be read.
pub fn rdmap(bytes: &[u8]) {
    match Segment::parse(bytes) {
        Ok(segment) => {
            let mut emitted = Vec::new();
            segment.emit_into(&mut emitted);
            assert_eq!(emitted.len(), bytes.len(), "{segment:?}");
            assert_eq!(Segment::parse(&emitted), Ok(segment));
            assert_eq!(segment.len(), bytes.len());
        }
        Err(error) => {
            let code = error.terminate_code();
            assert!(code.is_assigned());
            let about = Terminate::about(code, bytes);
            let mut body = [0; Terminate::MAX_LEN];
            let len = about.emit(&mut body);
            let (read, form) = Terminate::parse(&body[..len], true).expect("it has a code");
            assert_eq!((read, form), (about, TerminateForm::Rfc));
        }
    }
}

/// Any body has an answer; what carries headers reads the same after it was written in the form of the RFC.
pub fn terminate(bytes: &[u8]) {
    for full_operation in [false, true] {
        let Some((terminate, _)) = Terminate::parse(bytes, full_operation) else {
            assert!(bytes.len() < Terminate::HEADER_LEN);
            continue;
        };
        let mut emitted = [0; Terminate::MAX_LEN];
        let len = terminate.emit(&mut emitted);
        let (again, form) = Terminate::parse(&emitted[..len], full_operation).expect("it has a code");
        if terminate.segment_len.is_some() || terminate.ddp.is_some() {
            assert_eq!((again, form), (terminate, TerminateForm::Rfc));
        } else {
            assert_eq!(len, Terminate::HEADER_LEN);
        }
        assert!(!terminate.code.to_string().is_empty());
    }
}
