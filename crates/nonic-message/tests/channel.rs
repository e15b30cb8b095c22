//! Messages between two ends of a channel, on both wires: every size, in order, with back-pressure, by threads and by tasks.

use crate::common::{PATIENCE, WIRES, block_on, options, pair, pattern, receive};
use nonic_message::{Channel, Error, Options, TrySendError};

const SIZES: [usize; 12] = [
    0, 1, 64, 1024, 1025, 4096, 4097, 16_368, 16_369, 65_536, 1_000_000, 9_000_001,
];

#[test]
fn messages_of_every_size_arrive_whole_and_in_order() {
    for wire in WIRES {
        let (mut left, mut right) = pair(wire, options(4096));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (number, size) in SIZES.into_iter().enumerate() {
                    let bytes = pattern(number, size);
                    left.send(&bytes).wait().expect("sent");
                    // Once more, from registered memory.
                    let mut buffer = left.buffer(size).expect("memory");
                    buffer.copy_from_slice(&bytes);
                    left.send(buffer).wait().expect("sent");
                }
                left.flush()
                    .wait_within(PATIENCE)
                    .expect("in time")
                    .expect("flushed");
            });
            for (number, size) in SIZES.into_iter().enumerate() {
                for _ in 0..2 {
                    let message = receive(&mut right);
                    assert_eq!(message.len(), size);
                    assert!(message[..] == pattern(number, size), "{wire}: {size} bytes");
                }
            }
        });
    }
}

#[test]
fn what_was_received_can_be_sent_on() {
    for wire in WIRES {
        let (mut left, mut right) = pair(wire, options(4096));
        for (number, size) in SIZES.into_iter().enumerate() {
            left.send(pattern(number, size)).wait().expect("sent");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let message = receive(&mut right);
                    right.send(message).wait().expect("sent");
                    right
                        .flush()
                        .wait_within(PATIENCE)
                        .expect("in time")
                        .expect("flushed");
                });
                let echo = receive(&mut left);
                assert!(echo[..] == pattern(number, size), "{wire}: {size} bytes");
                left.flush()
                    .wait_within(PATIENCE)
                    .expect("in time")
                    .expect("flushed");
            });
        }
    }
}

/// How many messages fit into a channel whose other end takes none.
fn fill(channel: &mut Channel, len: usize) -> usize {
    for count in 0.. {
        match channel.sender().try_send(pattern(count, len)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return count,
            Err(TrySendError::Failed(error)) => panic!("{error}"),
        }
    }
    unreachable!("it is finite")
}

#[test]
fn a_receiver_that_takes_nothing_stops_the_sender() {
    for wire in WIRES {
        let (mut left, mut right) = pair(wire, options(4096));
        let credits = usize::from(Options::default().credits);
        assert_eq!(fill(&mut left, 10), credits);
        assert!(
            left.send(b"one more")
                .wait_within(std::time::Duration::from_millis(20))
                .is_err(),
            "there is no room"
        );
        for number in 0..credits {
            assert_eq!(receive(&mut right)[..], pattern(number, 10));
        }
        let again = left.send(b"one more").wait_within(PATIENCE);
        again.expect("credits came back").expect("sent");
        assert_eq!(&receive(&mut right)[..], b"one more");
    }
}

#[test]
fn long_messages_that_nobody_takes_use_bounded_memory() {
    for wire in WIRES {
        let (mut left, mut right) = pair(wire, options(1024));
        let count = fill(&mut left, 100_000);
        assert_eq!(count, nonic_message::protocol::OFFERS);
        for number in 0..count {
            assert!(receive(&mut right)[..] == pattern(number, 100_000));
        }
        left.flush()
            .wait_within(PATIENCE)
            .expect("in time")
            .expect("read");
    }
}

#[test]
fn both_may_send_at_once_for_long() {
    const COUNT: usize = 500;
    let sizes = |number: usize| [3, 900, 5000, 30_000][number % 4];
    for wire in WIRES {
        let (left, right) = pair(wire, options(4096));
        std::thread::scope(|scope| {
            for channel in [left, right] {
                let (mut sender, mut receiver) = channel.split();
                scope.spawn(move || {
                    for number in 0..COUNT {
                        let sent = sender.send(pattern(number, sizes(number))).wait_within(PATIENCE);
                        sent.expect("in time").expect("sent");
                    }
                    sender
                        .close()
                        .wait_within(PATIENCE)
                        .expect("in time")
                        .expect("closed");
                });
                scope.spawn(move || {
                    for number in 0..COUNT {
                        let message = receiver.recv().wait_within(PATIENCE).expect("in time");
                        let message = message.expect("it lives").expect("a message");
                        assert!(message[..] == pattern(number, sizes(number)), "{number}");
                    }
                    let end = receiver.recv().wait_within(PATIENCE).expect("in time");
                    assert!(end.expect("it lives").is_none());
                });
            }
        });
    }
}

