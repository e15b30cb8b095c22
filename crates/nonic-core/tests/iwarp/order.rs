//! Order: message numbers, depths, fences, which side goes first, and when requests complete.

use crate::iwarp::bench::{End, IOVA, Pair, Peer, Setup, pattern, solo};
use nonic_core::iwarp::{Rtr, StreamEvent, StreamRole};
use nonic_core::{Data, PostError, RemoteAddress, SendFlags, SendOp, Status};
use nonic_wire::iwarp::{Header, ReadRequest, Tagged};
use std::time::Duration;

const FROM: RemoteAddress = RemoteAddress { va: 64, rkey: 5 };

/// An initiator whose ready message is gone, and its peer.
fn initiator(setup: &Setup) -> (End, Peer) {
    let mut end = End::new(1, setup);
    end.attach(&setup.params(StreamRole::Initiator));
    let mut peer = Peer::new(setup);
    let out = end.transmit();
    peer.read(&out);
    (end, peer)
}

/// The answer to a READ of `length` bytes.
fn answer(peer: &mut Peer, request: &ReadRequest, length: usize) -> Vec<u8> {
    let header = Header::ReadResponse(Tagged {
        last: true,
        stag: request.sink_stag,
        to: request.sink_to,
    });
    peer.frame(header, &vec![7; length])
}

fn reads(segments: &[(Header, Vec<u8>)]) -> Vec<(u32, ReadRequest)> {
    let found = segments.iter().filter_map(|(header, _)| match header {
        Header::ReadRequest { msn, request } => Some((*msn, *request)),
        _ => None,
    });
    found.collect()
}

#[test]
fn a_send_completes_when_tcp_has_taken_its_last_byte() {
    let (mut end, _) = initiator(&Setup::default());
    end.send(1, SendOp::Send, 0, 2000);
    end.send(2, SendOp::Write(FROM), 0, 100);
    let out = end.poll_transmit();
    assert_eq!(end.completed(), []);
    let first = 1448 + 2000 - 1424 + 24;
    end.nic.stream_written(end.now, end.qpn, first - 1);
    assert_eq!(end.completed(), [], "a byte is missing");
    end.nic.stream_written(end.now, end.qpn, 1);
    assert_eq!(end.completed(), [(1, Status::Success)]);
    end.nic.stream_written(end.now, end.qpn, out.len() - first);
    assert_eq!(end.completed(), [(2, Status::Success)]);
}

#[test]
fn requests_complete_in_the_order_they_were_posted() {
    let (mut end, mut peer) = initiator(&Setup::default());
    end.send(1, SendOp::Read(FROM), 0, 4);
    end.send(2, SendOp::Send, 0, 4);
    end.send(3, SendOp::Read(FROM), 0, 4);
    let out = end.transmit();
    let asked = reads(&peer.read(&out));
    assert_eq!(end.completed(), [], "the SEND waits for the READ before it");
    let first = answer(&mut peer, &asked[0].1, 4);
    end.receive(&first);
    assert_eq!(end.completed(), [(1, Status::Success), (2, Status::Success)]);
    let second = answer(&mut peer, &asked[1].1, 4);
    end.receive(&second);
    assert_eq!(end.completed(), [(3, Status::Success)]);
}

