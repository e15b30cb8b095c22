//! Start-up frames that are wrong, unusual or at their limits.

use nonic_wire::iwarp::{Enhanced, FrameKind, MpaError, MpaFrame, ParsedMpa, Revision, Rtr};

/// A frame by its parts: which key, flags, revision, length field and the bytes behind them.
fn frame(kind: &str, flags: u8, revision: u8, length: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = format!("MPA ID {kind} Frame").into_bytes();
    bytes.extend_from_slice(&[flags, revision]);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn whole(bytes: &[u8]) -> MpaFrame<'_> {
    match MpaFrame::parse(bytes) {
        Ok(ParsedMpa::Whole { frame, .. }) => frame,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wrong_key_is_noticed_at_its_first_wrong_byte() {
    let right = frame("Req", 0, 1, 0, &[]);
    for at in 0..16 {
        let mut wrong = right.clone();
        wrong[at] ^= 0x20;
        assert_eq!(
            MpaFrame::parse(&wrong[..=at]),
            Err(MpaError::WrongKey),
            "byte {at}"
        );
        assert!(matches!(
            MpaFrame::parse(&wrong[..at]),
            Ok(ParsedMpa::Incomplete { .. })
        ));
    }
    assert_eq!(
        MpaFrame::parse(b"GET / HTTP/1.1\r\n\r\n"),
        Err(MpaError::WrongKey)
    );
}

#[test]
fn only_revisions_one_and_two_are_spoken() {
    for revision in 0..=255 {
        let bytes = frame("Rep", 0, revision, 0, &[]);
        match revision {
            1 => assert_eq!(whole(&bytes).revision, Revision::One),
            2 => assert_eq!(whole(&bytes).revision, Revision::Two(None)),
            _ => assert_eq!(
                MpaFrame::parse(&bytes),
                Err(MpaError::UnsupportedRevision(revision))
            ),
        }
    }
}

#[test]
fn private_data_has_512_bytes_at_most() {
    let data = [7; 512];
    assert_eq!(whole(&frame("Req", 0, 1, 512, &data)).private_data, data);
    for length in [513, u16::MAX] {
        // Refused by the length field alone: the parser does not wait for so much.
        let bytes = frame("Req", 0, 1, length, &[]);
        let error = MpaError::PrivateDataTooLong(usize::from(length));
        assert_eq!(MpaFrame::parse(&bytes), Err(error));
    }
    let request = frame("Req", 0x10, 2, 4, &[0; 4]);
    let mut too_long = whole(&request);
    too_long.private_data = &data[..509];
    let mut out = Vec::new();
    assert_eq!(
        too_long.emit_into(&mut out),
        Err(MpaError::PrivateDataTooLong(513))
    );
    assert!(out.is_empty());
    too_long.private_data = &data[..508];
    assert_eq!(too_long.emit_into(&mut out), Ok(()));
    assert_eq!(out.len(), MpaFrame::MAX_LEN);
}

#[test]
fn an_enhanced_frame_has_its_four_bytes() {
    for length in 0..4 {
        let bytes = frame("Rep", 0x10, 2, length, &[0; 4]);
        assert_eq!(
            MpaFrame::parse(&bytes),
            Err(MpaError::EnhancedDataMissing(length))
        );
    }
    let reply = frame("Rep", 0x50, 2, 6, &[0x80, 1, 0x80, 2, 0xaa, 0xbb]);
    let reply = whole(&reply);
    let rtr = Rtr {
        write: true,
        ..Rtr::default()
    };
    let enhanced = Enhanced {
        ird: 1,
        ord: 2,
        peer_to_peer: Some(rtr),
    };
    assert_eq!(reply.enhanced(), Some(enhanced));
    assert_eq!(reply.private_data, [0xaa, 0xbb]);
}

#[test]
fn in_revision_one_the_flag_of_enhanced_frames_is_reserved() {
    let bytes = frame("Req", 0x1f, 1, 4, b"data");
    let request = whole(&bytes);
    assert_eq!(
        (request.revision, request.private_data),
        (Revision::One, &b"data"[..])
    );
}

#[test]
fn a_request_cannot_be_a_rejection() {
    let bytes = frame("Req", 0x20, 1, 0, &[]);
    let mut request = whole(&bytes);
    assert!(!request.rejected);
    request.rejected = true;
    let mut out = Vec::new();
    request.emit_into(&mut out).unwrap();
    assert_eq!(out, frame("Req", 0, 1, 0, &[]));
    assert!(whole(&frame("Rep", 0x20, 1, 0, &[])).rejected);
}

#[test]
fn kinds_of_rtr_mean_nothing_without_peer_to_peer_mode() {
    let bytes = [0x7f, 0xff, 0xff, 0xff];
    let expected = Enhanced {
        ird: Enhanced::NOT_NEGOTIATED,
        ord: Enhanced::NOT_NEGOTIATED,
        peer_to_peer: None,
    };
    assert_eq!(Enhanced::parse(&bytes), expected);
}

#[test]
fn what_follows_a_frame_is_left_alone() {
    let mut bytes = frame("Rep", 0x40, 1, 3, b"abc");
    let len = bytes.len();
    bytes.extend_from_slice(b"first FPDU");
    let Ok(ParsedMpa::Whole { frame, len: taken }) = MpaFrame::parse(&bytes) else {
        panic!("a whole frame");
    };
    assert_eq!(
        (frame.kind, frame.crc, frame.markers, taken),
        (FrameKind::Reply, true, false, len)
    );
}
