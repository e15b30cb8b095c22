//! Every operation between the two sides, with every length that is special.

use crate::iwarp::bench::{End, Pair, Peer, Setup, pattern};
use nonic_core::iwarp::StreamRole;
use nonic_core::{
    CompletionOpcode, Data, KeyError, PostError, RemoteAddress, SendFlags, SendOp, Status, WindowBind,
};
use nonic_wire::iwarp::{Header, SendKind, Tagged};

const LENGTHS: [u32; 8] = [0, 1, 64, 1424, 1425, 1428, 1429, 100_000];

#[test]
fn sends_of_every_length_arrive() {
    for length in LENGTHS {
        let mut pair = Pair::new();
        pair.a.fill(0, &pattern(1, length as usize));
        pair.b.recv(7, 1000, length);
        pair.a.send(8, SendOp::Send, 0, length);
        pair.exchange();
        let done = pair.b.receptions();
        assert_eq!(done.len(), 1);
        assert_eq!((done[0].wr_id, done[0].status), (7, Status::Success));
        assert_eq!(
            (done[0].opcode, done[0].byte_len),
            (CompletionOpcode::Recv, length)
        );
        assert_eq!(pair.b.bytes(1000, length as usize), pattern(1, length as usize));
        assert_eq!(pair.a.completed(), [(8, Status::Success)]);
    }
}

#[test]
fn writes_of_every_length_arrive_and_nobody_hears_of_them() {
    for length in LENGTHS {
        let mut pair = Pair::new();
        pair.a.fill(0, &pattern(2, length as usize));
        let to = pair.b.remote(1000);
        pair.a.send(8, SendOp::Write(to), 0, length);
        pair.exchange();
        assert_eq!(pair.b.bytes(1000, length as usize), pattern(2, length as usize));
        assert_eq!(pair.a.completed(), [(8, Status::Success)]);
        assert_eq!(pair.b.received(), []);
    }
}

#[test]
fn reads_of_every_length_bring_the_bytes() {
    for length in LENGTHS {
        let mut pair = Pair::new();
        pair.b.fill(1000, &pattern(3, length as usize));
        let from = pair.b.remote(1000);
        pair.a.send(8, SendOp::Read(from), 0, length);
        pair.exchange();
        let done = pair.a.completions();
        assert_eq!(done.len(), 1);
        assert_eq!((done[0].wr_id, done[0].status), (8, Status::Success));
        assert_eq!(
            (done[0].opcode, done[0].byte_len),
            (CompletionOpcode::Read, length)
        );
        assert_eq!(pair.a.bytes(0, length as usize), pattern(3, length as usize));
    }
}

#[test]
fn a_read_may_go_to_several_places() {
    let mut pair = Pair::new();
    pair.b.fill(0, &pattern(3, 5000));
    let from = pair.b.remote(0);
    let sges = [
        pair.a.sge(0, 100),
        pair.a.sge(10_000, 4000),
        pair.a.sge(20_000, 900),
    ];
    pair.a
        .post(1, SendOp::Read(from), Data::Sges(&sges), SendFlags::empty())
        .expect("posted");
    pair.exchange();
    assert_eq!(pair.a.completed(), [(1, Status::Success)]);
    let expected = pattern(3, 5000);
    assert_eq!(pair.a.bytes(0, 100), expected[..100]);
    assert_eq!(pair.a.bytes(10_000, 4000), expected[100..4100]);
    assert_eq!(pair.a.bytes(20_000, 900), expected[4100..]);
}

