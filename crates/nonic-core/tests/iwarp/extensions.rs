//! Immediate data, atomics and invalidation.

use crate::iwarp::bench::{End, IOVA, Pair, Peer, Setup, pattern, solo};
use nonic_core::iwarp::{Extensions, StreamEnd};
use nonic_core::{
    Access, Arm, CompletionOpcode, Data, Event, KeyError, PostError, QpState, RemoteAddress, SendFlags,
    SendOp, Status,
};
use nonic_wire::iwarp::{
    AtomicOperation, AtomicRequest, Header, SendKind, Tagged, Terminate, TerminateCode as Code,
};

#[test]
fn a_write_with_immediate_completes_a_receive_and_writes_nothing_into_it() {
    for length in [0, 1, 5000] {
        let mut pair = Pair::new();
        pair.a.fill(0, &pattern(1, length));
        pair.b.recv(1, 100_000, 64);
        let to = pair.b.remote(1000);
        pair.a
            .send(2, SendOp::WriteWithImmediate(to, 0xaabb_ccdd), 0, length as u32);
        pair.exchange();
        let done = pair.b.receptions();
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].opcode, CompletionOpcode::RecvWriteWithImmediate);
        assert_eq!(done[0].immediate, Some(0xaabb_ccdd));
        assert_eq!(done[0].byte_len, length as u32);
        assert_eq!(pair.b.bytes(1000, length), pattern(1, length));
        assert_eq!(pair.b.bytes(100_000, 64), [0; 64]);
        assert_eq!(pair.a.completed(), [(2, Status::Success)]);
    }
}

#[test]
fn the_immediate_shares_its_numbers_with_sends_and_follows_its_write() {
    let (mut end, mut peer) = solo(&Setup::default());
    let to = RemoteAddress { va: 64, rkey: 5 };
    end.send(1, SendOp::Send, 0, 4);
    end.send(2, SendOp::WriteWithImmediate(to, 7), 0, 2000);
    let sges = [end.sge(0, 0)];
    end.post(
        3,
        SendOp::WriteWithImmediate(to, 8),
        Data::Sges(&sges),
        SendFlags::SOLICITED,
    )
    .expect("posted");
    end.send(4, SendOp::Send, 0, 4);
    let out = end.transmit();
    let headers: Vec<Header> = peer.read(&out).into_iter().map(|(header, _)| header).collect();
    assert_eq!(headers.len(), 6);
    assert!(matches!(headers[0], Header::Send { msn: 1, .. }));
    assert!(matches!(headers[1], Header::Write(Tagged { last: false, .. })));
    assert!(matches!(headers[2], Header::Write(Tagged { last: true, .. })));
    let immediate = |solicited, msn, value: u64| Header::Immediate {
        solicited,
        msn,
        data: value << 32,
    };
    assert_eq!(headers[3], immediate(false, 2, 7));
    assert_eq!(headers[4], immediate(true, 3, 8), "without bytes it goes alone");
    assert!(matches!(headers[5], Header::Send { msn: 4, .. }));
}

#[test]
fn a_request_with_an_immediate_completes_once_with_its_last_byte() {
    let (mut end, _) = solo(&Setup::default());
    let to = RemoteAddress { va: 64, rkey: 5 };
    end.send(1, SendOp::WriteWithImmediate(to, 7), 0, 100);
    let out = end.poll_transmit();
    end.nic.stream_written(end.now, end.qpn, out.len() - 1);
    assert_eq!(end.completed(), []);
    end.nic.stream_written(end.now, end.qpn, 1);
    assert_eq!(end.completed(), [(1, Status::Success)]);
}

