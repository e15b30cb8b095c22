//! Batches of requests: handed over together, refused together, abandoned together.

use nonic::{CompletionQueue, Device, Domain, PostError, QpCapacity, QueuePair, Rc};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// Two connected queue pairs, the left with room for four sends.
fn pairs() -> (Domain, CompletionQueue, QueuePair<Rc>, QueuePair<Rc>) {
    let device = Device::open("roce_lo").expect("loopback is there");
    let (domain, queue) = (device.domain(), device.completion_queue(64).expect("a queue"));
    let capacity = QpCapacity {
        max_send_wr: 4,
        ..QpCapacity::default()
    };
    let left = domain
        .queue_pair_builder::<Rc>(&queue)
        .capacity(capacity)
        .build()
        .expect("a queue pair");
    let right = domain.queue_pair::<Rc>(&queue).expect("a queue pair");
    let (here, there) = (left.endpoint(), right.endpoint());
    let left = left.connect(&there).expect("connected");
    let right = right.connect(&here).expect("connected");
    (domain, queue, left, right)
}

/// The next completion of each kind, in order: ids of sends, contents of receives.
fn drain(queue: &CompletionQueue, count: usize) -> (Vec<u64>, Vec<u8>) {
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let done = queue.wait(PATIENCE).expect("no overflow").expect("in time");
        let length = done.result.expect("success");
        match length {
            0 => sends.push(done.id),
            _ => receives.push(done.buffers[0][0]),
        }
    }
    (sends, receives)
}

#[test]
fn a_batch_is_posted_in_order() {
    let (domain, queue, mut left, mut right) = pairs();
    for _ in 0..4 {
        right.rq.recv(0, domain.lease(8).expect("memory")).expect("room");
    }
    let posted = left.sq.batch(|sq| {
        for id in 0..2_u8 {
            sq.send(id.into(), domain.lease_from(&[id]).expect("memory"))
                .expect("held");
        }
        // A batch within a batch is part of it.
        let inner = sq.batch(|sq| sq.send(2, domain.lease_from(&[2]).expect("memory")).is_ok());
        sq.send(3, domain.lease_from(&[3]).expect("memory"))
            .expect("held");
        assert!(queue.is_empty(), "nothing has happened yet");
        inner.expect("held")
    });
    assert!(posted.expect("four fit"));
    assert_eq!(drain(&queue, 8), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));
}

#[test]
fn what_does_not_fit_comes_back_and_the_rest_is_posted() {
    let (domain, queue, mut left, mut right) = pairs();
    for _ in 0..4 {
        right.rq.recv(0, domain.lease(8).expect("memory")).expect("room");
    }
    let refused = left
        .sq
        .batch(|sq| {
            for id in 0..6_u8 {
                sq.send(id.into(), domain.lease_from(&[id]).expect("memory"))
                    .expect("held");
            }
        })
        .expect_err("there is room for four");
    assert_eq!(refused.error, PostError::SendQueueFull);
    let back: Vec<u8> = refused
        .requests
        .into_iter()
        .flatten()
        .map(|lease| lease[0])
        .collect();
    assert_eq!(back, [4, 5]);
    assert_eq!(drain(&queue, 8), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));
}

#[test]
fn a_panic_abandons_the_batch_and_nothing_else() {
    let (domain, queue, mut left, mut right) = pairs();
    right.rq.recv(0, domain.lease(8).expect("memory")).expect("room");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _ = left.sq.batch(|sq| {
            sq.send(1, domain.lease_from(&[1]).expect("memory"))
                .expect("held");
            panic!("on purpose");
        });
    }));
    assert!(panicked.is_err());
    left.sq
        .send(2, domain.lease_from(&[2]).expect("memory"))
        .expect("room");
    assert_eq!(drain(&queue, 2), (vec![2], vec![2]));
}
