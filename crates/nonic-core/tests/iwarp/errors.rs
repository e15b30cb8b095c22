//! What a peer may not do: each ends the stream with exactly the right Terminate, and changes no memory.

use crate::iwarp::bench::{End, IOVA, Peer, Setup, pattern, solo};
use nonic_core::iwarp::StreamEnd;
use nonic_core::{Access, Event, QpAttributes, QpState, SendOp, Status};
use nonic_wire::iwarp::ddp::Control;
use nonic_wire::iwarp::{
    AtomicRequest, DdpHeader, Header, ReadRequest, SendKind, Tagged, Terminate, TerminateCode as Code,
};

/// A header as it should be, and a segment with it.
fn untagged(opcode: u8, qn: u32, msn: u32, mo: u32, last: bool) -> DdpHeader {
    DdpHeader::Untagged {
        control: Control::new(false, last, opcode),
        invalidate_stag: 0,
        qn,
        msn,
        mo,
    }
}

fn ulpdu(header: DdpHeader, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; DdpHeader::UNTAGGED_LEN];
    let length = header.emit(&mut bytes);
    bytes.truncate(length);
    bytes.extend_from_slice(body);
    bytes
}

fn of(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header.len()];
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

fn write(stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    of(Header::Write(Tagged { last: true, stag, to }), payload)
}

fn read(msn: u32, stag: u32, to: u64, size: u32) -> Vec<u8> {
    of(
        Header::ReadRequest {
            msn,
            request: ReadRequest {
                sink_stag: 0x77,
                sink_to: 0x1234,
                size,
                source_stag: stag,
                source_to: to,
            },
        },
        &[],
    )
}

fn send(kind: SendKind, msn: u32, mo: u32, last: bool, payload: &[u8]) -> Vec<u8> {
    of(Header::Send { kind, msn, mo, last }, payload)
}

/// Hands a ULPDU to the end, which must answer with this code, cite what it has to and end.
#[track_caller]
fn refused(end: &mut End, peer: &mut Peer, bad: &[u8], code: Code) -> Terminate {
    let before = end.memory.snapshot();
    let bad_frame = peer.frame_raw(bad);
    end.receive(&bad_frame);
    let terminate = expect_terminate(end, peer, code);
    assert_eq!(terminate, Terminate::about(code, bad), "it cites the segment");
    assert!(end.memory.snapshot() == before, "nothing was placed");
    terminate
}

#[track_caller]
fn expect_terminate(end: &mut End, peer: &mut Peer, code: Code) -> Terminate {
    assert_eq!(end.state(), QpState::Sqe, "a Terminate is to be sent");
    let out = end.poll_transmit();
    let terminate = peer.read_terminate(&out);
    assert_eq!(terminate.code, code, "{} for {}", terminate.code, code);
    end.nic.stream_written(end.now, end.qpn, out.len());
    assert_eq!(end.state(), QpState::Error);
    assert_eq!(end.end(), StreamEnd::Terminated(code));
    assert!(end.finished, "this half ends behind the Terminate");
    assert!(!end.closed, "it reads on");
    terminate
}

fn fresh() -> (End, Peer) {
    solo(&Setup::default())
}

#[test]
fn a_write_needs_a_key_of_this_stream_that_covers_and_permits_it() {
    let size = Setup::default().memory as u64;
    type Case = fn(&mut End) -> u32;
    let cases: [(Case, u64, Code); 8] = [
        (|_| 0x1234_5678, IOVA, Code::DDP_TAGGED_INVALID_STAG),
        (|end| end.key.value(), IOVA - 1, Code::DDP_TAGGED_BOUNDS),
        (|end| end.key.value(), 0, Code::DDP_TAGGED_BOUNDS),
        (
            |end| end.register(|spec| spec.length -= 1).value(),
            IOVA + size - 8,
            Code::DDP_TAGGED_BOUNDS,
        ),
        (
            |end| end.register(|spec| spec.access = Access::LOCAL_WRITE).value(),
            IOVA,
            Code::DDP_TAGGED_INVALID_STAG,
        ),
        (
            |end| {
                let pd = end.nic.keys().alloc_pd();
                end.register(|spec| spec.pd = pd).value()
            },
            IOVA,
            Code::DDP_TAGGED_STAG_OF_OTHER_STREAM,
        ),
        (
            |end| {
                let key = end.register(|_| {});
                end.nic.keys().revoke(key.value());
                key.value()
            },
            IOVA,
            Code::DDP_TAGGED_INVALID_STAG,
        ),
        (|end| end.key.value(), u64::MAX - 6, Code::DDP_TAGGED_TO_WRAP),
    ];
    for (key, to, code) in cases {
        let (mut end, mut peer) = fresh();
        let stag = key(&mut end);
        refused(&mut end, &mut peer, &write(stag, to, &[9; 8]), code);
        assert_eq!(end.events().len(), 1);
    }
}

