//! Requests as futures, and as something a thread waits for: what their documentation promises.

use crate::bench::{PATIENCE, block_on};
use nonic::{
    Access, Device, Domain, Exposed, Lease, Peer, PostError, QpCapacity, QueuePair, Rc, RequestError, Status,
    Ud,
};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Long enough to see that nothing comes.
const A_MOMENT: Duration = Duration::from_millis(50);

fn domain() -> Domain {
    Device::open("roce_lo").expect("loopback is there").domain()
}

/// Two connected queue pairs with send and receive queues of this depth.
fn pairs(domain: &Domain, depth: u32) -> (QueuePair<Rc>, QueuePair<Rc>) {
    let make = || {
        let capacity = QpCapacity {
            max_send_wr: depth,
            max_recv_wr: depth,
            ..QpCapacity::default()
        };
        let builder = domain.pair_builder::<Rc>().capacity(capacity);
        builder.build().expect("a queue pair")
    };
    let (left, right) = (make(), make());
    let (here, there) = (left.endpoint(), right.endpoint());
    let left = left.connect(&there).expect("connected");
    (left, right.connect(&here).expect("connected"))
}

fn lease(domain: &Domain, bytes: &[u8]) -> Lease {
    domain.lease_from(bytes).expect("memory")
}

fn shelf(domain: &Domain, length: usize) -> Exposed {
    let rights = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let lease = domain.lease(length).expect("memory");
    lease.expose(rights).expect("exposed")
}

/// A waker that counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll_once<F: Future + Unpin>(future: &mut F, count: &Arc<Count>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(count));
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

#[test]
fn each_operation_answers_what_it_was_made_with() {
    let domain = domain();
    let (left, right) = pairs(&domain, 16);
    let shelf = shelf(&domain, 64);
    block_on(async {
        let written = left.write(lease(&domain, b"a book"), shelf.remote().slice(..6));
        let book = written.await.expect("written");
        let read = left.read(book, shelf.remote().slice(2..8)).await.expect("read");
        assert_eq!(&read[..], b"book\0\0");

        let word = shelf.remote().slice(8..16);
        let before = left.fetch_add(word, 40).expect("memory").await.expect("added");
        let after = left.compare_swap(word, 40, 7).expect("memory").await;
        assert_eq!((before, after.expect("swapped")), (0, 40));
        let left_there = left
            .fetch_add(word, 0)
            .expect("memory")
            .await
            .expect("added nothing");
        assert_eq!(left_there, 7);

        let receive = right.recv(vec![
            domain.lease(2).expect("memory"),
            domain.lease(8).expect("memory"),
        ]);
        let parts = vec![lease(&domain, b"thank "), lease(&domain, b"you")];
        let parts = left.send_with_immediate(parts, 9).await.expect("sent");
        assert_eq!(&parts[1][..], b"you");
        let got = receive.await.expect("received");
        assert_eq!((got.len, got.immediate), (9, Some(9)));
        assert_eq!(
            (&got.buffers[0][..], &got.buffers[1][..7]),
            (&b"th"[..], &b"ank you"[..])
        );
    });
}

#[test]
fn atomic_writes_and_flushes_reach_the_peer() {
    let domain = domain();
    let (left, _right) = pairs(&domain, 16);
    let rights = Access::REMOTE_WRITE | Access::FLUSH_GLOBAL;
    let shelf = domain.lease(16).expect("memory").expose(rights).expect("exposed");
    let value = 0x0102_0304_0506_0708;
    left.atomic_write(shelf.remote().slice(8..), value)
        .wait()
        .expect("written");
    left.flush(shelf.remote()).wait().expect("flushed");
    assert_eq!(shelf.fetch_add(8, 0).expect("inside"), value);
    let short = left.atomic_write(shelf.remote().slice(12..), 1).wait();
    assert!(matches!(
        short.expect_err("4 bytes").error,
        RequestError::Refused(PostError::Length)
    ));
}

