//! The safe API on real loopback sockets: what its documentation promises.

use crate::bench::Bench;
use nonic::{
    Access, Completion, CompletionOpcode, ConnectOptions, Event, Exposed, Peer, PostError, QueuePair, Rc,
    Status, Uc, Ud,
};
use std::time::Duration;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

impl Bench {
    fn pair<T: nonic::Connected>(&self) -> (QueuePair<T>, QueuePair<T>) {
        let left = self.domain.queue_pair::<T>(&self.queue).expect("a queue pair");
        let right = self.domain.queue_pair::<T>(&self.queue).expect("a queue pair");
        let (here, there) = (left.endpoint(), right.endpoint());
        (
            left.connect(&there).expect("connected"),
            right.connect(&here).expect("connected"),
        )
    }

    /// Sends datagrams until the receive with this number completes: the first need not arrive. The process that passes
    /// it on may be ending at this moment.
    fn send_until_received(&self, id: u64, mut send: impl FnMut()) -> Completion {
        for _ in 0..100 {
            send();
            let patience = Some(Duration::from_millis(200));
            while let Some(done) = self.queue.wait(patience).expect("no overflow") {
                if done.id == id {
                    return done;
                }
                assert_eq!(
                    done.result.err(),
                    None,
                    "a datagram is sent, whatever becomes of it"
                );
            }
        }
        panic!("no datagram arrived");
    }

    /// Memory that peers may reach.
    fn exposed(&self, rights: Access) -> Exposed {
        let lease = self.domain.lease(8192).expect("memory");
        lease.expose(rights).expect("exposed")
    }

    fn wait(&self) -> Completion {
        self.queue
            .wait(PATIENCE)
            .expect("no overflow")
            .expect("a completion in time")
    }
}

#[test]
fn writes_and_reads_move_the_bytes_that_they_say() {
    let bench = Bench::new();
    let (mut left, _right) = bench.pair::<Rc>();
    let shelf = bench.exposed(Access::REMOTE_READ | Access::REMOTE_WRITE);
    let remote = shelf.remote();
    let bytes = bench.domain.lease_from(&[7; 6000]).expect("memory");
    left.sq.write(1, bytes, remote.slice(100..)).expect("posted");
    assert!(bench.wait().result.is_ok());
    let mut seen = [0; 6000];
    shelf.read_at(100, &mut seen).expect("inside");
    assert_eq!(seen, [7; 6000]);

    let sink = bench.domain.lease(6002).expect("memory");
    left.sq.read(2, sink, remote.slice(99..6101)).expect("posted");
    let read = bench.wait();
    assert_eq!(read.result, Ok(6002));
    assert_eq!(
        (read.buffers[0][0], read.buffers[0][1], read.buffers[0][6001]),
        (0, 7, 0)
    );
}

#[test]
fn atomics_bring_what_was_there_and_leave_what_they_say() {
    let bench = Bench::new();
    let (mut left, _right) = bench.pair::<Rc>();
    let shelf = bench.exposed(Access::REMOTE_ATOMIC);
    let word = shelf.remote().slice(8000..);
    let sink = || bench.domain.lease(8).expect("memory");
    shelf.write_at(8000, &40u64.to_ne_bytes()).expect("inside");
    left.sq.fetch_add(1, sink(), word, 2).expect("posted");
    assert_eq!(bench.wait().buffers[0][..], 40u64.to_ne_bytes());
    left.sq.compare_swap(2, sink(), word, 42, 1).expect("posted");
    assert_eq!(bench.wait().buffers[0][..], 42u64.to_ne_bytes());
    assert_eq!(shelf.fetch_add(8000, 0).expect("aligned"), 1);
}

#[test]
fn a_write_with_immediate_is_told_to_the_peer() {
    let bench = Bench::new();
    let (mut left, mut right) = bench.pair::<Rc>();
    let shelf = bench.exposed(Access::REMOTE_WRITE);
    let receive = bench.domain.lease(16).expect("memory");
    right.rq.recv(1, receive).expect("posted");
    let note = bench.domain.lease_from(b"note").expect("memory");
    left.sq
        .write_with_immediate(2, note, shelf.remote(), 0xfeed)
        .expect("posted");
    let both = [bench.wait(), bench.wait()];
    let note = both
        .iter()
        .find(|done| done.opcode == CompletionOpcode::RecvWriteWithImmediate);
    assert_eq!(note.and_then(|done| done.immediate), Some(0xfeed));
}

