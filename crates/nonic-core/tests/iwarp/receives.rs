//! Messages that find no receive: the stream waits for a while, whatever other queue pairs are served meanwhile, and
//! then ends.

use crate::iwarp::bench::{IOVA, Pair, Peer, Setup, pattern, solo};
use nonic_core::iwarp::{StreamClosed, StreamEnd, StreamEvent, StreamReading};
use nonic_core::{Event, QpState, RemoteAddress, SendOp, Status};
use nonic_wire::iwarp::{Header, SendKind, Tagged, Terminate, TerminateCode as Code};
use std::time::Duration;

const GRACE: Duration = Duration::from_secs(1);

fn send(msn: u32, mo: u32, last: bool) -> Header {
    Header::Send {
        kind: SendKind::default(),
        msn,
        mo,
        last,
    }
}

#[test]
fn a_stream_waits_for_a_receive_and_goes_on_where_it_stopped() {
    let (mut end, mut peer) = solo(&Setup::default());
    let mut stream = peer.frame(send(1, 0, false), &[1; 10]);
    stream.extend(peer.frame(send(1, 10, true), &[2; 10]));
    stream.extend(peer.frame(send(2, 0, true), &[3; 10]));
    let write = Header::Write(Tagged {
        last: true,
        stag: end.key.value(),
        to: IOVA + 1000,
    });
    stream.extend(peer.frame(write, &[4; 10]));
    assert_eq!(end.receive(&stream), StreamReading::Blocked);
    assert_eq!(end.told(), []);
    end.recv(1, 0, 64);
    assert_eq!(end.told(), [StreamEvent::Receive(end.qpn)]);
    assert_eq!(end.receive(&[]), StreamReading::Blocked, "the second one waits");
    assert_eq!(end.received(), [(1, Status::Success)]);
    assert_eq!(end.bytes(1000, 10), [0; 10], "order is kept");
    end.recv(2, 64, 64);
    assert_eq!(end.receive(&[]), StreamReading::Ready);
    assert_eq!(end.received(), [(2, Status::Success)]);
    assert_eq!(end.bytes(0, 20), [[1; 10], [2; 10]].concat());
    assert_eq!(end.bytes(1000, 10), [4; 10]);
    end.advance(2 * GRACE);
    assert_eq!(end.state(), QpState::Rts, "nothing waits any more");
}

#[test]
fn a_stream_that_waits_is_told_of_a_receive_once() {
    let (mut end, mut peer) = solo(&Setup::default());
    let mut stream = peer.frame(send(1, 0, true), &[1; 10]);
    stream.extend(peer.frame(send(2, 0, true), &[1; 10]));
    end.receive(&stream);
    end.recv(1, 0, 64);
    end.nic.wake_blocked_streams();
    end.nic.wake_blocked_streams();
    assert_eq!(end.told(), [StreamEvent::Receive(end.qpn)]);
    end.receive(&[]);
    assert!(!end.nic.has_blocked_streams(), "receives of its own are noticed");
    end.recv(2, 0, 64);
    assert_eq!(end.told(), [StreamEvent::Receive(end.qpn)]);
}

#[test]
fn a_stream_waits_for_a_shared_receive_until_it_is_destroyed() {
    let (mut end, mut peer) = solo(&shared());
    let mut stream = peer.frame(send(1, 0, true), &[1; 10]);
    stream.extend(peer.frame(send(2, 0, true), &[1; 10]));
    end.receive(&stream);
    assert!(end.nic.has_blocked_streams());
    end.recv(1, 0, 64);
    end.nic.wake_blocked_streams();
    end.receive(&[]);
    assert!(end.nic.has_blocked_streams(), "the second message waits");
    assert!(end.nic.destroy_qp(end.now, end.qpn));
    assert!(!end.nic.has_blocked_streams());
}

#[test]
fn a_first_message_without_a_receive_is_a_first_message() {
    let setup = Setup::default();
    let mut end = crate::iwarp::bench::End::new(1, &setup);
    end.attach(&setup.params(nonic_core::iwarp::StreamRole::Responder));
    let frame = Peer::new(&setup).frame(send(1, 0, true), &[1; 10]);
    assert_eq!(end.receive(&frame), StreamReading::Blocked);
    assert_eq!(end.told(), [StreamEvent::Established(end.qpn)]);
    end.send(1, SendOp::Write(RemoteAddress::default()), 0, 4);
    assert_eq!(Peer::new(&setup).read(&end.transmit()).len(), 1);
}

#[test]
fn what_comes_while_a_stream_waits_is_kept() {
    for cut in 0..30 {
        let (mut end, mut peer) = solo(&Setup::default());
        let first = peer.frame(send(1, 0, true), &[1; 10]);
        let second = peer.frame(send(2, 0, true), &[2; 10]);
        end.receive(&first);
        end.receive(&second[..cut]);
        end.recv(1, 0, 64);
        end.recv(2, 64, 64);
        end.receive(&second[cut..]);
        assert_eq!(end.received(), [(1, Status::Success), (2, Status::Success)]);
    }
}

#[test]
fn the_wait_for_a_receive_ends_with_a_terminate() {
    let (mut end, mut peer) = solo(&Setup::default());
    let header = send(1, 0, true);
    let frame = peer.frame(header, &[1; 10]);
    assert_eq!(end.receive(&frame), StreamReading::Blocked);
    end.advance(GRACE - Duration::from_millis(1));
    assert_eq!(end.state(), QpState::Rts);
    end.advance(Duration::from_millis(2));
    assert_eq!(end.state(), QpState::Sqe);
    let out = end.transmit();
    let terminate = peer.read_terminate(&out);
    let mut ulpdu = vec![0; header.len()];
    header.emit(&mut ulpdu);
    ulpdu.extend([1; 10]);
    assert_eq!(terminate, Terminate::about(Code::DDP_UNTAGGED_NO_BUFFER, &ulpdu));
    assert_eq!(end.end(), StreamEnd::Terminated(Code::DDP_UNTAGGED_NO_BUFFER));
    assert_eq!(end.events(), [Event::QpRequestError(end.qpn)]);
}