#[test]
fn an_immediate_tells_of_the_write_right_before_it_only() {
    let (mut end, mut peer) = solo(&Setup::default());
    for id in 1..=3 {
        end.recv(id, 0, 64);
    }
    let stag = end.key.value();
    let write = |last, to| Header::Write(Tagged { last, stag, to });
    let immediate = |msn| Header::Immediate {
        solicited: false,
        msn,
        data: 0,
    };
    let send = Header::Send {
        kind: SendKind::default(),
        msn: 2,
        mo: 0,
        last: true,
    };
    let mut stream = peer.frame(write(true, IOVA + 1000), &[1; 100]);
    stream.extend(peer.frame(write(false, IOVA + 1000), &[1; 10]));
    stream.extend(peer.frame(write(true, IOVA + 1010), &[1; 5]));
    stream.extend(peer.frame(immediate(1), &[]));
    stream.extend(peer.frame(write(true, IOVA + 1000), &[1; 100]));
    stream.extend(peer.frame(send, &[]));
    stream.extend(peer.frame(immediate(3), &[]));
    end.receive(&stream);
    let lengths: Vec<u32> = end.receptions().iter().map(|done| done.byte_len).collect();
    assert_eq!(lengths, [15, 0, 0]);
}

#[test]
fn an_immediate_waits_for_a_receive_like_a_send() {
    let mut pair = Pair::new();
    let to = pair.b.remote(1000);
    pair.a.send(2, SendOp::WriteWithImmediate(to, 9), 0, 10);
    pair.exchange();
    assert_eq!(pair.b.received(), []);
    pair.b.recv(1, 0, 64);
    pair.b.receive(&[]);
    let done = pair.b.receptions();
    assert_eq!((done[0].immediate, done[0].byte_len), (Some(9), 10));
}

#[test]
fn a_solicited_message_wakes_who_armed_for_it() {
    let mut pair = Pair::new();
    let cq = pair.b.recv_cq.clone();
    let sges = [pair.a.sge(0, 4)];
    for (flags, wakes) in [(SendFlags::empty(), false), (SendFlags::SOLICITED, true)] {
        let to = pair.b.remote(0);
        for op in [SendOp::Send, SendOp::WriteWithImmediate(to, 1)] {
            cq.arm(Arm::Solicited);
            pair.b.recv(1, 0, 64);
            pair.a.post(2, op, Data::Sges(&sges), flags).expect("posted");
            pair.exchange();
            pair.b.receptions();
            let woken = pair.b.events().contains(&Event::Completion(cq.id()));
            assert_eq!(woken, wakes, "{op:?} {flags:?}");
        }
    }
}

#[test]
fn atomics_change_the_word_and_bring_what_it_was() {
    let mut pair = Pair::new();
    pair.b.fill(64, &5u64.to_ne_bytes());
    let remote = pair.b.remote(64);
    let swap = |compare, swap| SendOp::CompareSwap {
        remote,
        compare,
        swap,
    };
    pair.a.send(1, SendOp::FetchAdd { remote, add: 3 }, 0, 8);
    pair.a.send(2, swap(8, 100), 8, 8);
    pair.a.send(3, swap(8, 200), 16, 8);
    pair.exchange();
    let done = pair.a.completions();
    let kinds: Vec<_> = done
        .iter()
        .map(|done| (done.wr_id, done.status, done.opcode, done.byte_len))
        .collect();
    assert_eq!(
        kinds,
        [
            (1, Status::Success, CompletionOpcode::FetchAdd, 8),
            (2, Status::Success, CompletionOpcode::CompareSwap, 8),
            (3, Status::Success, CompletionOpcode::CompareSwap, 8)
        ]
    );
    assert_eq!((pair.a.word(0), pair.a.word(8), pair.a.word(16)), (5, 8, 100));
    assert_eq!(pair.b.word(64), 100);
}

#[test]
fn atomics_share_numbers_and_depth_with_reads_and_are_answered_in_order() {
    let setup = Setup {
        ord: 2,
        ird: 2,
        ..Setup::default()
    };
    let mut pair = Pair::with(&setup);
    let remote = pair.b.remote(64);
    let add = SendOp::FetchAdd { remote, add: 1 };
    pair.a.send(1, add, 0, 8);
    pair.a.send(2, SendOp::Read(remote), 8, 8);
    pair.a.send(3, add, 16, 8);
    pair.a.send(4, SendOp::Read(remote), 24, 8);
    pair.exchange();
    assert_eq!(pair.a.completed(), [1, 2, 3, 4].map(|id| (id, Status::Success)));
    let found: Vec<u64> = [0, 8, 16, 24].map(|at| pair.a.word(at)).to_vec();
    assert_eq!(found, [0, 1, 1, 2]);
}

