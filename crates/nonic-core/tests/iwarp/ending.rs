//! How streams end: by agreement, by abortion, by a Terminate or by breaking; and that every wait for an end is
//! bounded.

use crate::iwarp::bench::{End, Pair, Peer, Setup, solo};
use nonic_core::iwarp::{AttachError, StreamClosed, StreamEnd, StreamEvent, StreamReading, StreamRole};
use nonic_core::{Event, ModifyError, PostError, QpAttributes, QpState, RemoteAddress, SendOp, Status};
use nonic_wire::iwarp::{DdpHeader, Header, ReadRequest, SendKind, Tagged, Terminate, TerminateCode as Code};
use std::time::Duration;

fn closed(end: &mut End, how: StreamClosed) {
    end.nic.stream_closed(end.now, end.qpn, how);
    end.act();
}

#[test]
fn a_graceful_close_ends_both_halves_and_tells_both_programs() {
    let mut pair = Pair::new();
    pair.a.recv(1, 0, 64);
    pair.b.recv(2, 0, 64);
    pair.a.go_to(QpState::Sqd);
    pair.a.act();
    assert!(pair.a.finished, "there is nothing more to send");
    assert_eq!(pair.a.state(), QpState::Sqd);
    assert_eq!(pair.a.received(), [], "the peer may still send");
    pair.exchange();
    assert_eq!(pair.b.end(), StreamEnd::PeerClosed);
    assert_eq!(pair.a.end(), StreamEnd::Closed);
    for end in [&mut pair.a, &mut pair.b] {
        assert!(end.closed);
        assert_eq!(end.state(), QpState::Error);
        assert_eq!(end.events(), [], "nothing went wrong");
    }
    assert_eq!(pair.a.received(), [(1, Status::Flushed)]);
    assert_eq!(pair.b.received(), [(2, Status::Flushed)]);
}

#[test]
fn both_may_close_at_the_same_time() {
    let mut pair = Pair::new();
    pair.a.go_to(QpState::Sqd);
    pair.b.go_to(QpState::Sqd);
    pair.exchange();
    assert_eq!(pair.a.end(), StreamEnd::Closed);
    assert_eq!(pair.b.end(), StreamEnd::Closed);
}

#[test]
fn what_the_peer_sends_before_it_hears_of_the_close_still_arrives() {
    let (mut end, mut peer) = solo(&Setup::default());
    end.recv(1, 0, 64);
    end.go_to(QpState::Sqd);
    let header = Header::Send {
        kind: SendKind::default(),
        msn: 1,
        mo: 0,
        last: true,
    };
    let frame = peer.frame(header, b"late");
    assert_eq!(end.receive(&frame), StreamReading::Ready);
    assert_eq!(end.received(), [(1, Status::Success)]);
    closed(&mut end, StreamClosed::ByPeer);
    assert_eq!(end.end(), StreamEnd::Closed);
}

#[test]
fn answers_that_are_due_go_out_before_the_half_ends() {
    let (mut end, mut peer) = solo(&Setup::default());
    let request = ReadRequest {
        sink_stag: 1,
        sink_to: 0,
        size: 5000,
        source_stag: end.key.value(),
        source_to: crate::iwarp::bench::IOVA,
    };
    let frame = peer.frame(Header::ReadRequest { msn: 1, request }, &[]);
    end.receive(&frame);
    end.go_to(QpState::Sqd);
    end.act();
    assert!(!end.finished);
    let out = end.poll_transmit();
    assert_eq!(peer.read(&out).len(), 4);
    assert!(!end.finished, "TCP has not taken it");
    end.nic.stream_written(end.now, end.qpn, out.len());
    end.act();
    assert!(end.finished);
}

#[test]
fn a_read_that_comes_when_nothing_can_be_answered_ends_it() {
    let (mut end, mut peer) = solo(&Setup::default());
    end.go_to(QpState::Sqd);
    end.act();
    assert!(end.finished);
    let request = ReadRequest::default();
    let frame = peer.frame(Header::ReadRequest { msn: 1, request }, &[]);
    end.receive(&frame);
    assert_eq!(end.end(), StreamEnd::Closed);
    assert!(end.closed);
}

#[test]
fn closing_with_requests_under_way_aborts() {
    let mut pair = Pair::new();
    pair.a.send(1, SendOp::Send, 0, 64);
    pair.a.go_to(QpState::Sqd);
    assert_eq!(pair.a.state(), QpState::Error);
    assert_eq!(pair.a.completed(), [(1, Status::Flushed)]);
    assert_eq!(pair.a.end(), StreamEnd::Aborted);
    assert!(pair.a.closed);
}