#[test]
fn what_arrives_does_not_depend_on_how_the_stream_is_cut() {
    for chunk in [1, 2, 3, 7, 19, 20, 21, 24, 1447, 1448, 1449, 5000] {
        let mut pair = Pair::new();
        pair.chunk = chunk;
        pair.a.fill(0, &pattern(1, 4000));
        pair.b.fill(50_000, &pattern(2, 4000));
        pair.b.recv(1, 10_000, 4000);
        pair.b.recv(2, 20_000, 4000);
        let (to, from) = (pair.b.remote(30_000), pair.b.remote(50_000));
        pair.a.send(3, SendOp::Send, 0, 3001);
        pair.a.send(4, SendOp::Write(to), 0, 4000);
        pair.a.send(5, SendOp::Read(from), 60_000, 4000);
        pair.a.send(6, SendOp::Send, 0, 5);
        pair.exchange();
        let all = [3, 4, 5, 6].map(|id| (id, Status::Success));
        assert_eq!(pair.a.completed(), all);
        assert_eq!(pair.b.received(), [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(pair.b.bytes(10_000, 3001), pattern(1, 4000)[..3001]);
        assert_eq!(pair.b.bytes(30_000, 4000), pattern(1, 4000));
        assert_eq!(pair.a.bytes(60_000, 4000), pattern(2, 4000));
    }
}

#[test]
fn all_works_without_crcs_and_with_markers() {
    for (crc, markers) in [(false, false), (false, true), (true, true)] {
        let setup = Setup {
            crc,
            markers,
            ..Setup::default()
        };
        // Our own kind never asks for markers, so the other side is the test.
        let mut end = End::new(1, &setup);
        end.attach(&setup.params(StreamRole::Initiator));
        let mut peer = Peer::new(&setup);
        end.fill(0, &pattern(1, 5000));
        end.send(1, SendOp::Write(RemoteAddress { va: 64, rkey: 9 }), 0, 5000);
        end.send(2, SendOp::Send, 0, 100);
        let out = end.transmit();
        let segments = peer.read(&out);
        assert_eq!(
            segments[0].0,
            Header::Write(Tagged {
                last: true,
                stag: 1,
                to: 0
            })
        );
        let mut written = Vec::new();
        for (header, payload) in &segments[1..segments.len() - 1] {
            let Header::Write(Tagged { stag: 9, to, .. }) = header else {
                panic!("not a WRITE: {header:?}");
            };
            assert_eq!(*to, 64 + written.len() as u64);
            written.extend_from_slice(payload);
        }
        assert_eq!(written, pattern(1, 5000));
        assert_eq!(end.completed(), [(1, Status::Success), (2, Status::Success)]);
    }
}

#[test]
fn fpdus_are_no_longer_than_a_segment_of_tcp() {
    for markers in [false, true] {
        let setup = Setup {
            markers,
            ..Setup::default()
        };
        for mss in [536, 1448, 1460, 8948, 32_741, 65_483] {
            let mut end = End::new(1, &setup);
            end.mss = mss;
            end.attach(&setup.params(StreamRole::Initiator));
            end.transmit();
            end.send(1, SendOp::Write(RemoteAddress { va: 0, rkey: 9 }), 0, 200_000);
            // Room for one FPDU, and for the markers that there might be.
            let mut buffer = vec![0; mss + mss / 64];
            let length = end.nic.poll_stream_transmit(end.now, end.qpn, mss, &mut buffer);
            let possible = mss.min(64_768 + 6);
            assert!(length <= mss, "{length} > {mss}");
            assert!(length + 8 > possible, "{length} of {possible} is a waste");
        }
    }
}

#[test]
fn bytes_given_with_the_request_may_change_afterwards() {
    let mut pair = Pair::new();
    pair.b.recv(1, 0, 64);
    let mut inline = *b"inline";
    pair.a
        .post(2, SendOp::Send, Data::Inline(&inline), SendFlags::empty())
        .expect("posted");
    inline.fill(0);
    pair.exchange();
    assert_eq!(pair.b.bytes(0, 6), b"inline");
    let from = pair.b.remote(0);
    let refused = pair
        .a
        .post(3, SendOp::Read(from), Data::Inline(&inline), SendFlags::empty());
    assert_eq!(refused, Err(PostError::Inline));
}

#[test]
fn a_solicited_send_says_so_on_the_wire() {
    let mut end = End::new(1, &Setup::default());
    end.attach(&Setup::default().params(StreamRole::Initiator));
    let sges = [end.sge(0, 4)];
    end.post(1, SendOp::Send, Data::Sges(&sges), SendFlags::SOLICITED)
        .expect("posted");
    let segments = Peer::new(&Setup::default()).read(&end.transmit());
    let kind = SendKind {
        solicited: true,
        invalidate_stag: None,
    };
    let header = Header::Send {
        kind,
        msn: 1,
        mo: 0,
        last: true,
    };
    assert_eq!(segments[1].0, header);
}

#[test]
fn what_the_wire_has_no_message_for_is_refused() {
    let mut pair = Pair::new();
    let to = pair.b.remote(0);
    for op in [SendOp::SendWithImmediate(1), SendOp::AtomicWrite(to)] {
        assert_eq!(pair.a.try_send(1, op, 0, 8), Err(PostError::Unsupported));
    }
}

#[test]
fn local_operations_run_in_order_with_the_others() {
    let mut pair = Pair::new();
    let window = pair
        .b
        .nic
        .alloc_window(pair.b.pd, nonic_core::WindowKind::Type2)
        .expect("there are windows");
    let parent = pair.b.register(|spec| spec.access |= nonic_core::Access::MW_BIND);
    let bind = WindowBind {
        window,
        rkey: window,
        lkey: parent.value(),
        va: crate::iwarp::bench::IOVA,
        length: 4096,
        access: nonic_core::Access::REMOTE_WRITE,
    };
    pair.b
        .post(1, SendOp::BindWindow(bind), Data::Sges(&[]), SendFlags::empty())
        .expect("posted");
    pair.exchange();
    assert_eq!(pair.b.completed(), [(1, Status::Success)]);
    pair.a.fill(0, b"by window");
    let to = RemoteAddress {
        va: crate::iwarp::bench::IOVA,
        rkey: window,
    };
    pair.a.send(2, SendOp::Write(to), 0, 9);
    pair.exchange();
    assert_eq!(pair.b.bytes(0, 9), b"by window");
    pair.b
        .post(
            3,
            SendOp::LocalInvalidate(window),
            Data::Sges(&[]),
            SendFlags::empty(),
        )
        .expect("posted");
    pair.exchange();
    assert_eq!(pair.b.completed(), [(3, Status::Success)]);
    let gone = pair.b.nic.keys().find(window, pair.b.pd, pair.b.qpn).err();
    assert_eq!(gone, Some(KeyError::Unknown));
}