#[test]
fn atomics_with_masks_are_executed() {
    let (mut end, mut peer) = solo(&Setup::default());
    end.fill(0, &0x00ff_00ff_u64.to_ne_bytes());
    let request = AtomicRequest {
        operation: AtomicOperation::FetchAdd,
        request_id: 77,
        stag: end.key.value(),
        to: IOVA,
        add_swap: 0x0001_ff01,
        add_swap_mask: 0x8000_8000,
        compare: 0,
        compare_mask: 0,
    };
    let frame = peer.frame(Header::AtomicRequest { msn: 1, request }, &[]);
    end.receive(&frame);
    let out = end.transmit();
    let answer = Header::AtomicResponse {
        msn: 1,
        request_id: 77,
        original: 0x00ff_00ff,
    };
    assert_eq!(peer.read(&out), [(answer, Vec::new())]);
    assert_eq!(end.word(0), 0x0100_0000);
}

#[track_caller]
fn refused(end: &mut End, peer: &mut Peer, header: Header, code: Code) {
    let frame = peer.frame(header, &[]);
    end.receive(&frame);
    assert_eq!(end.state(), QpState::Sqe);
    let out = end.transmit();
    assert_eq!(peer.read_terminate(&out).code, code);
    assert_eq!(end.end(), StreamEnd::Terminated(code));
}

#[test]
fn an_atomic_needs_a_word_that_lies_right_and_a_key_that_permits_it() {
    type Case = fn(&mut End) -> u32;
    let cases: [(Case, u64, Code); 5] = [
        (|end| end.key.value(), IOVA + 4, Code::RDMAP_STREAM_CATASTROPHIC),
        (|_| 5, IOVA, Code::RDMAP_INVALID_STAG),
        (|end| end.key.value(), IOVA - 8, Code::RDMAP_BOUNDS),
        (|end| end.key.value(), u64::MAX - 7, Code::RDMAP_TO_WRAP),
        (
            |end| {
                end.register(|spec| spec.access = Access::LOCAL_WRITE | Access::REMOTE_WRITE)
                    .value()
            },
            IOVA,
            Code::RDMAP_ACCESS_RIGHTS,
        ),
    ];
    for (key, to, code) in cases {
        let (mut end, mut peer) = solo(&Setup::default());
        let request = AtomicRequest::fetch_add(1, key(&mut end), to, 1);
        let before = end.memory.snapshot();
        refused(
            &mut end,
            &mut peer,
            Header::AtomicRequest { msn: 1, request },
            code,
        );
        assert!(end.memory.snapshot() == before);
    }
}