#[test]
fn a_thread_can_wait_for_a_request_and_give_up_waiting() {
    let domain = domain();
    let (left, right) = pairs(&domain, 16);
    let receive = right.recv(domain.lease(8).expect("memory"));
    let receive = receive.wait_within(A_MOMENT).expect_err("nobody sends");
    left.send(lease(&domain, b"now"))
        .wait_within(PATIENCE)
        .expect("in time")
        .expect("sent");
    let got = receive.wait_within(PATIENCE).expect("in time").expect("received");
    assert_eq!(got.bytes(), b"now");
}

/// Each thread may take the completions of others out of the queue: they must reach their owners all the same.
#[test]
fn many_threads_wait_for_requests_of_one_queue_pair() {
    let domain = domain();
    let (left, _right) = pairs(&domain, 8);
    let shelf = shelf(&domain, 8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    left.fetch_add(shelf.remote(), 1)
                        .expect("memory")
                        .wait_within(PATIENCE)
                        .expect("in time")
                        .expect("added");
                }
            });
        }
    });
    assert_eq!(shelf.fetch_add(0, 0).expect("inside"), 8 * 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_have_more_under_way_than_the_queue_holds() {
    const TASKS: usize = 50;
    let domain = domain();
    let (left, right) = pairs(&domain, 4);
    let (left, right) = (Arc::new(left), Arc::new(right));
    let receives: Vec<_> = (0..TASKS)
        .map(|_| right.recv(domain.lease(8).expect("memory")))
        .collect();
    let senders: Vec<_> = (0..TASKS as u64)
        .map(|number| {
            let (left, lease) = (Arc::clone(&left), lease(&domain, &number.to_ne_bytes()));
            tokio::spawn(async move { left.send(lease).await })
        })
        .collect();
    let everything = async {
        let mut numbers = Vec::new();
        for receive in receives {
            let got = receive.await.expect("received");
            numbers.push(u64::from_ne_bytes(got.bytes().try_into().expect("8 bytes")));
        }
        for sender in senders {
            sender.await.expect("no panic").expect("sent");
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..TASKS as u64).collect::<Vec<_>>());
    };
    tokio::time::timeout(PATIENCE, everything).await.expect("in time");
}

#[test]
fn requests_that_wait_for_room_keep_their_order() {
    let domain = domain();
    let (left, right) = pairs(&domain, 2);
    let receives: Vec<_> = (0..20)
        .map(|_| right.recv(domain.lease(1).expect("memory")))
        .collect();
    let sends: Vec<_> = (0..20_u8)
        .map(|number| left.send(lease(&domain, &[number])))
        .collect();
    // What is waited for first is not what is done first.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for send in sends.into_iter().rev() {
                send.wait().expect("sent");
            }
        });
        for (number, receive) in receives.into_iter().enumerate().rev() {
            assert_eq!(receive.wait().expect("received").bytes(), [number as u8]);
        }
    });
}

/// The verbs as they are see a full queue where requests wait for room: they would overtake them.
#[test]
fn a_numbered_request_does_not_overtake_those_that_wait() {
    let domain = domain();
    let (mut left, right) = pairs(&domain, 1);
    let first = left.send(lease(&domain, b"1"));
    let second = left.send(lease(&domain, b"2"));
    let refused = left.sq.send(3, lease(&domain, b"3")).expect_err("others wait");
    assert_eq!(refused.error, PostError::SendQueueFull);
    for (send, expected) in [(first, b"1"), (second, b"2")] {
        let receive = right.recv(domain.lease(1).expect("memory"));
        send.wait().expect("sent");
        assert_eq!(receive.wait().expect("received").bytes(), expected);
    }
    left.sq.send(3, refused.buffers).expect("nobody waits any more");
}

