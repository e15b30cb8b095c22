//! MPA start-up: which side sends what, what is agreed on, and which side gives up when.

use nonic_core::Time;
use nonic_core::iwarp::startup::{Startup, StartupConfig, StartupError, StartupEvent, StartupRequest};
use nonic_core::iwarp::{Rtr, StreamParams, StreamRole};
use nonic_wire::iwarp::{
    self as wire, Deframer, Enhanced, FrameKind, Framing, MpaError, MpaFrame, ParsedMpa, Revision, Segment,
    Terminate, TerminateCode,
};
use std::time::Duration;

const NOW: Time = Time::from_ns(1_000_000_000);

fn request(ird: u16, ord: u16, private_data: &[u8]) -> StartupRequest<'_> {
    StartupRequest {
        ird,
        ord,
        private_data,
    }
}

fn connect(config: &StartupConfig, asked: &StartupRequest<'_>) -> Startup {
    Startup::connect(NOW, config, asked).expect("the request is possible")
}

fn output(startup: &mut Startup) -> Vec<u8> {
    let mut out = Vec::new();
    startup.poll_transmit(&mut out);
    out
}

fn event(startup: &mut Startup) -> StartupEvent {
    let event = startup.poll_event().expect("something happened");
    assert_eq!(startup.poll_event(), None, "one thing at a time");
    event
}

#[track_caller]
fn failed(startup: &mut Startup, error: StartupError) {
    let try_plain = false;
    assert_eq!(event(startup), StartupEvent::Failed { error, try_plain });
    assert!(startup.is_over());
    assert_eq!(startup.poll_timeout(), None);
}

fn frame(kind: FrameKind, revision: Revision) -> MpaFrame<'static> {
    MpaFrame {
        kind,
        markers: false,
        crc: false,
        rejected: false,
        revision,
        private_data: &[],
    }
}

fn bytes(frame: &MpaFrame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit_into(&mut out).expect("it fits");
    out
}

fn enhanced(ird: u16, ord: u16, rtr: Option<wire::Rtr>) -> Revision {
    Revision::Two(Some(Enhanced {
        ird,
        ord,
        peer_to_peer: rtr,
    }))
}

fn kinds(write: bool, read: bool) -> Option<wire::Rtr> {
    Some(wire::Rtr {
        send: false,
        write,
        read,
    })
}

/// A responder with this Request before it.
fn asked(config: &StartupConfig, revision: Revision) -> Startup {
    let mut responder = Startup::listen(NOW, config);
    let request = bytes(&frame(FrameKind::Request, revision));
    assert_eq!(responder.handle_bytes(&request), request.len());
    assert!(matches!(
        event(&mut responder),
        StartupEvent::ConnectRequest { .. }
    ));
    responder
}