#[test]
fn an_abort_flushes_and_closes_at_once() {
    let mut pair = Pair::new();
    pair.a.recv(1, 0, 64);
    pair.a.send(2, SendOp::Send, 0, 64);
    let to = pair.b.remote(0);
    pair.a.send(3, SendOp::Read(to), 0, 64);
    pair.a.go_to(QpState::Error);
    assert_eq!(pair.a.completed(), [(2, Status::Flushed), (3, Status::Flushed)]);
    assert_eq!(pair.a.received(), [(1, Status::Flushed)]);
    assert_eq!(pair.a.end(), StreamEnd::Aborted);
    assert_eq!(pair.a.transmit(), []);
    pair.exchange();
    assert_eq!(pair.b.end(), StreamEnd::PeerClosed);
}

#[test]
fn a_peer_that_does_not_end_its_half_is_not_waited_for_for_ever() {
    let (mut end, _) = solo(&Setup::default());
    let linger = Setup::default().iwarp.close_linger;
    end.go_to(QpState::Sqd);
    end.advance(linger - Duration::from_millis(1));
    assert!(!end.closed);
    end.advance(Duration::from_millis(2));
    assert!(end.closed);
    assert_eq!(end.end(), StreamEnd::Closed);
    // Nor is one that does not take what it asked for.
    let (mut end, mut peer) = solo(&Setup::default());
    let request = ReadRequest::default();
    let frame = peer.frame(Header::ReadRequest { msn: 1, request }, &[]);
    end.receive(&frame);
    end.go_to(QpState::Sqd);
    end.poll_transmit();
    end.advance(linger + Duration::from_millis(1));
    assert!(end.closed);
}

#[test]
fn the_end_of_the_stream_within_an_fpdu_is_a_loss() {
    let whole = {
        let (_, mut peer) = solo(&Setup::default());
        let header = Header::Write(Tagged {
            last: true,
            stag: 1,
            to: 0,
        });
        peer.frame(header, &[])
    };
    for length in 0..=whole.len() {
        let (mut end, _) = solo(&Setup::default());
        end.recv(1, 0, 64);
        end.receive(&whole[..length]);
        closed(&mut end, StreamClosed::ByPeer);
        let whole = length == 0 || length == whole.len();
        let expected = if whole {
            StreamEnd::PeerClosed
        } else {
            StreamEnd::Lost
        };
        assert_eq!(end.end(), expected, "after {length} bytes");
        assert!(end.closed);
        assert_eq!(end.received(), [(1, Status::Flushed)]);
    }
}

#[test]
fn a_broken_connection_flushes() {
    let (mut end, _) = solo(&Setup::default());
    end.recv(1, 0, 64);
    end.send(2, SendOp::Write(RemoteAddress::default()), 0, 64);
    closed(&mut end, StreamClosed::Broken);
    assert_eq!(end.end(), StreamEnd::Lost);
    assert_eq!(end.completed(), [(2, Status::Flushed)]);
    assert_eq!(end.received(), [(1, Status::Flushed)]);
    closed(&mut end, StreamClosed::Broken);
    assert_eq!(end.told(), [], "it ends once");
}

/// An end that has made a mistake find it.
fn faulty() -> (End, Peer) {
    let (mut end, mut peer) = solo(&Setup::default());
    let header = Header::Write(Tagged {
        last: true,
        stag: 1,
        to: 0,
    });
    let bad = peer.frame(header, &[1]);
    end.receive(&bad);
    (end, peer)
}

#[test]
fn behind_a_terminate_the_stream_is_read_to_its_end() {
    let (mut end, mut peer) = faulty();
    assert_eq!(end.state(), QpState::Sqe);
    let out = end.transmit();
    peer.read_terminate(&out);
    assert!(end.finished && !end.closed);
    assert_eq!(end.receive(&[1, 2, 3]), StreamReading::Discarding);
    closed(&mut end, StreamClosed::ByPeer);
    assert!(end.closed);
    assert_eq!(end.receive(&[1]), StreamReading::Closed);
}

#[test]
fn a_peer_that_goes_on_after_a_terminate_is_left_after_a_while() {
    let (mut end, _) = faulty();
    end.transmit();
    end.advance(Setup::default().iwarp.terminate_linger + Duration::from_millis(1));
    assert!(end.closed);
    // The same if it does not even take the Terminate.
    let (mut end, _) = faulty();
    end.poll_transmit();
    end.advance(Setup::default().iwarp.terminate_linger + Duration::from_millis(1));
    assert!(end.closed);
}