#[test]
fn the_bytes_of_a_refused_write_are_those_of_the_rfc() {
    let (mut end, mut peer) = fresh();
    let bad = peer.frame_raw(&write(0x0102_0304, 0x1000, &[9; 8]));
    end.receive(&bad);
    let out = end.transmit();
    #[rustfmt::skip]
    let expected = [
        // Length of the ULPDU; last, version 1; version 1, Terminate; reserved; queue 2; message 1; offset 0.
        0, 38, 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0,
        // DDP, tagged buffer; invalid STag; length and DDP header follow; reserved.
        0x11, 0x00, 0xc0, 0,
        // They are: 22 bytes; tagged, last, version 1; version 1, Write; STag; offset.
        0, 22, 0xc1, 0x40, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0x10, 0,
    ];
    assert_eq!(out[..40], expected);
    assert_eq!(out.len(), 44, "and a CRC");
}

#[test]
fn the_queue_pair_must_permit_what_a_peer_does() {
    let without = |access| {
        let (mut end, peer) = fresh();
        let set = QpAttributes {
            access: Some(access),
            ..QpAttributes::default()
        };
        end.nic.modify_qp(end.now, end.qpn, &set).expect("allowed");
        (end, peer)
    };
    let (mut end, mut peer) = without(Access::REMOTE_READ);
    let stag = end.key.value();
    refused(
        &mut end,
        &mut peer,
        &write(stag, IOVA, &[1]),
        Code::DDP_TAGGED_INVALID_STAG,
    );
    let (mut end, mut peer) = without(Access::REMOTE_WRITE);
    let stag = end.key.value();
    refused(
        &mut end,
        &mut peer,
        &read(1, stag, IOVA, 1),
        Code::RDMAP_ACCESS_RIGHTS,
    );
}

#[test]
fn a_read_needs_a_key_of_this_stream_that_covers_and_permits_it() {
    let size = Setup::default().memory as u64;
    type Case = fn(&mut End) -> u32;
    let cases: [(Case, u64, u32, Code); 6] = [
        (|_| 0x1234_5678, IOVA, 8, Code::RDMAP_INVALID_STAG),
        (|end| end.key.value(), IOVA + size - 7, 8, Code::RDMAP_BOUNDS),
        (|end| end.key.value(), IOVA, u32::MAX, Code::RDMAP_BOUNDS),
        (
            |end| end.register(|spec| spec.access = Access::LOCAL_WRITE).value(),
            IOVA,
            8,
            Code::RDMAP_ACCESS_RIGHTS,
        ),
        (
            |end| {
                let pd = end.nic.keys().alloc_pd();
                end.register(|spec| spec.pd = pd).value()
            },
            IOVA,
            8,
            Code::RDMAP_STAG_OF_OTHER_STREAM,
        ),
        (|end| end.key.value(), u64::MAX - 6, 8, Code::RDMAP_TO_WRAP),
    ];
    for (key, to, length, code) in cases {
        let (mut end, mut peer) = fresh();
        let stag = key(&mut end);
        let terminate = refused(&mut end, &mut peer, &read(1, stag, to, length), code);
        assert!(terminate.read_request.is_some(), "the request goes back");
        assert_eq!(end.events(), [Event::QpAccessError(end.qpn)]);
    }
}

#[test]
fn memory_that_goes_away_while_it_is_read_ends_the_read_where_it_stands() {
    let (mut end, mut peer) = fresh();
    let key = end.register(|_| {});
    let request = peer.frame_raw(&read(1, key.value(), IOVA, 5000));
    end.receive(&request);
    let mut buffer = vec![0; 1500];
    let length = end.nic.poll_stream_transmit(end.now, end.qpn, 1448, &mut buffer);
    let first = peer.read(&buffer[..length]);
    let sent = first[0].1.len() as u64;
    end.nic.stream_written(end.now, end.qpn, length);
    end.nic.keys().revoke(key.value());
    let out = end.poll_transmit();
    let terminate = peer.read_terminate(&out);
    assert_eq!(terminate.code, Code::RDMAP_INVALID_STAG);
    let left = terminate.read_request.expect("the request goes back");
    assert_eq!(u64::from(left.size), 5000 - sent);
    assert_eq!((left.source_to, left.sink_to), (IOVA + sent, 0x1234 + sent));
}

