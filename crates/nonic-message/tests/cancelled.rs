//! Futures dropped at every point where they can wait: no message is lost, doubled or cut.

use crate::common;
use crate::common::{PATIENCE, WIRES, block_on, options, pair, pattern, poll_once, receive};
use nonic_message::Channel;

/// Numbers, as messages of two kinds: in frames, and read.
fn message(number: usize) -> Vec<u8> {
    pattern(number, [8, 50_000][number % 2])
}

#[test]
fn a_receive_that_is_dropped_leaves_the_message() {
    for wire in WIRES {
        for polls in 0..6 {
            let (mut left, mut right) = pair(wire, options(1024));
            for number in 0..4 {
                left.send(message(number)).wait().expect("sent");
                // Dropped after so many polls, each of which may have found any part of it. One that is ready has it.
                let mut receive_it = right.recv();
                let taken = (0..polls).find_map(|_| match poll_once(&mut receive_it) {
                    std::task::Poll::Ready(taken) => Some(taken),
                    std::task::Poll::Pending => None,
                });
                drop(receive_it);
                let taken = match taken {
                    Some(taken) => taken.expect("it lives").expect("a message"),
                    None => receive(&mut right),
                };
                assert!(
                    taken[..] == message(number),
                    "{wire}: {number} after {polls} polls"
                );
            }
        }
    }
}

/// As many as there is room for.
fn fill(channel: &mut Channel) -> usize {
    (0..)
        .take_while(|number| poll_once(&mut channel.send(message(*number))).is_ready())
        .count()
}

#[test]
fn a_send_that_is_dropped_while_it_waits_sends_nothing() {
    for wire in WIRES {
        for polls in 0..4 {
            let (mut left, mut right) = pair(wire, options(1024));
            let sent = fill(&mut left);
            // Another one of the kind that there is no room for.
            let mut dropped = left.send(pattern(1000, message(sent).len()));
            for _ in 0..polls {
                assert!(poll_once(&mut dropped).is_pending());
            }
            drop(dropped);
            for number in 0..sent {
                assert!(receive(&mut right)[..] == message(number), "{wire}: {number}");
            }
            block_on(left.send(b"next")).expect("sent");
            assert_eq!(&receive(&mut right)[..], b"next");
        }
    }
}

/// A sender and a receiver whose every future is dropped after a poll and made again, until it is ready at once.
#[test]
fn futures_that_live_for_one_poll_move_everything() {
    const COUNT: usize = 300;
    for wire in WIRES {
        let (left, mut right) = pair(wire, options(1024));
        let (mut sender, _receiver) = left.split();
        let start = std::time::Instant::now();
        let (mut sent, mut received) = (0, 0);
        while received < COUNT {
            assert!(start.elapsed() < PATIENCE, "{sent} sent, {received} received");
            if sent < COUNT {
                if let std::task::Poll::Ready(outcome) = poll_once(&mut sender.send(message(sent))) {
                    outcome.expect("sent");
                    sent += 1;
                }
            }
            let _ = poll_once(&mut sender.flush());
            if let std::task::Poll::Ready(outcome) = poll_once(&mut right.recv()) {
                let taken = outcome.expect("it lives").expect("a message");
                assert!(taken[..] == message(received), "{wire}: {received}");
                received += 1;
            }
        }
    }
}

#[test]
fn a_close_that_is_dropped_is_said_all_the_same_and_can_be_awaited_again() {
    for wire in WIRES {
        let (mut left, mut right) = pair(wire, options(1024));
        left.send(message(1)).wait().expect("sent");
        assert!(poll_once(&mut left.close()).is_pending());
        assert!(left.send(b"too late").wait().is_err());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(receive(&mut right)[..] == message(1));
                let end = right.recv().wait_within(PATIENCE).expect("in time");
                assert!(end.expect("in good order").is_none());
            });
            left.close()
                .wait_within(PATIENCE)
                .expect("in time")
                .expect("closed");
        });
    }
}

#[test]
fn an_accept_that_is_dropped_leaves_the_peer_waiting() {
    let node = common::node("roce_lo", options(1024));
    let listener = node.listen(common::loopback()).expect("a port");
    assert!(poll_once(&mut listener.accept()).is_pending());
    let (mut left, mut right) = common::ends(&node, &listener);
    left.send(b"hello").wait().expect("sent");
    assert_eq!(&receive(&mut right)[..], b"hello");
}