#[test]
fn a_peer_that_has_ended_its_half_still_gets_the_terminate() {
    let (mut end, mut peer) = faulty();
    closed(&mut end, StreamClosed::ByPeer);
    assert!(!end.closed);
    let out = end.transmit();
    assert_eq!(peer.read_terminate(&out).code, Code::DDP_TAGGED_INVALID_STAG);
    assert!(end.closed);
}

#[test]
fn a_program_that_aborts_does_not_keep_a_terminate_from_its_peer() {
    let (mut end, mut peer) = faulty();
    end.go_to(QpState::Error);
    assert_eq!(end.state(), QpState::Error);
    let out = end.transmit();
    peer.read_terminate(&out);
    end.go_to(QpState::Error);
    end.act();
    assert!(end.finished && !end.closed);
    assert_eq!(end.end(), StreamEnd::Terminated(Code::DDP_TAGGED_INVALID_STAG));
}

#[test]
fn a_program_may_end_with_a_terminate() {
    let mut pair = Pair::new();
    pair.a.go_to(QpState::Sqe);
    pair.exchange();
    assert_eq!(pair.a.end(), StreamEnd::Terminated(Code::RDMAP_CATASTROPHIC));
    assert_eq!(pair.b.end(), StreamEnd::PeerTerminated(Code::RDMAP_CATASTROPHIC));
}

#[test]
fn a_terminate_flushes_everything_but_what_it_is_about() {
    let (mut end, mut peer) = solo(&Setup::default());
    end.recv(9, 0, 64);
    let from = RemoteAddress { va: 64, rkey: 5 };
    end.send(1, SendOp::Read(from), 0, 100);
    end.send(2, SendOp::Send, 0, 4);
    end.send(3, SendOp::Read(from), 0, 100);
    end.send(4, SendOp::Send, 0, 4);
    let out = end.transmit();
    let Header::ReadRequest { request, .. } = peer.read(&out)[2].0 else {
        panic!("not a READ");
    };
    // Some peers write nonsense where the message number is.
    let about = Header::ReadRequest { msn: 100, request };
    let mut ulpdu = [0; DdpHeader::UNTAGGED_LEN + ReadRequest::LEN];
    about.emit(&mut ulpdu);
    let terminate = Terminate::about(Code::RDMAP_INVALID_STAG, &ulpdu);
    let mut body = [0; Terminate::MAX_LEN];
    let length = terminate.emit(&mut body);
    let frame = peer.frame(Header::Terminate { msn: 1 }, &body[..length]);
    end.receive(&frame);
    assert_eq!(
        end.completed(),
        [
            (1, Status::Flushed),
            (2, Status::Flushed),
            (3, Status::RemoteAccess),
            (4, Status::Flushed)
        ]
    );
    assert_eq!(end.received(), [(9, Status::Flushed)]);
    assert_eq!(end.end(), StreamEnd::PeerTerminated(Code::RDMAP_INVALID_STAG));
    assert!(end.closed);
    assert_eq!(end.events(), [], "the completions tell");
}

#[test]
fn the_form_of_linux_siw_is_understood() {
    // From the capture siw_crc_readbadrkey, with our own sink: layer and type swapped, flags at the wrong end.
    let (mut end, mut peer) = solo(&Setup::default());
    end.send(1, SendOp::Read(RemoteAddress { va: 64, rkey: 5 }), 0, 64);
    let out = end.transmit();
    let Header::ReadRequest { request, .. } = peer.read(&out)[0].0 else {
        panic!("not a READ");
    };
    let mut body = vec![0x10, 0x00, 0x07, 0x00, 0, 28];
    let mut ulpdu = [0; DdpHeader::UNTAGGED_LEN + ReadRequest::LEN];
    Header::ReadRequest { msn: 64, request }.emit(&mut ulpdu);
    body.extend_from_slice(&ulpdu);
    let frame = peer.frame(Header::Terminate { msn: 1 }, &body);
    end.receive(&frame);
    assert_eq!(end.completed(), [(1, Status::RemoteAccess)]);
}

#[test]
fn a_terminate_without_content_ends_the_stream_all_the_same() {
    for length in 0..4 {
        let (mut end, mut peer) = solo(&Setup::default());
        let frame = peer.frame(Header::Terminate { msn: 1 }, &[0; 4][..length]);
        end.receive(&frame);
        assert_eq!(end.end(), StreamEnd::PeerTerminated(Code::RDMAP_UNSPECIFIED));
    }
}

