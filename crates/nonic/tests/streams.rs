//! Completions, requests to connect and events as streams: a waiting task is woken, and each item comes once.

use crate::bench::{Bench, PATIENCE, WIRES, block_on};
use futures_util::StreamExt;
use nonic::{DatagramListener, Device, Event, Listener, Rc, Ud, connect, resolve};
use std::time::Duration;

/// Runs on another thread, which is given a moment to find nothing and wait.
fn waiting<R: Send + 'static>(task: impl FnOnce() -> R + Send + 'static) -> std::thread::JoinHandle<R> {
    let waiting = std::thread::spawn(task);
    std::thread::sleep(Duration::from_millis(20));
    waiting
}

#[test]
fn completions() {
    let bench = Bench::new();
    let [left, right] = [0, 1].map(|_| bench.domain.queue_pair::<Rc>(&bench.queue).expect("made"));
    let (here, there) = (left.endpoint(), right.endpoint());
    let mut left = left.connect(&there).expect("connected");
    let mut right = right.connect(&here).expect("connected");
    let queue = bench.queue.clone();
    let ids = waiting(move || {
        let all = queue.map(|done| done.expect("no overflow").id).take(20);
        block_on(all.collect::<Vec<u64>>())
    });
    for id in 0..10 {
        let lease = || bench.domain.lease(8).expect("memory");
        right.rq.recv(id, lease()).expect("posted");
        left.sq.send(id + 10, lease()).expect("posted");
    }
    let mut ids = ids.join().expect("no panic");
    ids.sort_unstable();
    assert_eq!(ids, (0..20).collect::<Vec<u64>>());
}

#[test]
fn requests_to_connect() {
    for wire in WIRES {
        let device = Device::open(wire).expect("loopback is there");
        let domain = device.domain();
        let mut listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("free");
        let address = listener.local_addr();
        let server = {
            let domain = domain.clone();
            waiting(move || {
                [1, 2].map(|_| {
                    let incoming = block_on(listener.next()).expect("it has no end");
                    incoming
                        .accept(domain.pair_builder::<Rc>(), b"")
                        .expect("accepted")
                })
            })
        };
        for _ in 0..2 {
            let connecting = connect(domain.pair_builder::<Rc>(), address, b"").expect("asked");
            connecting.wait_within(PATIENCE).expect("connected");
        }
        server.join().expect("no panic");
    }
}

#[test]
fn questions_for_datagram_services() {
    let bench = Bench::new();
    let mut listener =
        DatagramListener::bind(&bench.device, "127.0.0.1:0".parse().expect("an address")).expect("free");
    let address = listener.local_addr();
    let pair = || {
        bench
            .domain
            .pair::<Ud>()
            .expect("made")
            .activate()
            .expect("active")
    };
    let (here, there) = (pair(), pair());
    let answered = waiting(move || {
        let inquiry = block_on(listener.next()).expect("it has no end");
        inquiry.answer(&there, b"here").expect("answered");
    });
    resolve(&here, address, b"")
        .expect("asked")
        .wait()
        .expect("answered");
    answered.join().expect("no panic");
}

#[test]
fn events_of_a_device() {
    for wire in WIRES {
        let device = Device::open(wire).expect("loopback is there");
        let domain = device.domain();
        let queue = device.completion_queue(16).expect("a queue");
        let shared = domain.shared_receive_queue(&queue, 8);
        shared.recv(1, domain.lease(8).expect("memory")).expect("posted");
        let events = device.events();
        let event = waiting(move || {
            let limits = events.filter(|event| std::future::ready(matches!(event, Event::SrqLimit(_))));
            block_on(std::pin::pin!(limits).next())
        });
        // Fewer wait than that, and the next message takes one.
        shared.set_limit(1);
        let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("free");
        let connecting = connect(domain.pair_builder::<Rc>(), listener.local_addr(), b"").expect("asked");
        let builder = domain.queue_pair_builder::<Rc>(&queue).shared_receives(&shared);
        let incoming = listener.accept_within(PATIENCE).expect("a request");
        let _server = incoming.accept(builder, b"").expect("accepted");
        let client = connecting.wait_within(PATIENCE).expect("connected");
        client.send_bytes(b"hello").wait().expect("sent");
        assert!(event.join().expect("no panic").is_some(), "{wire}");
    }
}