#[test]
fn a_message_is_gathered_from_and_scattered_to_several_leases() {
    let bench = Bench::new();
    let (mut left, mut right) = bench.pair::<Rc>();
    let (head, tail) = bench.domain.lease(100).expect("memory").split_at(30);
    right.rq.recv(1, vec![tail, head]).expect("posted");
    let words = [&b"one "[..], b"two ", b"three"].map(|word| bench.domain.lease_from(word).expect("memory"));
    left.sq
        .send_with_immediate(2, Vec::from(words), 9)
        .expect("posted");
    let done = [bench.wait(), bench.wait()];
    let received = done
        .iter()
        .find(|done| done.id == 1)
        .expect("the receive completed");
    assert_eq!((received.result, received.immediate), (Ok(13), Some(9)));
    assert_eq!(&received.buffers[0][..13], b"one two three");
    assert_eq!(received.buffers.len(), 2);
}

#[test]
fn taking_exposed_memory_back_shuts_peers_out() {
    let bench = Bench::new();
    let (mut left, _right) = bench.pair::<Rc>();
    let shelf = bench
        .domain
        .lease(64)
        .expect("memory")
        .expose(Access::REMOTE_WRITE)
        .expect("exposed");
    let remote = shelf.remote();
    let mine = shelf.into_lease();
    left.sq
        .write(1, bench.domain.lease_from(b"late").expect("memory"), remote)
        .expect("posted");
    assert_eq!(bench.wait().result, Err(Status::RemoteAccess));
    assert_eq!(mine[..4], [0; 4]);
    // The queue pair is in error now; what is posted later comes back flushed.
    left.sq
        .send(2, bench.domain.lease(4).expect("memory"))
        .expect("posted");
    assert_eq!(bench.wait().result, Err(Status::Flushed));
}

#[test]
fn a_refused_post_returns_the_buffers() {
    let bench = Bench::new();
    let (mut left, _right) = bench.pair::<Rc>();
    let remote = nonic::RemoteSlice {
        va: 0,
        rkey: 1,
        len: 3,
    };
    let refused = left
        .sq
        .write(1, bench.domain.lease_from(b"four").expect("memory"), remote)
        .expect_err("too long");
    assert_eq!(refused.error, PostError::BeyondRemote { asked: 4, there: 3 });
    assert_eq!(
        &refused.buffers.into_iter().next().expect("the lease")[..],
        b"four"
    );
}

#[test]
fn dropping_a_queue_pair_with_work_under_way_is_harmless() {
    let bench = Bench::new();
    for _ in 0..20 {
        let (mut left, mut right) = bench.pair::<Rc>();
        let shelf = bench
            .domain
            .lease(1 << 20)
            .expect("memory")
            .expose(Access::REMOTE_WRITE)
            .expect("exposed");
        for id in 0..8 {
            right
                .rq
                .recv(id, bench.domain.lease(64).expect("memory"))
                .expect("posted");
            left.sq
                .write(id, bench.domain.lease(1 << 20).expect("memory"), shelf.remote())
                .expect("posted");
        }
        drop((left, right));
    }
    assert!(
        bench.queue.poll().expect("no overflow").is_none(),
        "no completion of a destroyed queue pair"
    );
}