#[test]
fn work_that_is_posted_after_the_end_is_flushed() {
    let (mut end, _) = solo(&Setup::default());
    closed(&mut end, StreamClosed::ByPeer);
    end.send(1, SendOp::Send, 0, 4);
    end.recv(2, 0, 4);
    assert_eq!(end.completed(), [(1, Status::Flushed)]);
    assert_eq!(end.received(), [(2, Status::Flushed)]);
}

#[test]
fn work_needs_a_connection() {
    let setup = Setup::default();
    let mut end = End::new(1, &setup);
    assert_eq!(end.state(), QpState::Init);
    end.recv(1, 0, 64);
    let refused = end.try_send(2, SendOp::Send, 0, 4);
    assert_eq!(refused, Err(PostError::State(QpState::Init)));
    end.attach(&setup.params(StreamRole::Initiator));
    assert_eq!(end.state(), QpState::Rts);
    let again = end
        .nic
        .stream_attach(end.now, end.qpn, &setup.params(StreamRole::Initiator));
    assert_eq!(again, Err(AttachError::State(QpState::Rts)));
    end.go_to(QpState::Sqd);
    let refused = end.try_send(2, SendOp::Send, 0, 4);
    assert_eq!(refused, Err(PostError::State(QpState::Sqd)));
}

#[test]
fn only_a_stream_connects() {
    let mut end = End::new(1, &Setup::default());
    end.go_to(QpState::Rtr);
    let set = QpAttributes {
        state: Some(QpState::Rts),
        ..QpAttributes::default()
    };
    let refused = end.nic.modify_qp(end.now, end.qpn, &set);
    assert!(matches!(refused, Err(ModifyError::NoTransition { .. })));
    assert_eq!(
        end.nic.modify_qp(end.now, end.qpn, &QpAttributes::default()),
        Ok(())
    );
    assert_eq!(end.state(), QpState::Rtr);
}

#[test]
fn a_destroyed_or_reset_queue_pair_gives_its_stream_back() {
    let (mut end, _) = solo(&Setup::default());
    end.send(1, SendOp::Send, 0, 4);
    assert!(end.nic.destroy_qp(end.now, end.qpn));
    end.act();
    assert!(end.closed);
    assert_eq!(end.completed(), []);
    assert_eq!(end.nic.usage().queue_pairs, 0);
    assert!(!end.nic.destroy_qp(end.now, end.qpn));

    let (mut end, _) = solo(&Setup::default());
    end.recv(1, 0, 4);
    end.go_to(QpState::Reset);
    end.act();
    assert!(end.closed);
    assert_eq!(end.received(), []);
    end.go_to(QpState::Init);
    end.attach(&Setup::default().params(StreamRole::Initiator));
    assert_eq!(end.state(), QpState::Rts);
}

#[test]
fn a_failed_device_ends_its_streams() {
    let (mut end, _) = solo(&Setup::default());
    end.recv(1, 0, 4);
    end.nic.fail(end.now);
    assert_eq!(end.received(), [(1, Status::Flushed)]);
    assert!(end.events().contains(&Event::DeviceFatal));
    assert_eq!(end.end(), StreamEnd::Aborted);
    assert!(end.closed);
}

#[test]
fn a_shared_receive_queue_is_left_when_the_stream_ends() {
    let setup = Setup {
        srq: true,
        ..Setup::default()
    };
    let (mut end, _) = solo(&setup);
    end.recv(1, 0, 4);
    closed(&mut end, StreamClosed::ByPeer);
    assert_eq!(end.received(), [], "others may need it");
    assert_eq!(end.events(), [Event::LastWqeReached(end.qpn)]);
}

#[test]
fn a_promised_message_that_does_not_come_ends_it() {
    let setup = Setup::default();
    let mut end = End::new(1, &setup);
    end.attach(&setup.params(StreamRole::Responder));
    end.advance(setup.iwarp.rtr_timeout + Duration::from_millis(1));
    assert_eq!(end.end(), StreamEnd::NotReady);
    assert!(end.closed);
}

#[test]
fn the_first_message_establishes_the_connection_of_a_responder_once() {
    let mut pair = Pair::attached(&Setup::default());
    assert_eq!(pair.b.told(), []);
    pair.exchange();
    assert_eq!(pair.b.told(), [StreamEvent::Established(pair.b.qpn)]);
    assert_eq!(pair.a.told(), []);
    assert_eq!(pair.a.completed(), [], "it was nobody's request");
    pair.a.send(1, SendOp::Write(RemoteAddress::default()), 0, 0);
    pair.exchange();
    assert_eq!(pair.b.told(), []);
}