#[test]
fn tasks_do_the_same() {
    for wire in WIRES {
        let (left, mut right) = pair(wire, options(4096));
        let (mut sender, mut receiver) = left.split();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                block_on(async {
                    while let Some(message) = right.recv().await? {
                        right.send(message).await?;
                    }
                    right.close().await
                })
                .expect("served");
            });
            scope.spawn(|| {
                block_on(async {
                    for number in 0..100 {
                        sender.send(pattern(number, number * 400)).await?;
                    }
                    sender.close().await
                })
                .expect("sent");
            });
            block_on(async {
                for number in 0..100 {
                    let message = receiver.recv().await?.expect("an echo");
                    assert!(message[..] == pattern(number, number * 400), "{number}");
                }
                assert!(receiver.recv().await?.is_none());
                Ok::<_, Error>(())
            })
            .expect("received");
        });
    }
}

#[test]
fn any_executor_will_do() {
    let (mut left, mut right) = pair("roce_lo", options(4096));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                let message = right.recv().await.expect("it lives").expect("a message");
                right.send(message).await.expect("sent");
                right.close().await.expect("closed");
            });
        });
        block_on(async {
            left.send(pattern(1, 50_000)).await.expect("sent");
            let echo = left.recv().await.expect("it lives").expect("an echo");
            assert!(echo[..] == pattern(1, 50_000));
            assert!(left.recv().await.expect("it lives").is_none());
        });
    });
}

#[test]
fn a_message_longer_than_the_peer_takes_is_refused_here() {
    let mut small = options(1024);
    small.message_bytes = 2000;
    let (mut left, mut right) = pair("roce_lo", small);
    let refused = left.send(vec![0; 2001]).wait().expect_err("too long");
    assert!(
        matches!(refused, Error::TooLong { longest: 2000, .. }),
        "{refused}"
    );
    left.send(vec![1; 2000]).wait().expect("it goes on");
    assert_eq!(receive(&mut right).len(), 2000);
}

#[test]
fn the_end_is_seen_after_the_last_message_and_the_other_way_stays_open() {
    for wire in WIRES {
        let (left, mut right) = pair(wire, options(1024));
        let (mut sender, receiver) = left.split();
        sender.send(b"last").wait().expect("sent");
        drop(sender);
        assert_eq!(&receive(&mut right)[..], b"last");
        let end = right.recv().wait_within(PATIENCE).expect("in time");
        assert!(end.expect("an end in good order").is_none());
        right.send(b"still here").wait().expect("sent");
        let mut receiver = receiver;
        let message = receiver.recv().wait_within(PATIENCE).expect("in time");
        assert_eq!(&message.expect("it lives").expect("a message")[..], b"still here");
    }
}

#[test]
fn a_channel_is_closed_though_the_peer_never_looks() {
    for wire in WIRES {
        let (mut left, mut right) = pair(wire, options(1024));
        for channel in [&mut left, &mut right] {
            channel.send(b"last").wait().expect("sent");
            let closed = channel.close().wait_within(PATIENCE);
            closed.expect("its NIC answers").expect("closed");
        }
        drop(left);
        assert_eq!(&receive(&mut right)[..], b"last");
        let end = right.recv().wait_within(PATIENCE).expect("in time");
        assert!(end.expect("it was said").is_none(), "{wire}");
    }
}

#[test]
fn a_channel_that_is_dropped_is_lost_to_the_other_end_and_what_had_arrived_is_not() {
    for wire in WIRES {
        let (mut left, mut right) = pair(wire, options(1024));
        left.send(b"first").wait().expect("sent");
        left.send(pattern(2, 1000)).wait().expect("sent");
        left.flush()
            .wait_within(PATIENCE)
            .expect("in time")
            .expect("flushed");
        drop(left);
        assert_eq!(&receive(&mut right)[..], b"first");
        assert!(receive(&mut right)[..] == pattern(2, 1000));
        let lost = right.recv().wait_within(PATIENCE).expect("in time");
        assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
        let lost = right.send(b"in vain").wait_within(PATIENCE).expect("in time");
        assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
    }
}

/// A peer that has taken the end may leave at once: to the other side, all has arrived.
#[test]
fn closing_succeeds_beside_a_peer_that_leaves_with_the_end() {
    for _ in 0..200 {
        let (mut left, mut right) = pair("roce_lo", options(4096));
        let reader = std::thread::spawn(move || {
            let mut count = 0;
            while right.recv().wait().expect("a message or the end").is_some() {
                count += 1;
            }
            count
        });
        left.send(b"one").wait().expect("sent");
        left.close()
            .wait_within(PATIENCE)
            .expect("in time")
            .expect("all has arrived");
        assert_eq!(reader.join().expect("it does not panic"), 1);
    }
}