#[test]
fn the_two_halves_work_on_two_threads() {
    const MESSAGES: u64 = 2000;
    let bench = Bench::new();
    let receives = bench.device.completion_queue(256).expect("a queue");
    let left = bench.domain.queue_pair::<Rc>(&bench.queue).expect("a queue pair");
    let right = bench
        .domain
        .queue_pair_builder::<Rc>(&receives)
        .build()
        .expect("a queue pair");
    let (here, there) = (left.endpoint(), right.endpoint());
    let QueuePair { mut sq, .. } = left.connect(&there).expect("connected");
    let QueuePair { mut rq, sq: _kept } = right.connect(&here).expect("connected");
    let domain = bench.domain.clone();
    let receiver = std::thread::spawn(move || {
        for id in 0..16 {
            rq.recv(id, domain.lease(8).expect("memory")).expect("posted");
        }
        for expected in 0..MESSAGES {
            let done = receives.wait(PATIENCE).expect("no overflow").expect("in time");
            assert_eq!(done.result, Ok(8));
            assert_eq!(
                done.buffers[0][..],
                expected.to_ne_bytes(),
                "messages arrive in order"
            );
            rq.recv(done.id, done.buffers).expect("posted");
        }
    });
    let mut spare: Vec<_> = (0..16).map(|_| bench.domain.lease(8).expect("memory")).collect();
    for number in 0..MESSAGES {
        let mut lease = match spare.pop() {
            Some(lease) => lease,
            None => bench.wait().buffers.into_iter().next().expect("the lease"),
        };
        lease.copy_from_slice(&number.to_ne_bytes());
        sq.send(number, lease).expect("posted");
    }
    receiver.join().expect("every message arrived");
}

#[test]
fn datagrams_reach_one_and_many() {
    let bench = Bench::new();
    let mut sender = bench
        .domain
        .queue_pair::<Ud>(&bench.queue)
        .expect("made")
        .activate()
        .expect("active");
    let mut receiver = bench
        .domain
        .queue_pair::<Ud>(&bench.queue)
        .expect("made")
        .activate()
        .expect("active");
    receiver
        .rq
        .recv(1, bench.domain.lease(40 + 100).expect("memory"))
        .expect("posted");
    let peer = Peer::from(&receiver.endpoint());
    let received = bench.send_until_received(1, || {
        let lease = bench.domain.lease_from(b"to you").expect("memory");
        sender.sq.send_to(2, lease, peer).expect("posted");
    });
    assert_eq!((received.result, received.source), (Ok(46), Some(sender.qpn())));
    assert_eq!(&received.buffers[0][40..46], b"to you");

    let group = "239.255.47.91".parse().expect("a literal address");
    receiver.rq.join(group).expect("loopback carries multicast");
    receiver
        .rq
        .recv(3, bench.domain.lease(140).expect("memory"))
        .expect("posted");
    let everyone = Peer::group(group, receiver.endpoint().qkey);
    let received = bench.send_until_received(3, || {
        let lease = bench.domain.lease_from(b"to all").expect("memory");
        sender.sq.send_to(4, lease, everyone).expect("posted");
    });
    assert_eq!(&received.buffers[0][40..46], b"to all");
    assert!(receiver.rq.leave(group));
}

#[test]
fn an_unreliable_connection_sends_and_writes() {
    let bench = Bench::new();
    let (mut left, mut right) = bench.pair::<Uc>();
    let shelf = bench
        .domain
        .lease(64)
        .expect("memory")
        .expose(Access::REMOTE_WRITE)
        .expect("exposed");
    right
        .rq
        .recv(1, bench.domain.lease(64).expect("memory"))
        .expect("posted");
    left.sq
        .write(
            2,
            bench.domain.lease_from(b"first").expect("memory"),
            shelf.remote(),
        )
        .expect("posted");
    left.sq
        .send(3, bench.domain.lease_from(b"then").expect("memory"))
        .expect("posted");
    let done: Vec<_> = (0..3).map(|_| bench.wait()).collect();
    assert!(done.iter().any(|done| done.id == 1 && done.result == Ok(4)));
    let mut seen = [0; 5];
    shelf.read_at(0, &mut seen).expect("inside");
    assert_eq!(&seen, b"first");
}