#[test]
fn nothing_is_asked_about_zero_bytes() {
    let (mut end, mut peer) = fresh();
    let mut stream = peer.frame_raw(&write(0xdead_beef, u64::MAX, &[]));
    stream.extend(peer.frame_raw(&read(1, 0xdead_beef, u64::MAX, 0)));
    end.receive(&stream);
    let out = end.transmit();
    let answer = Header::ReadResponse(Tagged {
        last: true,
        stag: 0x77,
        to: 0x1234,
    });
    assert_eq!(peer.read(&out), [(answer, Vec::new())]);
    assert_eq!(end.state(), QpState::Rts);
}

#[test]
fn message_numbers_come_one_after_the_other() {
    let plain = SendKind::default();
    for (bad, code) in [
        (send(plain, 0, 0, true, &[1]), Code::DDP_UNTAGGED_INVALID_MSN),
        (send(plain, 2, 0, true, &[1]), Code::DDP_UNTAGGED_INVALID_MSN),
        (read(2, 1, 0, 0), Code::DDP_UNTAGGED_INVALID_MSN),
        (read(0, 1, 0, 0), Code::DDP_UNTAGGED_INVALID_MSN),
    ] {
        let (mut end, mut peer) = fresh();
        end.recv(1, 0, 64);
        refused(&mut end, &mut peer, &bad, code);
        assert_eq!(end.received(), [(1, Status::Flushed)]);
    }
    // A second message with the number of the first.
    let (mut end, mut peer) = fresh();
    end.recv(1, 0, 64);
    end.recv(2, 0, 64);
    let once = send(plain, 1, 0, true, &[1]);
    let first = peer.frame_raw(&once);
    end.receive(&first);
    refused(&mut end, &mut peer, &once, Code::DDP_UNTAGGED_INVALID_MSN);
    assert_eq!(end.received(), [(1, Status::Success), (2, Status::Flushed)]);
}

#[test]
fn the_segments_of_a_send_come_one_behind_the_other() {
    let plain = SendKind::default();
    // The first one begins somewhere.
    let (mut end, mut peer) = fresh();
    end.recv(1, 0, 64);
    let bad = send(plain, 1, 4, true, &[1]);
    refused(&mut end, &mut peer, &bad, Code::DDP_UNTAGGED_INVALID_MO);
    // A gap, an overlap, another kind of SEND, a message that was not finished.
    let solicited = SendKind {
        solicited: true,
        ..plain
    };
    for (bad, code) in [
        (send(plain, 1, 5, true, &[1]), Code::DDP_UNTAGGED_INVALID_MO),
        (send(plain, 1, 3, true, &[1]), Code::DDP_UNTAGGED_INVALID_MO),
        (send(plain, 1, 0, true, &[1]), Code::DDP_UNTAGGED_INVALID_MO),
        (send(solicited, 1, 4, true, &[1]), Code::RDMAP_UNEXPECTED_OPCODE),
        (send(plain, 2, 0, true, &[1]), Code::DDP_UNTAGGED_INVALID_MSN),
    ] {
        let (mut end, mut peer) = fresh();
        end.recv(1, 0, 64);
        let first = peer.frame_raw(&send(plain, 1, 0, false, &[1; 4]));
        end.receive(&first);
        refused(&mut end, &mut peer, &bad, code);
        assert_eq!(end.received(), [(1, Status::Flushed)]);
    }
}

#[test]
fn a_send_that_does_not_fit_its_receive_ends_both() {
    let plain = SendKind::default();
    let (mut end, mut peer) = fresh();
    end.recv(1, 0, 64);
    end.recv(2, 100, 64);
    let bad = send(plain, 1, 0, true, &[1; 65]);
    refused(&mut end, &mut peer, &bad, Code::DDP_UNTAGGED_TOO_LONG);
    assert_eq!(end.received(), [(1, Status::LocalLength), (2, Status::Flushed)]);
    assert_eq!(end.events(), [], "the completion tells");
    // The same with the segment that is too much.
    let (mut end, mut peer) = fresh();
    end.recv(1, 0, 64);
    let first = peer.frame_raw(&send(plain, 1, 0, false, &[0; 60]));
    end.receive(&first);
    let bad = send(plain, 1, 60, true, &[1; 5]);
    refused(&mut end, &mut peer, &bad, Code::DDP_UNTAGGED_TOO_LONG);
    assert_eq!(end.received(), [(1, Status::LocalLength)]);
}

