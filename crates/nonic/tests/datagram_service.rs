//! Datagram services by address and port: asked for, answered, used.

use crate::bench;
use crate::bench::{Bench, PATIENCE, block_on};
use nonic::{
    ConnectError, DatagramListener, Inquiry, Listener, Peer, QueuePair, RDMA_UDP_QKEY, RejectReason, Ud,
    resolve,
};
use std::time::Duration;

/// Datagrams arrive behind this much of network header.
const HEADER: usize = 40;

impl Bench {
    fn serve(&self, address: &str) -> DatagramListener {
        DatagramListener::bind(&self.device, address.parse().expect("a literal address")).expect("free")
    }

    /// A queue pair that sends from the address of this family.
    fn datagram_pair(&self, listener: &DatagramListener) -> QueuePair<Ud> {
        let ip = listener.local_addr().ip();
        let own = self.device.gids().iter().position(|gid| gid.address.ip == ip);
        let builder = self.domain.queue_pair_builder::<Ud>(&self.queue);
        let builder = builder.gid_index(own.expect("the listener has it") as u8);
        builder
            .qkey(RDMA_UDP_QKEY)
            .build()
            .expect("a queue pair")
            .activate()
            .expect("ready")
    }
}

fn next(listener: &DatagramListener) -> Inquiry {
    listener.accept_within(PATIENCE).expect("a question in time")
}

#[test]
fn a_service_is_found_by_address_and_port_and_answers_over_both_families() {
    let bench = Bench::new();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = bench.serve(address);
        let (mut server, mut client) = (bench.datagram_pair(&listener), bench.datagram_pair(&listener));
        let resolving = resolve(&client, listener.local_addr(), b"who is there").expect("asked");
        let inquiry = next(&listener);
        assert!(inquiry.private_data().starts_with(b"who is there\0"));
        assert_eq!(inquiry.peer_addr().ip(), listener.local_addr().ip());
        inquiry.answer(&server, b"me").expect("answered");
        let service = resolving.wait().expect("found");
        assert!(service.private_data.starts_with(b"me\0"));

        let lease = |bytes: &[u8]| bench.domain.lease_from(bytes).expect("memory");
        let room = || bench.domain.lease(HEADER + 64).expect("memory");
        server.rq.recv(1, room()).expect("posted");
        client.rq.recv(2, room()).expect("posted");
        client
            .sq
            .send_to(3, lease(b"there"), service.peer)
            .expect("posted");
        let mut answered = false;
        // Two sends and two receives.
        for _ in 0..4 {
            let done = bench
                .queue
                .wait(Some(PATIENCE))
                .expect("no overflow")
                .expect("in time");
            let length = *done.result.as_ref().expect("success");
            match done.id {
                1 => {
                    assert_eq!(&done.buffers[0][HEADER..length], b"there");
                    let sender = Peer::sender(&done, RDMA_UDP_QKEY).expect("a datagram");
                    server.sq.send_to(4, lease(b"and back"), sender).expect("posted");
                }
                2 => {
                    assert_eq!(&done.buffers[0][HEADER..length], b"and back");
                    answered = true;
                }
                _ => assert_eq!(Peer::sender(&done, 0), None, "a send came from nobody"),
            }
        }
        assert!(answered);
    }
}

#[test]
fn a_service_may_refuse() {
    let bench = Bench::new();
    let listener = bench.serve("127.0.0.1:0");
    let client = bench.datagram_pair(&listener);
    let resolving = resolve(&client, listener.local_addr(), &[]).expect("asked");
    next(&listener).reject(b"closed on Sundays").expect("rejected");
    let Err(ConnectError::Rejected {
        reason, private_data, ..
    }) = resolving.wait()
    else {
        panic!("it was rejected");
    };
    assert_eq!(reason, RejectReason::CONSUMER_DEFINED);
    assert!(private_data.starts_with(b"closed on Sundays\0"));
}

#[test]
fn where_nobody_serves_the_answer_comes_soon() {
    let bench = Bench::new();
    let listener = bench.serve("127.0.0.1:0");
    let (client, address) = (bench.datagram_pair(&listener), listener.local_addr());
    drop(listener);
    let Err(ConnectError::Rejected { reason, .. }) = resolve(&client, address, &[]).expect("asked").wait()
    else {
        panic!("nobody serves there");
    };
    assert_eq!(reason, RejectReason::INVALID_SERVICE_ID);
}

#[test]
fn questions_nobody_heard_are_refused_when_the_listener_goes() {
    let bench = Bench::new();
    let listener = bench.serve("127.0.0.1:0");
    let client = bench.datagram_pair(&listener);
    let resolving = resolve(&client, listener.local_addr(), &[]).expect("asked");
    drop(listener);
    assert!(matches!(resolving.wait(), Err(ConnectError::Rejected { .. })));
}

#[test]
fn both_sides_can_be_awaited() {
    let bench = Bench::new();
    let listener = bench.serve("127.0.0.1:0");
    let (server, client) = (bench.datagram_pair(&listener), bench.datagram_pair(&listener));
    let resolving = resolve(&client, listener.local_addr(), &[]).expect("asked");
    block_on(listener.inquiry())
        .answer(&server, &[])
        .expect("answered");
    let service = block_on(resolving).expect("found");
    assert_eq!(service.peer, Peer::from(&server.endpoint()));
}

#[test]
fn a_service_that_does_not_answer_is_waited_for_as_long_as_one_likes() {
    let bench = Bench::new();
    let listener = bench.serve("127.0.0.1:0");
    let client = bench.datagram_pair(&listener);
    let resolving = resolve(&client, listener.local_addr(), &[]).expect("asked");
    let wait = resolving.wait_within(Duration::from_millis(50));
    assert!(matches!(wait, Err(ConnectError::Unreachable(_))));
}

#[test]
fn a_service_where_no_rdma_program_runs_is_given_up_soon_and_says_why() {
    let bench = Bench::new();
    let client = bench.datagram_pair(&bench.serve("127.0.0.1:0"));
    let peer = std::net::SocketAddr::new(bench::deserted(), 7471);
    let found = resolve(&client, peer, &[]).expect("asked").wait_within(PATIENCE);
    assert!(matches!(found, Err(ConnectError::PortUnreachable(at)) if at == peer));
}

#[test]
fn datagram_ports_and_connection_ports_are_different_ones() {
    let bench = Bench::new();
    let listener = bench.serve("127.0.0.1:0");
    Listener::bind(&bench.device, listener.local_addr()).expect("another space");
}

#[test]
fn another_family_has_no_route() {
    let bench = Bench::new();
    let (four, six) = (bench.serve("127.0.0.1:0"), bench.serve("[::1]:0"));
    let wrong = resolve(&bench.datagram_pair(&four), six.local_addr(), &[]);
    assert!(matches!(wrong, Err(ConnectError::NoRoute(_))));
}