#[test]
fn no_more_reads_are_under_way_than_agreed_on() {
    let setup = Setup {
        ord: 2,
        ..Setup::default()
    };
    let (mut end, mut peer) = initiator(&setup);
    for id in 1..=4 {
        end.send(id, SendOp::Read(FROM), 0, 4);
    }
    end.send(5, SendOp::Send, 0, 4);
    let out = end.transmit();
    let asked = reads(&peer.read(&out));
    assert_eq!(asked.iter().map(|(msn, _)| *msn).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(end.transmit(), [], "nothing overtakes");
    let first = answer(&mut peer, &asked[0].1, 4);
    end.receive(&first);
    let out = end.transmit();
    assert_eq!(reads(&peer.read(&out))[0].0, 3);
}

#[test]
fn without_a_depth_there_are_no_reads() {
    let setup = Setup {
        ord: 0,
        ..Setup::default()
    };
    let (mut end, _) = initiator(&setup);
    let refused = end.try_send(1, SendOp::Read(FROM), 0, 4);
    assert_eq!(refused, Err(PostError::NoFetches));
}

#[test]
fn a_fence_holds_a_request_until_every_read_is_answered() {
    let (mut end, mut peer) = initiator(&Setup::default());
    end.send(1, SendOp::Read(FROM), 0, 4);
    let sges = [end.sge(0, 4)];
    end.post(2, SendOp::Send, Data::Sges(&sges), SendFlags::FENCE)
        .expect("posted");
    end.send(3, SendOp::Send, 0, 4);
    let out = end.transmit();
    let segments = peer.read(&out);
    assert_eq!(segments.len(), 1, "only the READ");
    let come = answer(&mut peer, &reads(&segments)[0].1, 4);
    end.receive(&come);
    let out = end.transmit();
    assert_eq!(peer.read(&out).len(), 2);
}

#[test]
fn every_queue_numbers_its_own_messages() {
    let (mut end, mut peer) = initiator(&Setup::default());
    end.send(1, SendOp::Send, 0, 3000);
    end.send(2, SendOp::Read(FROM), 0, 4);
    end.send(3, SendOp::Write(FROM), 0, 4);
    end.send(4, SendOp::Send, 0, 0);
    end.send(5, SendOp::Read(FROM), 0, 4);
    let out = end.transmit();
    let numbers: Vec<(&str, u32, u32)> = peer
        .read(&out)
        .iter()
        .map(|(header, _)| match header {
            Header::Send { msn, mo, .. } => ("send", *msn, *mo),
            Header::ReadRequest { msn, .. } => ("read", *msn, 0),
            Header::Write(_) => ("write", 0, 0),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        ("send", 1, 0),
        ("send", 1, 1424),
        ("send", 1, 2848),
        ("read", 1, 0),
        ("write", 0, 0),
        ("send", 2, 0),
        ("read", 2, 0),
    ];
    assert_eq!(numbers, expected);
}

#[test]
fn a_read_as_ready_message_takes_the_first_number_and_is_nobodys_request() {
    let setup = Setup {
        rtr: Some(Rtr::Read),
        ord: 1,
        ird: 1,
        ..Setup::default()
    };
    let mut pair = Pair::attached(&setup);
    pair.exchange();
    assert_eq!(pair.b.told(), [StreamEvent::Established(pair.b.qpn)]);
    assert_eq!((pair.a.completed(), pair.b.completed()), (vec![], vec![]));
    pair.b.fill(0, &pattern(4, 64));
    let from = pair.b.remote(0);
    pair.a.send(1, SendOp::Read(from), 100, 64);
    pair.exchange();
    assert_eq!(pair.a.completed(), [(1, Status::Success)]);
    assert_eq!(pair.a.bytes(100, 64), pattern(4, 64));
}

#[test]
fn a_read_as_ready_message_works_without_a_depth() {
    let setup = Setup {
        rtr: Some(Rtr::Read),
        ord: 0,
        ird: 0,
        ..Setup::default()
    };
    let mut pair = Pair::with(&setup);
    pair.b.recv(1, 0, 64);
    pair.a.send(2, SendOp::Send, 0, 64);
    pair.exchange();
    assert_eq!(pair.b.received(), [(1, Status::Success)]);
}

#[test]
fn a_responder_is_silent_until_it_has_heard_something() {
    let mut pair = Pair::attached(&Setup::default());
    pair.a.recv(1, 0, 64);
    pair.b.send(2, SendOp::Send, 0, 64);
    assert_eq!(pair.b.transmit(), []);
    pair.b.advance(Duration::from_secs(5));
    assert_eq!(pair.b.transmit(), [], "it was promised something");
    pair.exchange();
    assert_eq!(pair.a.received(), [(1, Status::Success)]);
}

#[test]
fn a_responder_that_was_promised_nothing_speaks_after_a_grace() {
    let setup = Setup {
        rtr: None,
        ..Setup::default()
    };
    let mut pair = Pair::attached(&setup);
    pair.a.recv(1, 0, 64);
    pair.b.send(2, SendOp::Send, 0, 64);
    assert_eq!(pair.exchange(), 0);
    let grace = setup.iwarp.first_send_grace.expect("there is one");
    pair.advance(grace + Duration::from_millis(1));
    pair.exchange();
    assert_eq!(pair.a.received(), [(1, Status::Success)]);
    // To the letter, it waits for ever.
    let mut strict = setup;
    strict.iwarp.first_send_grace = None;
    let mut pair = Pair::attached(&strict);
    pair.b.send(2, SendOp::Send, 0, 64);
    pair.advance(Duration::from_secs(3600));
    assert_eq!(pair.exchange(), 0);
    pair.a.send(3, SendOp::Write(RemoteAddress::default()), 0, 0);
    pair.a.recv(1, 0, 64);
    pair.exchange();
    assert_eq!(pair.a.received(), [(1, Status::Success)]);
}

#[test]
fn answers_do_not_keep_requests_waiting_for_ever() {
    let setup = Setup {
        ird: 16,
        ..Setup::default()
    };
    let (mut end, mut peer) = solo(&setup);
    for msn in 1..=12 {
        let request = ReadRequest {
            sink_stag: 1,
            sink_to: 0,
            size: 4,
            source_stag: end.key.value(),
            source_to: IOVA,
        };
        let frame = peer.frame(Header::ReadRequest { msn, request }, &[]);
        end.receive(&frame);
    }
    for id in 0..2 {
        end.send(id, SendOp::Send, 0, 4);
    }
    let out = end.transmit();
    let kinds: String = peer
        .read(&out)
        .iter()
        .map(|(header, _)| match header {
            Header::ReadResponse(_) => 'r',
            _ => 's',
        })
        .collect();
    assert_eq!(kinds, "rrrrsrrrrsrrrr");
}

#[test]
fn messages_are_never_mixed() {
    let (mut end, mut peer) = solo(&Setup::default());
    end.send(1, SendOp::Write(FROM), 0, 5000);
    let mut buffer = vec![0; 1500];
    let length = end.nic.poll_stream_transmit(end.now, end.qpn, 1448, &mut buffer);
    let mut segments = peer.read(&buffer[..length]);
    let request = ReadRequest {
        sink_stag: 1,
        sink_to: 0,
        size: 5000,
        source_stag: end.key.value(),
        source_to: IOVA,
    };
    let frame = peer.frame(Header::ReadRequest { msn: 1, request }, &[]);
    end.receive(&frame);
    end.send(2, SendOp::Write(FROM), 0, 10);
    let out = end.transmit();
    segments.extend(peer.read(&out));
    let kinds: String = segments
        .iter()
        .map(|(header, _)| match header {
            Header::ReadResponse(_) => 'r',
            _ => 'w',
        })
        .collect();
    assert_eq!(kinds, "wwwwrrrrw");
}

#[test]
fn reads_see_what_was_written_before_them() {
    let mut pair = Pair::new();
    pair.a.fill(0, b"first");
    let there = pair.b.remote(500);
    pair.a.send(1, SendOp::Write(there), 0, 5);
    pair.a.send(2, SendOp::Read(there), 100, 5);
    pair.exchange();
    assert_eq!(pair.a.bytes(100, 5), b"first");
}

#[test]
fn both_sides_may_talk_at_once() {
    let mut pair = Pair::new();
    pair.chunk = 997;
    for round in 0..20u64 {
        let (to_a, to_b) = (pair.a.remote(100_000), pair.b.remote(100_000));
        pair.a.recv(round, 0, 4000);
        pair.b.recv(round, 0, 4000);
        pair.a.send(round, SendOp::Send, 0, 4000);
        pair.b.send(round, SendOp::Send, 0, 4000);
        pair.a.send(100 + round, SendOp::Read(to_b), 200_000, 9000);
        pair.b.send(100 + round, SendOp::Read(to_a), 200_000, 9000);
    }
    pair.exchange();
    assert_eq!(pair.a.completed().len(), 40);
    assert_eq!(pair.b.completed().len(), 40);
    assert_eq!((pair.a.received().len(), pair.b.received().len()), (20, 20));
}

#[test]
fn a_send_queue_takes_as_many_as_it_was_created_for() {
    let (mut end, _) = initiator(&Setup::default());
    for id in 0..64 {
        end.send(id, SendOp::Send, 0, 4);
    }
    assert_eq!(end.nic.send_room(end.qpn), Some(0));
    assert_eq!(
        end.try_send(64, SendOp::Send, 0, 4),
        Err(PostError::SendQueueFull)
    );
    end.transmit();
    assert_eq!(end.nic.send_room(end.qpn), Some(64));
}