#[test]
fn a_receive_into_memory_that_is_gone_is_this_sides_fault() {
    let (mut end, mut peer) = fresh();
    let key = end.register(|_| {});
    let sges = [nonic_core::Sge {
        lkey: key.value(),
        ..end.sge(0, 64)
    }];
    let request = nonic_core::RecvRequest {
        wr_id: 1,
        sges: &sges,
    };
    end.nic.post_recv(end.qpn, &request).expect("posted");
    end.nic.keys().revoke(key.value());
    let frame = peer.frame_raw(&send(SendKind::default(), 1, 0, true, &[1; 4]));
    end.receive(&frame);
    expect_terminate(&mut end, &mut peer, Code::DDP_CATASTROPHIC);
    assert_eq!(end.received(), [(1, Status::LocalProtection)]);
}

#[test]
fn what_is_not_understood_is_refused_by_its_own_code() {
    let good = write(1, 0, &[]);
    let with = |at: usize, value: u8| {
        let mut bad = good.clone();
        bad[at] = value;
        bad
    };
    let body = [0; ReadRequest::LEN];
    let cases = [
        (with(0, 0xc0), Code::DDP_TAGGED_VERSION),
        (with(0, 0xc2), Code::DDP_TAGGED_VERSION),
        (with(1, 0x00), Code::RDMAP_VERSION),
        (with(1, 0x80), Code::RDMAP_VERSION),
        (with(1, 0x4c), Code::RDMAP_UNEXPECTED_OPCODE),
        (with(1, 0x4f), Code::RDMAP_UNEXPECTED_OPCODE),
        (with(1, 0x43), Code::RDMAP_UNEXPECTED_OPCODE),
        (
            ulpdu(untagged(0, 0, 1, 0, true), &[]),
            Code::RDMAP_UNEXPECTED_OPCODE,
        ),
        (
            ulpdu(untagged(3, 1, 1, 0, true), &[]),
            Code::DDP_UNTAGGED_INVALID_QN,
        ),
        (
            ulpdu(untagged(3, 4, 1, 0, true), &[]),
            Code::DDP_UNTAGGED_INVALID_QN,
        ),
        (
            ulpdu(untagged(1, 0, 1, 0, true), &body),
            Code::DDP_UNTAGGED_INVALID_QN,
        ),
        (
            ulpdu(untagged(1, 1, 1, 0, false), &body),
            Code::RDMAP_UNEXPECTED_OPCODE,
        ),
        (
            ulpdu(untagged(1, 1, 1, 8, true), &body),
            Code::DDP_UNTAGGED_INVALID_MO,
        ),
        (
            ulpdu(untagged(1, 1, 1, 0, true), &body[1..]),
            Code::RDMAP_UNSPECIFIED,
        ),
        (
            ulpdu(untagged(1, 1, 1, 0, true), &[0; 29]),
            Code::DDP_UNTAGGED_TOO_LONG,
        ),
        (good[..13].to_vec(), Code::MPA_MARKER),
        (Vec::new(), Code::MPA_MARKER),
    ];
    for (bad, code) in cases {
        let (mut end, mut peer) = fresh();
        refused(&mut end, &mut peer, &bad, code);
    }
}

#[test]
fn a_damaged_byte_ends_the_stream_before_it_steers_anything() {
    let payload = pattern(1, 32);
    let plain = {
        let (end, mut peer) = fresh();
        peer.frame_raw(&write(end.key.value(), IOVA, &payload))
    };
    for at in 0..plain.len() {
        let (mut end, mut peer) = fresh();
        let mut bad = plain.clone();
        bad[at] ^= 0x10;
        // A length field that grew may want more bytes than there are.
        bad.extend([0; 5000]);
        let before = end.memory.snapshot();
        end.receive(&bad);
        expect_terminate(&mut end, &mut peer, Code::MPA_CRC);
        assert!(end.memory.snapshot() == before);
        assert_eq!(end.nic.counters().rx_fpdu_errors, 1);
    }
}

#[test]
fn without_crcs_the_field_may_hold_anything() {
    let setup = Setup {
        crc: false,
        ..Setup::default()
    };
    let (mut end, mut peer) = solo(&setup);
    let mut frame = peer.frame_raw(&write(end.key.value(), IOVA, &[7; 8]));
    let length = frame.len();
    frame[length - 4..].copy_from_slice(&[1, 2, 3, 4]);
    end.receive(&frame);
    assert_eq!(end.bytes(0, 8), [7; 8]);
}