#[test]
fn each_message_has_its_own_wait() {
    let (mut end, mut peer) = solo(&Setup::default());
    let mut stream = peer.frame(send(1, 0, true), &[1; 10]);
    stream.extend(peer.frame(send(2, 0, true), &[2; 10]));
    end.receive(&stream);
    end.advance(GRACE / 2);
    end.recv(1, 0, 64);
    end.receive(&[]);
    end.advance(GRACE / 2 + Duration::from_millis(10));
    assert_eq!(end.state(), QpState::Rts);
    end.advance(GRACE / 2);
    assert_eq!(end.state(), QpState::Sqe);
}

#[test]
fn a_waiting_stream_still_sends() {
    let (mut end, mut peer) = solo(&Setup::default());
    let frame = peer.frame(send(1, 0, true), &[1; 10]);
    end.receive(&frame);
    end.send(1, SendOp::Write(RemoteAddress::default()), 0, 10);
    let out = end.transmit();
    assert_eq!(peer.read(&out).len(), 1);
    assert_eq!(end.completed(), [(1, Status::Success)]);
}

#[test]
fn the_end_of_the_stream_waits_for_what_came_before_it() {
    let (mut end, mut peer) = solo(&Setup::default());
    let frame = peer.frame(send(1, 0, true), &[1; 10]);
    end.receive(&frame);
    end.nic.stream_closed(end.now, end.qpn, StreamClosed::ByPeer);
    assert_eq!(end.state(), QpState::Rts);
    end.recv(1, 0, 64);
    end.receive(&[]);
    assert_eq!(end.received(), [(1, Status::Success)]);
    assert_eq!(end.state(), QpState::Error);
    // Or for the end of the wait.
    let (mut end, mut peer) = solo(&Setup::default());
    let frame = peer.frame(send(1, 0, true), &[1; 10]);
    end.receive(&frame);
    end.nic.stream_closed(end.now, end.qpn, StreamClosed::ByPeer);
    end.advance(GRACE + Duration::from_millis(1));
    let out = end.transmit();
    assert_eq!(peer.read_terminate(&out).code, Code::DDP_UNTAGGED_NO_BUFFER);
    assert!(end.closed, "the peer has ended its half long ago");
}

fn shared() -> Setup {
    Setup {
        srq: true,
        ..Setup::default()
    }
}

#[test]
fn a_shared_queue_serves_a_stream_that_waits() {
    let (mut end, mut peer) = solo(&shared());
    let frame = peer.frame(send(1, 0, true), &[1; 10]);
    assert_eq!(end.receive(&frame), StreamReading::Blocked);
    end.nic.wake_blocked_streams();
    assert_eq!(end.told(), [], "there is none");
    end.recv(1, 0, 64);
    end.nic.wake_blocked_streams();
    assert_eq!(end.told(), [StreamEvent::Receive(end.qpn)]);
    assert_eq!(end.receive(&[]), StreamReading::Ready);
    assert_eq!(end.received(), [(1, Status::Success)]);
}

#[test]
fn a_shared_queue_is_looked_at_once_more_before_a_stream_is_given_up() {
    let (mut end, mut peer) = solo(&shared());
    let frame = peer.frame(send(1, 0, true), &[1; 10]);
    end.receive(&frame);
    end.recv(1, 0, 64);
    end.advance(GRACE + Duration::from_millis(1));
    assert_eq!(end.state(), QpState::Rts);
    assert_eq!(end.received(), [(1, Status::Success)]);
    assert_eq!(end.nic.stream_reading(end.qpn), StreamReading::Ready);
}

#[test]
fn a_shared_queue_tells_when_few_receives_are_left() {
    let mut pair = Pair::with(&shared());
    pair.b.recv(1, 0, 64);
    pair.b.recv(2, 0, 64);
    let srq = pair.b.srq.clone().expect("there is one");
    srq.set_limit(2);
    pair.a.send(1, SendOp::Send, 0, 4);
    pair.exchange();
    assert_eq!(pair.b.events(), [Event::SrqLimit(srq.id())]);
}

#[test]
fn one_stream_that_waits_does_not_stop_another() {
    let setup = shared();
    let (mut end, mut peer) = solo(&setup);
    let first = end.qpn;
    let frame = peer.frame(send(1, 0, true), &[1; 10]);
    end.receive(&frame);
    let second = end.add_qp();
    end.qpn = second;
    end.attach(&setup.params(nonic_core::iwarp::StreamRole::Responder));
    let mut other = Peer::new(&setup);
    let write = Header::Write(Tagged {
        last: true,
        stag: end.key.value(),
        to: IOVA,
    });
    let frame = other.frame(write, &pattern(1, 100));
    assert_eq!(end.receive(&frame), StreamReading::Ready);
    assert_eq!(end.bytes(0, 100), pattern(1, 100));
    assert_eq!(end.nic.stream_reading(first), StreamReading::Blocked);
}

#[test]
fn a_message_keeps_its_receive_while_it_arrives() {
    let (mut end, mut peer) = solo(&Setup::default());
    end.recv(1, 0, 64);
    let frame = peer.frame(send(1, 0, false), &[1; 10]);
    end.receive(&frame);
    end.recv(2, 64, 64);
    let frame = peer.frame(send(1, 10, true), &[2; 10]);
    end.receive(&frame);
    assert_eq!(end.received(), [(1, Status::Success)]);
}