/// The Reply to a Request.
fn reply(responder: &mut Startup) -> (bool, Revision) {
    let out = output(responder);
    match MpaFrame::parse(&out) {
        Ok(ParsedMpa::Whole { frame, len }) if len == out.len() && frame.kind == FrameKind::Reply => {
            (frame.crc, frame.revision)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_sides_come_to_the_same_stream_and_hand_over_private_data() {
    let config = StartupConfig::default();
    let mut initiator = connect(&config, &request(4, 8, b"hello"));
    let mut responder = Startup::listen(NOW, &config);
    let asked = output(&mut initiator);
    assert_eq!(&asked[..16], b"MPA ID Req Frame");
    assert_eq!(
        asked[16..],
        [0x50, 2, 0, 9, 0x80, 4, 0xc0, 8, b'h', b'e', b'l', b'l', b'o']
    );
    assert_eq!(responder.handle_bytes(&asked), asked.len());
    assert_eq!(
        event(&mut responder),
        StartupEvent::ConnectRequest {
            peer_ird: 4,
            peer_ord: 8,
            private_data: b"hello".to_vec()
        }
    );
    let params = responder
        .accept(&request(16, 16, b"welcome"))
        .expect("there is a request");
    assert_eq!(
        params,
        StreamParams {
            role: StreamRole::Responder,
            crc: true,
            markers: false,
            ird: 16,
            ord: 4,
            rtr: Some(Rtr::Write)
        }
    );
    let answer = output(&mut responder);
    assert_eq!(initiator.handle_bytes(&answer), answer.len());
    assert_eq!(
        event(&mut initiator),
        StartupEvent::Accepted {
            params: StreamParams {
                role: StreamRole::Initiator,
                crc: true,
                markers: false,
                ird: 4,
                ord: 8,
                rtr: Some(Rtr::Write)
            },
            peer_ird: 16,
            peer_ord: 4,
            private_data: b"welcome".to_vec()
        }
    );
    assert!(initiator.is_over() && responder.is_over());
}

#[test]
fn frames_may_come_byte_by_byte() {
    let config = StartupConfig::default();
    let mut initiator = connect(&config, &request(1, 1, &[7; 100]));
    let mut responder = Startup::listen(NOW, &config);
    for byte in output(&mut initiator) {
        assert_eq!(responder.poll_event(), None);
        assert_eq!(responder.handle_bytes(&[byte]), 1);
    }
    event(&mut responder);
    responder.accept(&request(1, 1, &[])).expect("there is a request");
    for byte in output(&mut responder) {
        assert_eq!(initiator.poll_event(), None);
        assert_eq!(initiator.handle_bytes(&[byte]), 1);
    }
    assert!(matches!(event(&mut initiator), StartupEvent::Accepted { .. }));
}

#[test]
fn bytes_behind_a_reply_belong_to_the_stream() {
    let mut initiator = connect(&StartupConfig::default(), &request(1, 1, &[]));
    output(&mut initiator);
    let reply = bytes(&frame(FrameKind::Reply, enhanced(1, 1, None)));
    let mut stream = reply.clone();
    stream.extend_from_slice(&[1, 2, 3]);
    assert_eq!(initiator.handle_bytes(&stream[..10]), 10);
    assert_eq!(initiator.handle_bytes(&stream[10..]), reply.len() - 10);
    assert!(matches!(event(&mut initiator), StartupEvent::Accepted { .. }));
    assert_eq!(initiator.handle_bytes(&[1, 2, 3]), 0);
}

#[test]
fn nothing_may_follow_a_request() {
    let config = StartupConfig::default();
    let mut stream = bytes(&frame(FrameKind::Request, enhanced(1, 1, None)));
    stream.push(0);
    let mut responder = Startup::listen(NOW, &config);
    responder.handle_bytes(&stream);
    failed(&mut responder, StartupError::TooEarly);
    // Nor while the program decides.
    let mut responder = asked(&config, enhanced(1, 1, None));
    responder.handle_bytes(&[0]);
    failed(&mut responder, StartupError::TooEarly);
    assert_eq!(
        responder.accept(&request(1, 1, &[])),
        Err(StartupError::NoRequest)
    );
}

#[test]
fn a_rejection_carries_private_data_and_the_revision_of_the_request() {
    let plain = StartupConfig {
        crc: false,
        ..StartupConfig::default()
    };
    let mut responder = asked(&plain, enhanced(4, 4, None));
    responder.reject(b"no").expect("there is a request");
    let out = output(&mut responder);
    assert_eq!(&out[..16], b"MPA ID Rep Frame");
    assert_eq!(out[16..], [0x30, 2, 0, 6, 0, 4, 0, 4, b'n', b'o']);
    let mut initiator = connect(&plain, &request(4, 4, &[]));
    initiator.handle_bytes(&out);
    assert_eq!(
        event(&mut initiator),
        StartupEvent::Rejected {
            private_data: b"no".to_vec()
        }
    );
    let mut responder = asked(&plain, Revision::One);
    responder.reject(b"").expect("there is a request");
    assert_eq!(output(&mut responder)[16..], [0x20, 1, 0, 0]);
}

#[test]
fn crcs_are_used_if_either_side_wants_them() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let config = StartupConfig {
            crc: ours,
            ..StartupConfig::default()
        };
        let mut responder = Startup::listen(NOW, &config);
        let asked = MpaFrame {
            crc: theirs,
            ..frame(FrameKind::Request, enhanced(1, 1, None))
        };
        responder.handle_bytes(&bytes(&asked));
        event(&mut responder);
        let params = responder.accept(&request(1, 1, &[])).expect("there is a request");
        assert_eq!(params.crc, ours || theirs);
        assert_eq!(reply(&mut responder).0, ours || theirs);
        let mut initiator = connect(&config, &request(1, 1, &[]));
        let answer = MpaFrame {
            crc: theirs,
            ..frame(FrameKind::Reply, enhanced(1, 1, None))
        };
        initiator.handle_bytes(&bytes(&answer));
        let StartupEvent::Accepted { params, .. } = event(&mut initiator) else {
            panic!("not accepted");
        };
        assert_eq!(params.crc, ours || theirs);
    }
}

#[test]
fn markers_are_sent_to_whom_asks_and_never_asked_for() {
    let config = StartupConfig::default();
    let mut responder = Startup::listen(NOW, &config);
    let asked = MpaFrame {
        markers: true,
        ..frame(FrameKind::Request, enhanced(1, 1, None))
    };
    responder.handle_bytes(&bytes(&asked));
    event(&mut responder);
    let params = responder.accept(&request(1, 1, &[])).expect("there is a request");
    assert!(params.markers);
    assert_eq!(output(&mut responder)[16] & 0x80, 0);
}

#[test]
fn the_responder_answers_as_many_reads_as_the_initiator_wants_and_asks_for_no_more_than_it_answers() {
    let config = StartupConfig {
        max_ird: 32,
        ..StartupConfig::default()
    };
    let none = Enhanced::NOT_NEGOTIATED;
    // (asked IRD, asked ORD), (IRD, ORD) of the program → (IRD, ORD) in the Reply, (IRD, ORD) in force.
    let cases = [
        ((4, 8), (2, 16), (8, 4), (8, 4)),
        ((4, 8), (16, 1), (16, 1), (16, 1)),
        ((0, 0), (1, 1), (1, 0), (1, 0)),
        ((1, 0x3ffe), (1, 1), (32, 1), (32, 1)),
        ((none, 3), (1, 5), (3, none), (3, 5)),
        ((3, none), (1, 5), (none, 3), (1, 3)),
    ];
    for ((ird, ord), (own_ird, own_ord), said, settled) in cases {
        let mut responder = asked(&config, enhanced(ird, ord, None));
        let params = responder
            .accept(&request(own_ird, own_ord, &[]))
            .expect("there is a request");
        assert_eq!((params.ird, params.ord), settled);
        assert_eq!(reply(&mut responder).1, enhanced(said.0, said.1, None));
    }
}

#[test]
fn the_initiator_keeps_to_what_the_reply_says() {
    let config = StartupConfig {
        max_ird: 32,
        ..StartupConfig::default()
    };
    let none = Enhanced::NOT_NEGOTIATED;
    let cases = [
        ((2, 1), (4, 2)),
        ((16, 8), (8, 8)),
        ((none, 1), (4, 8)),
        ((1, none), (4, 1)),
    ];
    for ((ird, ord), settled) in cases {
        let mut initiator = connect(&config, &request(4, 8, &[]));
        initiator.handle_bytes(&bytes(&frame(FrameKind::Reply, enhanced(ird, ord, None))));
        let StartupEvent::Accepted {
            params,
            peer_ird,
            peer_ord,
            ..
        } = event(&mut initiator)
        else {
            panic!("not accepted");
        };
        assert_eq!((params.ird, params.ord), settled);
        assert_eq!((peer_ird, peer_ord), (ird, ord));
    }
}

/// The Terminate that is the only message of a stream.
#[track_caller]
fn terminated(startup: &mut Startup) -> TerminateCode {
    let out = output(startup);
    let mut deframer = Deframer::new(Framing {
        crc: true,
        markers: false,
    });
    let mut chunk = &out[..];
    let ulpdu = deframer
        .next(&mut chunk)
        .expect("its CRC is right")
        .expect("it is whole");
    let segment = Segment::parse(ulpdu).expect("it is well-formed");
    let (terminate, _) = Terminate::parse(segment.payload, false).expect("it is a Terminate");
    assert!(chunk.is_empty());
    terminate.code
}

#[test]
fn a_peer_that_wants_more_reads_than_there_is_room_for_gets_a_terminate() {
    let config = StartupConfig {
        max_ird: 32,
        ..StartupConfig::default()
    };
    let mut initiator = connect(&config, &request(4, 8, &[]));
    output(&mut initiator);
    initiator.handle_bytes(&bytes(&frame(FrameKind::Reply, enhanced(1, 33, None))));
    failed(&mut initiator, StartupError::InsufficientIrd);
    assert_eq!(terminated(&mut initiator), TerminateCode::MPA_INSUFFICIENT_IRD);
}

#[test]
fn the_responder_chooses_one_ready_message() {
    let config = StartupConfig::default();
    for (write, read, chosen) in [
        (true, true, Rtr::Write),
        (true, false, Rtr::Write),
        (false, true, Rtr::Read),
        // Nothing that we know: name one all the same.
        (false, false, Rtr::Write),
    ] {
        let mut responder = asked(&config, enhanced(1, 1, kinds(write, read)));
        let params = responder.accept(&request(1, 1, &[])).expect("there is a request");
        assert_eq!(params.rtr, Some(chosen));
        let said = kinds(chosen == Rtr::Write, chosen == Rtr::Read);
        assert_eq!(reply(&mut responder).1, enhanced(1, 1, said));
    }
}

#[test]
fn a_read_as_ready_message_needs_room_for_one() {
    let mut responder = asked(&StartupConfig::default(), enhanced(0, 0, kinds(false, true)));
    let params = responder.accept(&request(0, 0, &[])).expect("there is a request");
    assert_eq!((params.ird, params.ord), (1, 0));
    assert_eq!(reply(&mut responder).1, enhanced(1, 0, kinds(false, true)));
}

#[test]
fn the_initiator_sends_what_the_reply_names_or_gives_up() {
    let config = StartupConfig::default();
    let after = |rtr| {
        let mut initiator = connect(&config, &request(1, 1, &[]));
        output(&mut initiator);
        initiator.handle_bytes(&bytes(&frame(FrameKind::Reply, enhanced(1, 1, rtr))));
        initiator
    };
    for (rtr, sent) in [
        (None, None),
        (kinds(true, true), Some(Rtr::Write)),
        (kinds(true, false), Some(Rtr::Write)),
        (kinds(false, true), Some(Rtr::Read)),
    ] {
        let StartupEvent::Accepted { params, .. } = event(&mut after(rtr)) else {
            panic!("not accepted");
        };
        assert_eq!(params.rtr, sent);
    }
    let only_send = wire::Rtr {
        send: true,
        ..wire::Rtr::default()
    };
    let mut initiator = after(Some(only_send));
    failed(&mut initiator, StartupError::NoMatchingRtr);
    assert_eq!(terminated(&mut initiator), TerminateCode::MPA_NO_MATCHING_RTR);
}

#[test]
fn without_peer_to_peer_nothing_is_promised() {
    let config = StartupConfig {
        peer_to_peer: false,
        ..StartupConfig::default()
    };
    let mut initiator = connect(&config, &request(1, 2, &[]));
    assert_eq!(output(&mut initiator)[20..], [0, 1, 0, 2]);
    let mut responder = asked(&config, enhanced(1, 2, None));
    let params = responder.accept(&request(2, 1, &[])).expect("there is a request");
    assert_eq!(params.rtr, None);
}

#[test]
fn a_plain_request_is_answered_plainly_and_leaves_depths_to_the_programs() {
    let config = StartupConfig::default();
    let mut responder = Startup::listen(NOW, &config);
    responder.handle_bytes(&bytes(&frame(FrameKind::Request, Revision::One)));
    assert_eq!(
        event(&mut responder),
        StartupEvent::ConnectRequest {
            peer_ird: 128,
            peer_ord: 128,
            private_data: Vec::new()
        }
    );
    let params = responder.accept(&request(7, 9, &[])).expect("there is a request");
    assert_eq!((params.ird, params.ord, params.rtr), (7, 9, None));
    assert_eq!(reply(&mut responder).1, Revision::One);
    // The second revision without its data is something else again.
    let mut responder = asked(&config, Revision::Two(None));
    responder.accept(&request(1, 1, &[])).expect("there is a request");
    assert_eq!(reply(&mut responder).1, Revision::Two(None));
}

#[test]
fn a_peer_that_hangs_up_on_an_enhanced_request_may_be_asked_plainly() {
    let config = StartupConfig::default();
    let mut initiator = connect(&config, &request(1, 1, &[]));
    initiator.handle_closed();
    let error = StartupError::Closed;
    assert_eq!(
        event(&mut initiator),
        StartupEvent::Failed {
            error,
            try_plain: true
        }
    );
    let plain = StartupConfig {
        enhanced: false,
        ..config
    };
    let mut initiator = connect(&plain, &request(1, 1, b"x"));
    assert_eq!(output(&mut initiator)[16..], [0x40, 1, 0, 1, b'x']);
    initiator.handle_closed();
    failed(&mut initiator, StartupError::Closed);
    // One that has begun to answer knows the revision.
    let mut initiator = connect(&config, &request(1, 1, &[]));
    initiator.handle_bytes(b"MPA");
    initiator.handle_closed();
    failed(&mut initiator, StartupError::Closed);
}

#[test]
fn what_is_no_frame_ends_it_at_the_first_wrong_byte() {
    let config = StartupConfig::default();
    let good = bytes(&frame(FrameKind::Request, enhanced(1, 1, None)));
    let wrong = |at: usize, value: u8| {
        let mut bad = good.clone();
        bad[at] = value;
        bad
    };
    let cases = [
        (b"GET / HTTP".to_vec(), MpaError::WrongKey),
        (wrong(17, 0), MpaError::UnsupportedRevision(0)),
        (wrong(17, 3), MpaError::UnsupportedRevision(3)),
        (wrong(17, 255), MpaError::UnsupportedRevision(255)),
        (wrong(18, 2), MpaError::PrivateDataTooLong(0x204)),
        (wrong(19, 3), MpaError::EnhancedDataMissing(3)),
    ];
    for (bad, error) in cases {
        let mut responder = Startup::listen(NOW, &config);
        responder.handle_bytes(&bad);
        failed(&mut responder, StartupError::Frame(error));
        assert!(output(&mut responder).is_empty(), "no frame goes back");
        assert_eq!(responder.handle_bytes(&good), 0, "it is over");
    }
}

#[test]
fn two_that_connect_or_two_that_listen_find_out() {
    let config = StartupConfig::default();
    let mut initiator = connect(&config, &request(1, 1, &[]));
    initiator.handle_bytes(&bytes(&frame(FrameKind::Request, enhanced(1, 1, None))));
    failed(&mut initiator, StartupError::SameRole);
    let mut responder = Startup::listen(NOW, &config);
    responder.handle_bytes(&bytes(&frame(FrameKind::Reply, enhanced(1, 1, None))));
    failed(&mut responder, StartupError::SameRole);
}

#[test]
fn a_silent_peer_is_given_up() {
    let config = StartupConfig::default();
    let almost = |wait: Duration| NOW + (wait - Duration::from_millis(1));
    let mut responder = Startup::listen(NOW, &config);
    responder.handle_bytes(b"MPA ID");
    responder.handle_timeout(almost(config.request_timeout));
    assert_eq!(responder.poll_event(), None);
    assert_eq!(responder.poll_timeout(), Some(NOW + config.request_timeout));
    responder.handle_timeout(NOW + config.request_timeout);
    failed(&mut responder, StartupError::Timeout);

    let mut initiator = connect(&config, &request(1, 1, &[]));
    initiator.handle_timeout(almost(config.reply_timeout));
    assert_eq!(initiator.poll_event(), None);
    initiator.handle_timeout(NOW + config.reply_timeout);
    failed(&mut initiator, StartupError::Timeout);
}

#[test]
fn a_program_may_think_for_as_long_as_it_likes_and_the_peer_may_go_meanwhile() {
    let mut responder = asked(&StartupConfig::default(), enhanced(1, 1, None));
    assert_eq!(responder.poll_timeout(), None);
    responder.handle_timeout(NOW + Duration::from_secs(3600));
    assert_eq!(responder.poll_event(), None);
    responder.handle_closed();
    failed(&mut responder, StartupError::Closed);
    assert_eq!(responder.reject(&[]), Err(StartupError::NoRequest));
}

#[test]
fn private_data_must_fit_a_frame() {
    let config = StartupConfig::default();
    let most = Startup::max_private_data(true);
    assert_eq!((most, Startup::max_private_data(false)), (508, 512));
    let data = vec![1; most + 1];
    assert!(Startup::connect(NOW, &config, &request(1, 1, &data[..most])).is_ok());
    let refused = Startup::connect(NOW, &config, &request(1, 1, &data)).err();
    assert_eq!(refused, Some(StartupError::PrivateData));
    let mut responder = asked(&config, enhanced(1, 1, None));
    let refused = responder.accept(&request(1, 1, &data));
    assert_eq!(refused, Err(StartupError::PrivateData));
    assert!(output(&mut responder).is_empty());
    assert!(
        responder.accept(&request(1, 1, &data[..most])).is_ok(),
        "a second try"
    );
}