#[test]
fn two_messages_of_a_kind_are_not_mixed() {
    let (mut end, mut peer) = fresh();
    let stag = end.key.value();
    let open = Header::Write(Tagged {
        last: false,
        stag,
        to: IOVA,
    });
    let frame = peer.frame(open, &[1; 4]);
    end.receive(&frame);
    let response = of(
        Header::ReadResponse(Tagged {
            last: true,
            stag,
            to: IOVA,
        }),
        &[2; 4],
    );
    refused(&mut end, &mut peer, &response, Code::RDMAP_UNEXPECTED_OPCODE);
    // A SEND between two segments of a WRITE does no harm.
    let (mut end, mut peer) = fresh();
    end.recv(1, 100, 64);
    let open = Header::Write(Tagged {
        last: false,
        stag: end.key.value(),
        to: IOVA,
    });
    let mut stream = peer.frame(open, &[1; 4]);
    stream.extend(peer.frame_raw(&send(SendKind::default(), 1, 0, true, &[2; 4])));
    stream.extend(peer.frame_raw(&write(end.key.value(), IOVA + 4, &[3; 4])));
    end.receive(&stream);
    assert_eq!(end.bytes(0, 8), [1, 1, 1, 1, 3, 3, 3, 3]);
    assert_eq!(end.received(), [(1, Status::Success)]);
}

#[test]
fn more_reads_than_agreed_on_are_refused_but_a_power_of_two_is_allowed() {
    let setup = Setup {
        ird: 3,
        ..Setup::default()
    };
    let (mut end, mut peer) = solo(&setup);
    for msn in 1..=4 {
        let frame = peer.frame_raw(&read(msn, 1, 0, 0));
        end.receive(&frame);
        assert_eq!(end.state(), QpState::Rts);
    }
    refused(
        &mut end,
        &mut peer,
        &read(5, 1, 0, 0),
        Code::DDP_UNTAGGED_NO_BUFFER,
    );
}

/// An end with a READ of 100 bytes under way; the sink that it named.
fn reading() -> (End, Peer, u32) {
    let (mut end, mut peer) = fresh();
    let from = nonic_core::RemoteAddress { va: 64, rkey: 5 };
    end.send(1, SendOp::Read(from), 0, 100);
    let out = end.transmit();
    let segments = peer.read(&out);
    let Header::ReadRequest { msn: 1, request } = segments[0].0 else {
        panic!("not a READ: {segments:?}");
    };
    assert_eq!(
        (request.source_stag, request.source_to, request.size),
        (5, 64, 100)
    );
    assert_ne!(request.sink_stag, end.key.value(), "keys are not told");
    (end, peer, request.sink_stag)
}

#[test]
fn an_answer_must_be_what_was_asked_for() {
    let response = |stag: u32, to: u64, last: bool, length: usize| {
        of(Header::ReadResponse(Tagged { last, stag, to }), &vec![9; length])
    };
    let (_, _, sink) = reading();
    let cases = [
        (response(sink ^ 1, 0, true, 100), Code::DDP_TAGGED_INVALID_STAG),
        (response(sink, 1, true, 100), Code::DDP_TAGGED_BOUNDS),
        (response(sink, 0, true, 99), Code::DDP_TAGGED_BOUNDS),
        (response(sink, 0, true, 101), Code::DDP_TAGGED_BOUNDS),
        (response(sink, 0, false, 100), Code::DDP_TAGGED_BOUNDS),
        (response(sink, 0, false, 200), Code::DDP_TAGGED_BOUNDS),
    ];
    for (bad, code) in cases {
        let (mut end, mut peer, own) = reading();
        assert_eq!(own, sink, "the same seed draws the same number");
        refused(&mut end, &mut peer, &bad, code);
        assert_eq!(end.completed(), [(1, Status::Flushed)]);
    }
    let (mut end, mut peer) = fresh();
    let bad = response(1, 0, true, 1);
    refused(&mut end, &mut peer, &bad, Code::DDP_TAGGED_INVALID_STAG);
}

