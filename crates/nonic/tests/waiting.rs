//! Threads that wait for completions: each is woken, whichever thread drives the NIC, and waiting costs nothing.

use crate::bench::{Bench, PATIENCE};
use nonic::{CompletionQueue, QueuePair, Rc};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ROUNDS: u64 = 500;

/// Nanoseconds that the threads of this process have run so far.
fn processor_time_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    let spent = tasks.filter_map(|task| {
        let spent = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        spent.split_whitespace().next()?.parse::<u64>().ok()
    });
    spent.sum()
}

impl Bench {
    /// One end of a conversation: its queue pair and the queue it waits for.
    fn ends(&self) -> [(QueuePair<Rc>, CompletionQueue); 2] {
        let queues = [(); 2].map(|()| self.device.completion_queue(64).expect("a queue"));
        let [left, right] = [0, 1].map(|end: usize| {
            let prepared = self.domain.queue_pair::<Rc>(&queues[end]);
            prepared.expect("a queue pair")
        });
        let (here, there) = (left.endpoint(), right.endpoint());
        let left = left.connect(&there).expect("connected");
        let right = right.connect(&here).expect("connected");
        let [near, far] = queues;
        [(left, near), (right, far)]
    }

    /// Waits for messages and answers each; the side that `begins` sends first. After a rest in between, if there is one.
    fn converse(&self, (mut pair, queue): (QueuePair<Rc>, CompletionQueue), begins: bool, rest: Duration) {
        let message = || self.domain.lease_from(b"ping").expect("memory");
        let room = || self.domain.lease(64).expect("memory");
        pair.rq.recv(1, room()).expect("posted");
        if begins {
            pair.sq.send(2, message()).expect("posted");
        }
        let (mut received, mut sent) = (0, 0);
        while received < ROUNDS || sent < ROUNDS {
            let done = queue
                .wait(Some(PATIENCE))
                .expect("no overflow")
                .expect("told in time");
            done.result.expect("it succeeds");
            if done.id == 2 {
                sent += 1;
                continue;
            }
            received += 1;
            if received < ROUNDS {
                pair.rq.recv(1, room()).expect("posted");
            }
            std::thread::sleep(rest);
            if received < ROUNDS || !begins {
                pair.sq.send(2, message()).expect("posted");
            }
        }
    }
}

#[test]
fn waiting_costs_nothing() {
    let bench = Bench::new();
    // What it takes to start is over by then.
    assert!(
        bench
            .queue
            .wait(Some(Duration::from_millis(100)))
            .expect("no overflow")
            .is_none()
    );
    let before = processor_time_ns();
    assert!(
        bench
            .queue
            .wait(Some(Duration::from_millis(500)))
            .expect("no overflow")
            .is_none()
    );
    let spent = Duration::from_nanos(processor_time_ns() - before);
    assert!(spent < Duration::from_millis(5), "{spent:?} of 500 ms");
}

#[test]
fn two_threads_that_wait_for_each_other_are_told_each_time() {
    let bench = &Bench::new();
    let [left, right] = bench.ends();
    std::thread::scope(|scope| {
        scope.spawn(|| bench.converse(left, true, Duration::ZERO));
        scope.spawn(|| bench.converse(right, false, Duration::ZERO));
    });
}

#[test]
fn of_threads_that_wait_for_one_queue_one_is_told_of_each_message() {
    const THREADS: u64 = 3;
    const MESSAGES: u64 = 40 + THREADS;
    let bench = &Bench::new();
    let [(mut sender, near), (mut receiver, far)] = bench.ends();
    for id in 0..MESSAGES {
        let room = bench.domain.lease(64).expect("memory");
        receiver.rq.recv(id, room).expect("posted");
    }
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            // The last messages end one thread each.
            scope.spawn(|| {
                loop {
                    let done = far
                        .wait(Some(PATIENCE))
                        .expect("no overflow")
                        .expect("told in time");
                    done.result.expect("it succeeds");
                    if done.id >= MESSAGES - THREADS {
                        return;
                    }
                }
            });
        }
        for id in 0..MESSAGES {
            // Time for all of them to fall asleep again.
            std::thread::sleep(Duration::from_millis(1));
            let message = bench.domain.lease_from(b"one").expect("memory");
            sender.sq.send(id, message).expect("posted");
            let done = near
                .wait(Some(PATIENCE))
                .expect("no overflow")
                .expect("told in time");
            done.result.expect("it succeeds");
        }
    });
}

#[test]
fn of_many_threads_that_wait_on_one_device_each_is_told() {
    let bench = &Bench::new();
    let together = &Barrier::new(8);
    std::thread::scope(|scope| {
        for conversation in 0..4 {
            let rest = Duration::from_micros(30 * conversation);
            for (end, begins) in bench.ends().into_iter().zip([true, false]) {
                scope.spawn(move || {
                    together.wait();
                    bench.converse(end, begins, rest);
                });
            }
        }
    });
}

#[test]
fn threads_that_wait_beside_one_that_polls_now_and_then_are_told() {
    let bench = &Bench::new();
    let [left, right] = bench.ends();
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for _ in 0..2_000 {
                    assert!(bench.queue.poll().expect("no overflow").is_none());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let conversation = [
            scope.spawn(|| bench.converse(left, true, Duration::ZERO)),
            scope.spawn(|| bench.converse(right, false, Duration::ZERO)),
        ];
        let ended = conversation.map(|end| end.join());
        over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|end| end.expect("it ends well"));
    });
}
