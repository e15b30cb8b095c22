//! Connections that end when everything is done: nothing is lost, and no caller waits for ever. On both wires.

use crate::bench::{Ends, PATIENCE, WIRES, block_on};
use nonic::{Access, CloseReason};
use std::time::Duration;

const MESSAGES: usize = 300;

#[test]
fn everything_that_was_sent_arrives_before_the_end() {
    for wire in WIRES {
        let Ends {
            domain,
            client,
            server,
        } = Ends::new(wire);
        let receives: Vec<_> = (0..MESSAGES)
            .map(|_| server.recv(domain.lease(4096).expect("memory")))
            .collect();
        let closed = server.closed();
        let sender = std::thread::spawn(move || {
            // More than the send queue holds, and none of them is awaited.
            for number in 0..MESSAGES {
                let mut message = domain.lease(4096).expect("memory");
                message[..8].copy_from_slice(&number.to_ne_bytes());
                drop(client.send(message));
            }
            block_on(client.finish())
        });
        for (number, receive) in receives.into_iter().enumerate() {
            let got = receive.wait_within(PATIENCE).expect("in time").expect("received");
            assert_eq!(got.bytes()[..8], number.to_ne_bytes(), "{wire}");
        }
        assert_eq!(sender.join().expect("no panic"), Ok(()), "{wire}");
        assert_eq!(closed.wait(Some(PATIENCE)), Some(CloseReason::Disconnected));
    }
}

#[test]
fn the_answers_of_reads_are_waited_for() {
    for wire in WIRES {
        let Ends {
            domain,
            client,
            server: _server,
        } = Ends::new(wire);
        let shelf = domain.lease(1 << 20).expect("memory");
        let shelf = shelf.expose(Access::REMOTE_READ).expect("exposed");
        let read = client.read(domain.lease(1 << 20).expect("memory"), shelf.remote());
        let finished = client.finish().wait_within(PATIENCE).expect("in time");
        assert_eq!(finished, Ok(()), "{wire}");
        read.wait_within(PATIENCE)
            .expect("in time")
            .expect("it was read before the end");
    }
}

/// A polled request is done when it is done, whether or not the program took its completion.
#[test]
fn completions_that_nobody_took_are_not_waited_for() {
    let Ends {
        domain,
        mut client,
        server,
    } = Ends::new("roce_lo");
    let receive = server.recv(domain.lease(8).expect("memory"));
    client
        .pair
        .sq
        .send(7, domain.lease_from(b"hello").expect("memory"))
        .expect("posted");
    client
        .finish()
        .wait_within(PATIENCE)
        .expect("in time")
        .expect("finished");
    let got = receive.wait_within(PATIENCE).expect("in time").expect("received");
    assert_eq!(got.bytes(), b"hello");
}

#[test]
fn a_peer_that_takes_nothing_keeps_it_waiting_until_it_leaves() {
    for wire in WIRES {
        let Ends {
            domain,
            client,
            server,
        } = Ends::new(wire);
        // It has no receive: the message stays under way. Over iWARP it is enough that TCP has it.
        let read_only = domain
            .lease(8)
            .expect("memory")
            .expose(Access::REMOTE_READ)
            .expect("exposed");
        drop(client.send(domain.lease(8).expect("memory")));
        drop(client.read(domain.lease(8).expect("memory"), read_only.remote()));
        let finishing = client.finish().wait_within(Duration::from_millis(50));
        let finishing = finishing.expect_err("something is under way");
        server.disconnect();
        let ended = finishing.wait_within(PATIENCE).expect("in time");
        assert_eq!(ended, Err(CloseReason::Disconnected), "{wire}");
    }
}