#[test]
fn an_answer_into_memory_that_is_gone_is_this_sides_fault() {
    let (mut end, mut peer) = fresh();
    let key = end.register(|_| {});
    let sges = [nonic_core::Sge {
        lkey: key.value(),
        ..end.sge(0, 8)
    }];
    let from = nonic_core::RemoteAddress { va: 64, rkey: 5 };
    let (data, flags) = (nonic_core::Data::Sges(&sges), nonic_core::SendFlags::empty());
    end.post(1, SendOp::Read(from), data, flags).expect("posted");
    end.send(2, SendOp::Send, 0, 4);
    let out = end.transmit();
    let Header::ReadRequest { request, .. } = peer.read(&out)[0].0 else {
        panic!("not a READ");
    };
    end.nic.keys().revoke(key.value());
    let answer = peer.frame(
        Header::ReadResponse(Tagged {
            last: true,
            stag: request.sink_stag,
            to: 0,
        }),
        &[1; 8],
    );
    end.receive(&answer);
    expect_terminate(&mut end, &mut peer, Code::DDP_CATASTROPHIC);
    let sent = (2, Status::Flushed);
    assert_eq!(end.completed(), [(1, Status::LocalProtection), sent]);
}

#[test]
fn a_request_with_a_wrong_local_key_fails_and_the_peer_is_told_that_something_did() {
    let (mut end, mut peer) = fresh();
    let sges = [nonic_core::Sge {
        lkey: 1,
        ..end.sge(0, 8)
    }];
    let (data, flags) = (nonic_core::Data::Sges(&sges), nonic_core::SendFlags::empty());
    end.send(1, SendOp::Send, 0, 4);
    end.post(2, SendOp::Send, data, flags).expect("posted");
    end.send(3, SendOp::Send, 0, 4);
    let out = end.transmit();
    assert_eq!(peer.read(&out).len(), 1);
    let out = end.transmit();
    assert_eq!(peer.read_terminate(&out).code, Code::RDMAP_CATASTROPHIC);
    let statuses = [
        (1, Status::Success),
        (2, Status::LocalProtection),
        (3, Status::Flushed),
    ];
    assert_eq!(end.completed(), statuses);
    assert_eq!(end.end(), StreamEnd::Terminated(Code::RDMAP_CATASTROPHIC));
}

#[test]
fn memory_that_goes_away_under_a_half_sent_request_ends_the_stream_after_the_fpdu() {
    let (mut end, mut peer) = fresh();
    let key = end.register(|_| {});
    let sges = [nonic_core::Sge {
        lkey: key.value(),
        ..end.sge(0, 5000)
    }];
    let (data, flags) = (nonic_core::Data::Sges(&sges), nonic_core::SendFlags::empty());
    end.post(1, SendOp::Send, data, flags).expect("posted");
    let mut buffer = vec![0; 1500];
    let length = end.nic.poll_stream_transmit(end.now, end.qpn, 1448, &mut buffer);
    assert_eq!(peer.read(&buffer[..length]).len(), 1);
    end.nic.keys().revoke(key.value());
    let out = end.transmit();
    assert_eq!(peer.read_terminate(&out).code, Code::RDMAP_CATASTROPHIC);
    assert_eq!(end.completed(), [(1, Status::LocalProtection)]);
}

#[test]
fn an_atomic_of_a_peer_without_the_extension_is_an_unexpected_opcode() {
    let mut setup = Setup::default();
    setup.iwarp.extensions = nonic_core::iwarp::Extensions::Off;
    let request = AtomicRequest::fetch_add(1, 1, 0, 1);
    let atomic = of(Header::AtomicRequest { msn: 1, request }, &[]);
    let immediate = of(
        Header::Immediate {
            solicited: false,
            msn: 1,
            data: 0,
        },
        &[],
    );
    for bad in [atomic, immediate] {
        let (mut end, mut peer) = solo(&setup);
        end.recv(1, 0, 64);
        refused(&mut end, &mut peer, &bad, Code::RDMAP_UNEXPECTED_OPCODE);
    }
}

#[test]
fn nothing_that_comes_behind_a_mistake_has_any_effect() {
    let (mut end, mut peer) = fresh();
    let stag = end.key.value();
    let mut stream = peer.frame_raw(&write(1, 0, &[1]));
    stream.extend(peer.frame_raw(&write(stag, IOVA, &[9; 8])));
    end.receive(&stream);
    let more = peer.frame_raw(&write(stag, IOVA, &[9; 8]));
    end.receive(&more);
    assert_eq!(end.bytes(0, 8), [0; 8]);
    expect_terminate(&mut end, &mut peer, Code::DDP_TAGGED_INVALID_STAG);
    assert_eq!(end.poll_transmit(), [], "there is one Terminate");
}