/// Polled and awaited requests share a queue: each completion goes where it belongs, whichever thread takes it out.
#[test]
fn both_kinds_of_requests_can_share_a_queue() {
    let domain = domain();
    let queue = domain.device().completion_queue(1).expect("a queue");
    let pair = |_| domain.queue_pair::<Rc>(&queue).expect("a queue pair");
    let [left, right] = [0, 1].map(pair);
    let (here, there) = (left.endpoint(), right.endpoint());
    let (mut left, right) = (
        left.connect(&there).expect("connected"),
        right.connect(&here).expect("connected"),
    );
    let receives = [(); 2].map(|()| right.recv(domain.lease(8).expect("memory")));
    left.sq.send(7, lease(&domain, b"polled")).expect("posted");
    let sent = left.send(lease(&domain, b"awaited"));
    // Takes everything out, the completion with a number too.
    for (receive, expected) in receives.into_iter().zip([&b"polled"[..], b"awaited"]) {
        assert_eq!(receive.wait().expect("received").bytes(), expected);
    }
    sent.wait().expect("sent");
    assert_eq!(queue.len(), 1);
    let done = queue.wait(Some(PATIENCE)).expect("no overflow").expect("in time");
    assert_eq!((done.id, done.result), (7, Ok(0)));
    assert!(queue.is_empty());
}

/// A thread that polls, and is asleep, is woken when another one takes its completion out.
#[test]
fn who_sleeps_for_a_numbered_request_is_woken_by_those_who_take_it_out() {
    let domain = domain();
    let queue = domain.device().completion_queue(1).expect("a queue");
    let pair = |_| domain.queue_pair::<Rc>(&queue).expect("a queue pair");
    let [left, right] = [0, 1].map(pair);
    let (here, there) = (left.endpoint(), right.endpoint());
    let (mut left, mut right) = (
        left.connect(&there).expect("connected"),
        right.connect(&here).expect("connected"),
    );
    for round in 0..200 {
        right
            .rq
            .recv(round, domain.lease(8).expect("memory"))
            .expect("posted");
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| queue.wait(Some(PATIENCE)).expect("no overflow").expect("in time"));
            left.send(lease(&domain, b"hello")).wait().expect("sent");
            let done = sleeper.join().expect("no panic");
            assert_eq!((done.id, done.result), (round, Ok(5)));
        });
    }
    drop(left.sq.send(0, lease(&domain, b"")));
}

#[test]
fn more_than_a_small_queue_was_made_for_does_not_overflow_it() {
    let domain = domain();
    let queue = domain.device().completion_queue(16).expect("a queue");
    let (left, right) = (
        domain.queue_pair::<Rc>(&queue).expect("a queue pair"),
        domain.queue_pair::<Rc>(&queue).expect("a queue pair"),
    );
    let (here, there) = (left.endpoint(), right.endpoint());
    let (mut left, _right) = (
        left.connect(&there).expect("connected"),
        right.connect(&here).expect("connected"),
    );
    let shelf = shelf(&domain, 8);
    // The queue is not polled until there is no room for another.
    let posted = (0..)
        .take_while(|id| {
            let lease = lease(&domain, b"12345678");
            left.sq.write(*id, lease, shelf.remote()).is_ok()
        })
        .count();
    assert_eq!(posted, QpCapacity::default().max_send_wr as usize);
    for id in 0..posted as u64 {
        let done = queue.wait(Some(PATIENCE)).expect("no overflow").expect("in time");
        assert_eq!((done.id, done.result), (id, Ok(0)));
    }
}

#[test]
fn a_request_that_cannot_succeed_gives_its_buffers_back() {
    let domain = domain();
    let (left, right) = pairs(&domain, 4);
    let shelf = shelf(&domain, 4);
    let failed = left.write(lease(&domain, b"too long"), shelf.remote()).wait();
    let failed = failed.expect_err("longer than what is there");
    let both = PostError::BeyondRemote { asked: 8, there: 4 };
    assert!(matches!(failed.error, RequestError::Refused(error) if error == both));
    assert!(
        both.to_string()
            .starts_with("8 bytes are more than the 4 of the remote memory")
    );
    assert_eq!(failed.buffers.into_iter().count(), 1);

    let mut forged = shelf.remote();
    forged.rkey ^= 1;
    let failed = left.write(lease(&domain, b"1234"), forged).wait();
    let failed = failed.expect_err("no such key");
    assert!(matches!(failed.error, RequestError::Failed(Status::RemoteAccess)));
    assert_eq!(failed.buffers.into_iter().count(), 1);
    drop(right);
}