#[test]
fn an_answer_to_an_atomic_must_be_to_the_oldest_one() {
    let ask = || {
        let (mut end, mut peer) = solo(&Setup::default());
        let remote = RemoteAddress { va: 64, rkey: 5 };
        end.send(1, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
        let out = end.transmit();
        let Header::AtomicRequest { msn: 1, request } = peer.read(&out)[0].0 else {
            panic!("not an atomic");
        };
        (end, peer, request.request_id)
    };
    let answer = |msn, request_id| Header::AtomicResponse {
        msn,
        request_id,
        original: 9,
    };
    let (mut end, mut peer, id) = ask();
    refused(&mut end, &mut peer, answer(2, id), Code::DDP_UNTAGGED_INVALID_MSN);
    assert_eq!(end.completed(), [(1, Status::Flushed)]);
    let (mut end, mut peer, id) = ask();
    refused(
        &mut end,
        &mut peer,
        answer(1, id + 1),
        Code::DDP_UNTAGGED_NO_BUFFER,
    );
    let (mut end, mut peer, id) = ask();
    let frame = peer.frame(answer(1, id), &[]);
    end.receive(&frame);
    assert_eq!(end.completed(), [(1, Status::Success)]);
    refused(&mut end, &mut peer, answer(2, id), Code::DDP_UNTAGGED_NO_BUFFER);
}

#[test]
fn an_atomic_that_the_peer_refuses_fails_by_its_number() {
    let (mut end, mut peer) = solo(&Setup::default());
    let remote = RemoteAddress { va: 64, rkey: 5 };
    end.send(1, SendOp::Read(remote), 0, 8);
    end.send(2, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
    let out = end.transmit();
    let header = peer.read(&out)[1].0;
    let mut ulpdu = vec![0; header.len()];
    header.emit(&mut ulpdu);
    let terminate = Terminate::about(Code::RDMAP_UNEXPECTED_OPCODE, &ulpdu);
    let mut body = [0; Terminate::MAX_LEN];
    let length = terminate.emit(&mut body);
    let frame = peer.frame(Header::Terminate { msn: 1 }, &body[..length]);
    end.receive(&frame);
    let statuses = [(1, Status::Flushed), (2, Status::RemoteOperation)];
    assert_eq!(end.completed(), statuses);
}

#[test]
fn what_is_switched_off_is_not_offered() {
    let remote = RemoteAddress { va: 64, rkey: 5 };
    let immediate = SendOp::WriteWithImmediate(remote, 1);
    let atomic = SendOp::FetchAdd { remote, add: 1 };
    for (extensions, with_immediate, with_atomics) in [
        (Extensions::Off, false, false),
        (Extensions::Immediate, true, false),
        (Extensions::All, true, true),
    ] {
        let mut setup = Setup::default();
        setup.iwarp.extensions = extensions;
        let (mut end, _) = solo(&setup);
        for (op, offered) in [(immediate, with_immediate), (atomic, with_atomics)] {
            let posted = end.try_send(1, op, 0, 8);
            let expected = if offered {
                Ok(())
            } else {
                Err(PostError::Unsupported)
            };
            assert_eq!(posted, expected);
        }
    }
}

#[test]
fn a_send_with_invalidation_takes_a_key_back_before_it_completes() {
    let mut pair = Pair::new();
    let key = pair.b.register(|_| {});
    pair.b.recv(1, 0, 64);
    pair.a.send(2, SendOp::SendWithInvalidate(key.value()), 0, 60);
    pair.exchange();
    let done = pair.b.receptions();
    assert_eq!(done[0].invalidated_rkey, Some(key.value()));
    let gone = pair.b.nic.keys().find(key.value(), pair.b.pd, pair.b.qpn).err();
    assert_eq!(gone, Some(KeyError::Unknown));
}

#[test]
fn a_key_that_cannot_be_invalidated_ends_the_stream() {
    type Case = fn(&mut End) -> u32;
    let cases: [(Case, Code); 3] = [
        (|_| 5, Code::RDMAP_INVALID_STAG),
        (
            |end| end.register(|spec| spec.invalidatable = false).value(),
            Code::RDMAP_PROTECTION_CANNOT_INVALIDATE,
        ),
        (
            |end| {
                let pd = end.nic.keys().alloc_pd();
                end.register(|spec| spec.pd = pd).value()
            },
            Code::RDMAP_STAG_OF_OTHER_STREAM,
        ),
    ];
    for (key, code) in cases {
        let (mut end, mut peer) = solo(&Setup::default());
        end.recv(1, 0, 64);
        let kind = SendKind {
            solicited: false,
            invalidate_stag: Some(key(&mut end)),
        };
        let header = Header::Send {
            kind,
            msn: 1,
            mo: 0,
            last: true,
        };
        refused(&mut end, &mut peer, header, code);
        assert_eq!(end.received(), [(1, Status::RemoteInvalidRequest)]);
    }
}