#[test]
fn a_shared_receive_queue_serves_several_and_says_when_it_runs_low() {
    let bench = Bench::new();
    let srq = bench.domain.shared_receive_queue(&bench.queue, 16);
    let make = || {
        bench
            .domain
            .queue_pair_builder::<Rc>(&bench.queue)
            .shared_receives(&srq)
            .build()
    };
    let (a, b) = (make().expect("made"), make().expect("made"));
    let (c, d) = (
        bench.domain.queue_pair::<Rc>(&bench.queue).expect("made"),
        bench.domain.queue_pair::<Rc>(&bench.queue).expect("made"),
    );
    let (ends, peers) = ([a.endpoint(), b.endpoint()], [c.endpoint(), d.endpoint()]);
    let _served = [
        a.connect(&peers[0]).expect("connected"),
        b.connect(&peers[1]).expect("connected"),
    ];
    let mut senders = [
        c.connect(&ends[0]).expect("connected"),
        d.connect(&ends[1]).expect("connected"),
    ];
    for id in 0..3 {
        srq.recv(100 + id, bench.domain.lease(16).expect("memory"))
            .expect("posted");
    }
    srq.set_limit(2);
    for (id, sender) in senders.iter_mut().enumerate() {
        sender
            .sq
            .send(id as u64, bench.domain.lease_from(&[id as u8]).expect("memory"))
            .expect("posted");
    }
    let done: Vec<_> = (0..4).map(|_| bench.wait()).collect();
    assert_eq!(
        done.iter()
            .filter(|done| done.opcode == CompletionOpcode::Recv)
            .count(),
        2
    );
    assert_eq!(srq.len(), 1);
    let mut events = std::iter::from_fn(|| bench.device.wait_event(PATIENCE).expect("a channel"));
    assert!(events.any(|event| matches!(event, Event::SrqLimit(_))));
}

#[test]
fn a_peer_that_is_gone_is_reported() {
    let bench = Bench::new();
    let left = bench.domain.queue_pair::<Rc>(&bench.queue).expect("made");
    let gone = bench
        .domain
        .queue_pair::<Rc>(&bench.queue)
        .expect("made")
        .endpoint();
    let quick = ConnectOptions {
        timeout: nonic::AckTimeout::at_least(Duration::from_millis(1)),
        retries: 2,
        ..ConnectOptions::default()
    };
    let mut left = left
        .connect_with(&gone, &quick)
        .expect("connecting needs no answer");
    left.sq
        .send(1, bench.domain.lease(4).expect("memory"))
        .expect("posted");
    assert_eq!(bench.wait().result, Err(Status::RetryExceeded));
}

#[tokio::test]
async fn completions_can_be_awaited_on_a_runtime() {
    let bench = Bench::new();
    let (mut left, mut right) = bench.pair::<Rc>();
    for round in 0..50u64 {
        right
            .rq
            .recv(round, bench.domain.lease(8).expect("memory"))
            .expect("posted");
        left.sq
            .send(1000 + round, bench.domain.lease(8).expect("memory"))
            .expect("posted");
        for _ in 0..2 {
            let done = tokio::time::timeout(Duration::from_secs(20), bench.queue.completion()).await;
            assert!(done.expect("in time").expect("no overflow").result.is_ok());
        }
    }
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn completions_can_be_awaited_on_the_runtimes_reactor() {
    let bench = Bench::new();
    let (mut left, mut right) = bench.pair::<Rc>();
    for round in 0..50u64 {
        right
            .rq
            .recv(round, bench.domain.lease(8).expect("memory"))
            .expect("posted");
        left.sq
            .send(1000 + round, bench.domain.lease(8).expect("memory"))
            .expect("posted");
        for _ in 0..2 {
            let done =
                tokio::time::timeout(Duration::from_secs(20), bench.queue.completion_on_runtime()).await;
            assert!(done.expect("in time").expect("no overflow").result.is_ok());
        }
    }
}

#[test]
fn an_abandoned_future_loses_nothing() {
    use std::future::Future;
    use std::task::{Context, Waker};
    let bench = Bench::new();
    let (mut left, mut right) = bench.pair::<Rc>();
    {
        let mut next = std::pin::pin!(bench.queue.completion());
        assert!(
            next.as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    right
        .rq
        .recv(1, bench.domain.lease(8).expect("memory"))
        .expect("posted");
    left.sq
        .send(2, bench.domain.lease(8).expect("memory"))
        .expect("posted");
    let mut ids = [bench.wait().id, bench.wait().id];
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
}