#[test]
fn a_dropped_queue_pair_ends_what_is_waited_for() {
    let domain = domain();
    let (left, _right) = pairs(&domain, 4);
    let receives = [(); 6].map(|()| left.recv(domain.lease(8).expect("memory")));
    let sleeper = std::thread::spawn(move || receives.map(|receive| receive.wait_within(PATIENCE)));
    std::thread::sleep(A_MOMENT);
    drop(left);
    for ended in sleeper.join().expect("no panic") {
        let failed = ended.expect("in time").expect_err("nothing was received");
        assert!(matches!(failed.error, RequestError::Dropped));
        assert_eq!(failed.buffers.into_iter().count(), 1);
    }
}

/// A future that was polled and is dropped, or never polled again, must not keep the others from being woken.
#[test]
fn futures_that_are_given_up_hold_nobody_up() {
    let domain = domain();
    let (left, right) = pairs(&domain, 8);
    let counts: [Arc<Count>; 3] = Default::default();
    let mut receives = [(); 3].map(|()| right.recv(domain.lease(8).expect("memory")));
    for (receive, count) in receives.iter_mut().zip(&counts) {
        assert!(poll_once(receive, count).is_pending());
    }
    let [dropped, _ignored, last] = receives;
    drop(dropped);
    for text in [b"one", b"two", b"tri"] {
        left.send(lease(&domain, text)).wait().expect("sent");
    }
    let got = block_on(last).expect("received");
    assert_eq!(got.bytes(), b"tri");
    assert!(counts[2].0.load(Ordering::SeqCst) > 0, "the last one was woken");
}

#[test]
fn what_is_dropped_while_under_way_leaves_nothing_behind() {
    let domain = domain();
    let (left, right) = pairs(&domain, 4);
    let keys = domain.device().usage().memory_keys;
    for _ in 0..20 {
        drop(left.send(lease(&domain, b"gone")));
        drop(right.recv(domain.lease(8).expect("memory")));
    }
    drop(left);
    drop(right);
    assert_eq!(domain.device().usage().memory_keys, keys);
    assert_eq!(domain.device().usage().queue_pairs, 0);
    assert_eq!(domain.device().usage().completion_queues, 0);
}

#[test]
fn datagrams_too() {
    let domain = domain();
    let pair = |_| domain.pair::<Ud>().expect("made").activate().expect("active");
    let [left, right] = [0, 1].map(pair);
    let peer = Peer::from(&right.endpoint());
    let mut receive = right.recv(domain.lease(64).expect("memory"));
    for _ in 0..100 {
        left.send_to(lease(&domain, b"hello"), peer).wait().expect("sent");
        match receive.wait_within(A_MOMENT) {
            Ok(got) => {
                assert_eq!(&got.expect("received").bytes()[40..], b"hello");
                return;
            }
            // The first need not arrive.
            Err(again) => receive = again,
        }
    }
    panic!("no datagram arrived");
}

#[test]
fn bytes_that_are_not_registered_are_sent_as_a_copy() {
    let domain = domain();
    let (left, right) = pairs(&domain, 1);
    let receives = [(); 1].map(|()| right.recv(domain.lease(8).expect("memory")));
    // The second finds the queue full and waits with its copy.
    let sends = [left.send_bytes(b"one"), left.send_bytes(b"two")];
    for (receive, text) in receives.into_iter().zip([b"one"]) {
        assert_eq!(receive.wait().expect("received").bytes(), text);
    }
    let second = right.recv(domain.lease(8).expect("memory"));
    for send in sends {
        send.wait().expect("sent");
    }
    assert_eq!(second.wait().expect("received").bytes(), b"two");
    let failed = left.send_bytes(&[0; 4096]).wait().expect_err("too long");
    assert!(matches!(failed.error, RequestError::Refused(PostError::Inline)));
}

/// A future that is done is not polled again by `join`-like combinators; but pinned ones must be movable between tasks.
#[test]
fn futures_can_move_between_tasks() {
    let domain = domain();
    let (left, right) = pairs(&domain, 4);
    let first = Arc::new(Count::default());
    let mut receive = pin!(right.recv(domain.lease(8).expect("memory")));
    assert!(poll_once(&mut receive, &first).is_pending());
    left.send(lease(&domain, b"moved")).wait().expect("sent");
    assert_eq!(block_on(receive).expect("received").bytes(), b"moved");
}
