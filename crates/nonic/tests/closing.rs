//! How a connection ends, and how both sides learn why. On both wires.

use crate::bench::{Ends, PATIENCE, WIRES, block_on};
use nonic::{CloseReason, Device, Listener, Rc, RequestError, Status, connect};
use std::time::Duration;

#[test]
fn who_waits_for_a_message_learns_that_the_peer_has_left() {
    for device in ["roce_lo", "iwarp_lo"] {
        let Ends {
            domain,
            client,
            server,
        } = Ends::new(device);
        let receive = server.recv(domain.lease(8).expect("memory"));
        let receive = receive
            .wait_within(Duration::from_millis(20))
            .expect_err("nobody sends");
        client.disconnect();
        let failed = receive
            .wait_within(PATIENCE)
            .expect("in time")
            .expect_err("nothing was sent");
        assert!(
            matches!(failed.error, RequestError::Closed(CloseReason::Disconnected)),
            "{device}: {:?}",
            failed.error
        );
        assert_eq!(failed.buffers.into_iter().count(), 1);
    }
}

#[test]
fn the_end_can_be_awaited_anywhere_and_more_than_once() {
    for device in ["roce_lo", "iwarp_lo"] {
        let Ends { client, server, .. } = Ends::new(device);
        let (closed, local) = (server.closed(), client.closed());
        assert_eq!(closed.reason(), None);
        let waiter = std::thread::spawn(move || block_on(closed));
        let again = server.closed();
        drop(client);
        assert_eq!(local.reason(), Some(CloseReason::Local));
        assert_eq!(waiter.join().expect("no panic"), CloseReason::Disconnected);
        assert_eq!(again.wait(Some(PATIENCE)), Some(CloseReason::Disconnected));
        assert!(server.wait_disconnected(None), "it stays so");
    }
}

#[test]
fn a_connection_lasts_as_long_as_either_half() {
    for device in ["roce_lo", "iwarp_lo"] {
        let Ends {
            domain,
            client,
            server,
        } = Ends::new(device);
        let closed = server.closed();
        let receive = server.recv(domain.lease(8).expect("memory"));
        let (mut send, receiving) = client.split();
        drop(receiving);
        send.send(1, domain.lease_from(b"still").expect("memory"))
            .expect("posted");
        let got = receive.wait_within(PATIENCE).expect("in time").expect("received");
        assert_eq!(got.bytes(), b"still");
        assert_eq!(closed.reason(), None);
        drop(send);
        assert_eq!(closed.wait(Some(PATIENCE)), Some(CloseReason::Disconnected));
    }
}

#[test]
fn a_side_that_shuts_down_knows_that_it_was_itself() {
    let Ends {
        domain,
        client,
        server,
    } = Ends::new("roce_lo");
    let receive = client.recv(domain.lease(8).expect("memory"));
    client.shutdown().expect("told");
    let failed = receive.wait().expect_err("flushed");
    assert!(matches!(failed.error, RequestError::Closed(CloseReason::Local)));
    assert!(server.wait_disconnected(Some(PATIENCE)));
}

/// A reader of a log with many connections must know which it was.
#[test]
fn errors_name_the_peer() {
    for device in WIRES {
        let Ends {
            domain,
            client,
            server,
        } = Ends::new(device);
        let peer = client.peer_addr();
        let receive = client.recv(domain.lease(8).expect("memory"));
        assert!(format!("{client:?}").contains(&peer.to_string()));
        drop(server);
        let failed = receive.wait_within(PATIENCE).expect("in time").expect_err("left");
        assert_eq!(failed.peer, Some(peer));
        assert_eq!(failed.to_string(), format!("{peer}: the peer disconnected"));

        let nobody = Device::open(device).expect("loopback is there").domain();
        let connecting = connect(nobody.pair_builder::<Rc>(), peer, b"").expect("asked");
        let refused = connecting
            .wait_within(PATIENCE)
            .expect_err("nobody listens any more");
        assert!(refused.to_string().starts_with(&peer.to_string()), "{refused}");
    }
}

/// A completion with a number says why it was flushed, too.
#[test]
fn flushed_completions_say_that_the_connection_ended() {
    for device in WIRES {
        let device = Device::open(device).expect("loopback is there");
        let (domain, queue) = (device.domain(), device.completion_queue(4).expect("a queue"));
        let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("free");
        let connecting = connect(domain.pair_builder::<Rc>(), listener.local_addr(), b"").expect("asked");
        let incoming = listener.accept_within(PATIENCE).expect("in time");
        let mut server = incoming
            .accept(domain.queue_pair_builder::<Rc>(&queue), b"")
            .expect("accepted");
        let room = domain.lease(8).expect("memory");
        server.pair.rq.recv(1, room).expect("posted");
        connecting.wait().expect("connected").disconnect();
        let done = queue.wait(Some(PATIENCE)).expect("no overflow").expect("in time");
        assert_eq!(
            (done.result, done.closed),
            (Err(Status::Flushed), Some(CloseReason::Disconnected))
        );
    }
}

/// Receives of a shared queue stay for others; what the server sends, and the connection itself, tell it.
#[test]
fn a_server_with_a_shared_receive_queue_learns_which_client_left() {
    for device in WIRES {
        let device = Device::open(device).expect("loopback is there");
        let (domain, queue) = (device.domain(), device.completion_queue(4).expect("a queue"));
        let shared = domain.shared_receive_queue(&queue, 4);
        shared.recv(1, domain.lease(8).expect("memory")).expect("posted");
        let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("free");
        let [(stays, client), (loses, leaver)] = [0, 1].map(|_| {
            let connecting = connect(domain.pair_builder::<Rc>(), listener.local_addr(), b"").expect("asked");
            let incoming = listener.accept_within(PATIENCE).expect("in time");
            let builder = domain.queue_pair_builder::<Rc>(&queue).shared_receives(&shared);
            let server = incoming.accept(builder, b"").expect("accepted");
            (server, connecting.wait().expect("connected"))
        });
        leaver.disconnect();
        assert_eq!(
            loses.closed().wait(Some(PATIENCE)),
            Some(CloseReason::Disconnected)
        );
        let failed = loses.send_bytes(b"are you there?").wait_within(PATIENCE);
        let failed = failed.expect("in time").expect_err("it has left");
        assert!(
            matches!(failed.error, RequestError::Closed(CloseReason::Disconnected)),
            "{failed}"
        );
        // The receive is still there, for the other one.
        client
            .send_bytes(b"I am")
            .wait_within(PATIENCE)
            .expect("in time")
            .expect("sent");
        let done = queue.wait(Some(PATIENCE)).expect("no overflow").expect("in time");
        assert_eq!((done.id, done.result, done.qpn), (1, Ok(4), stays.qpn()));
    }
}
