//! Extended connections: one queue pair reaches every receive queue of the other side.

use nonic::{
    Access, CompletionQueue, CreateError, Device, Domain, Fetch, MemoryError, PostError, QueuePair,
    RequestError, Status, Xrc, XrcDomain, XrcReceiveQueue, XrcTarget, connect,
};
use std::time::Duration;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

struct Side {
    device: Device,
    domain: Domain,
    /// That of the other side.
    initiating: Domain,
    queue: CompletionQueue,
    reachable: XrcDomain,
}

impl Side {
    fn new() -> Self {
        let device = Device::open("roce_lo").expect("loopback is there");
        Side {
            domain: device.domain(),
            initiating: device.domain(),
            queue: device.completion_queue(0).expect("a queue"),
            reachable: device.xrc_domain(),
            device,
        }
    }

    /// A connection that leads here.
    fn connected(&self) -> (QueuePair<Xrc>, XrcTarget) {
        let initiator = self.initiating.pair::<Xrc>().expect("made");
        let target = self.reachable.target().expect("made");
        let (here, there) = (initiator.endpoint(), target.endpoint());
        (
            initiator.connect(&there).expect("connected"),
            target.connect(&here).expect("connected"),
        )
    }

    fn receive_queue(&self, capacity: usize) -> XrcReceiveQueue {
        let made = self.reachable.receive_queue(&self.domain, &self.queue, capacity);
        made.expect("made")
    }

    /// The id and the bytes of the next message.
    fn received(&self) -> (u64, Vec<u8>) {
        let done = self
            .queue
            .wait(Some(PATIENCE))
            .expect("no overflow")
            .expect("in time");
        let length = done.result.expect("received");
        (
            done.id,
            done.buffers.first().expect("a buffer")[..length].to_vec(),
        )
    }
}

#[test]
fn messages_reach_the_receive_queue_that_they_name() {
    let side = Side::new();
    let queues: Vec<_> = (0..3).map(|_| side.receive_queue(8)).collect();
    let connections = [side.connected(), side.connected()];
    for (index, queue) in queues.iter().enumerate() {
        for turn in 0..2 {
            let id = (10 * index + turn) as u64;
            queue
                .recv(id, side.domain.lease(64).expect("memory"))
                .expect("posted");
        }
        assert_eq!(queue.len(), 2);
    }
    for (turn, (initiator, _)) in connections.iter().enumerate() {
        for (index, queue) in queues.iter().enumerate().rev() {
            let text = format!("{turn} to {index}");
            let sent = initiator.toward(queue.number()).send_bytes(text.as_bytes());
            sent.wait().expect("sent");
            let expected = ((10 * index + turn) as u64, text.into_bytes());
            assert_eq!(side.received(), expected);
        }
    }
    assert!(queues.iter().all(XrcReceiveQueue::is_empty));
}

#[test]
fn memory_is_that_of_the_named_queues_domain() {
    let side = Side::new();
    let named = side.receive_queue(1);
    let (initiator, _target) = side.connected();
    let initiator = initiator.toward(named.number());
    let all = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let word = side
        .domain
        .lease(8)
        .expect("memory")
        .expose(all)
        .expect("exposed");
    let seven = side.initiating.lease_from(&7_u64.to_ne_bytes()).expect("memory");
    let buffer = initiator.write(seven, word.remote()).wait().expect("written");
    let fetch = |fetch: Result<Fetch, MemoryError>| fetch.expect("memory").wait().expect("fetched");
    assert_eq!(fetch(initiator.fetch_add(word.remote(), 5)), 7);
    assert_eq!(fetch(initiator.compare_swap(word.remote(), 12, 40)), 12);
    let read = initiator.read(buffer, word.remote()).wait().expect("read");
    assert_eq!(read[..], 40_u64.to_ne_bytes());

    let of_another = side
        .initiating
        .lease(8)
        .expect("memory")
        .expose(all)
        .expect("exposed");
    let failed = initiator
        .read(read, of_another.remote())
        .wait()
        .expect_err("of another domain");
    assert!(
        matches!(failed.error, RequestError::Failed(Status::RemoteAccess)),
        "{failed}"
    );
}

#[test]
fn a_queue_that_is_not_there_is_refused() {
    let side = Side::new();
    let named = side.receive_queue(1);
    named
        .recv(1, side.domain.lease(64).expect("memory"))
        .expect("posted");
    let elsewhere = side.device.xrc_domain();
    let of_another = elsewhere
        .receive_queue(&side.domain, &side.queue, 1)
        .expect("made");
    let gone = named.number();
    let number_of_another = of_another.number();
    drop(named);
    for number in [gone, number_of_another] {
        let (initiator, _target) = side.connected();
        let failed = initiator
            .toward(number)
            .send_bytes(b"hello")
            .wait()
            .expect_err("nobody has it");
        let invalid = RequestError::Failed(Status::RemoteInvalidRequest);
        assert_eq!(failed.error.to_string(), invalid.to_string());
    }
}

#[test]
fn an_initiator_names_a_queue_and_receives_nothing() {
    let side = Side::new();
    let (mut initiator, _target) = side.connected();
    let lease = side.domain.lease(8).expect("memory");
    let refused = initiator
        .sq
        .send(1, lease)
        .expect_err("it names no receive queue");
    assert_eq!(refused.error, PostError::Destination);
    let lease = side.domain.lease(8).expect("memory");
    let refused = initiator.rq.recv(1, lease).expect_err("it has no receive queue");
    assert_eq!(refused.error, PostError::Unsupported);
}

#[test]
fn iwarp_has_no_extended_connections() {
    let device = Device::open("iwarp_lo").expect("loopback is there");
    assert_eq!(device.xrc_domain().target().err(), Some(CreateError::Unsupported));
    assert_eq!(
        device.domain().pair::<Xrc>().err(),
        Some(CreateError::Unsupported)
    );
}

#[test]
fn an_address_and_a_port_are_not_enough() {
    let side = Side::new();
    let nobody = "127.0.0.1:9".parse().expect("an address");
    let refused = connect(side.initiating.pair_builder::<Xrc>(), nobody, b"");
    let refused = refused.expect_err("it is refused").to_string();
    assert!(refused.contains("Xrc"), "{refused}");
}
