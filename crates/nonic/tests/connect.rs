//! Connecting by address and port, on real loopback sockets.

use crate::bench;
use crate::bench::{Bench, PATIENCE, block_on};
use crate::first_numbers::FirstNumbers;
use nonic::{
    ConnectError, ConnectOptions, Incoming, ListenError, Listener, QpState, Rc, RejectReason, Status, Uc,
    connect,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

impl Bench {
    fn listen(&self, address: &str) -> Listener {
        Listener::bind(&self.device, address.parse().expect("a literal address")).expect("free")
    }

    fn builder(&self) -> nonic::QueuePairBuilder<Rc> {
        self.domain.queue_pair_builder(&self.queue)
    }

    /// Moves a message from one to the other.
    fn exchange(&self, from: &mut nonic::Connection<Rc>, to: &mut nonic::Connection<Rc>, text: &[u8]) {
        to.pair
            .rq
            .recv(1, self.domain.lease(text.len()).expect("memory"))
            .expect("posted");
        from.pair
            .sq
            .send(2, self.domain.lease_from(text).expect("memory"))
            .expect("posted");
        for _ in 0..2 {
            let done = self
                .queue
                .wait(Some(PATIENCE))
                .expect("no overflow")
                .expect("in time");
            done.result.expect("success");
            if done.id == 1 {
                assert_eq!(&done.buffers[0][..], text);
            }
        }
    }
}

fn next(listener: &Listener) -> Incoming {
    listener.accept_within(PATIENCE).expect("a request in time")
}

#[test]
fn two_ends_meet_and_talk_over_both_families() {
    let bench = Bench::new();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = bench.listen(address);
        let connecting = connect(bench.builder(), listener.local_addr(), b"knock").expect("asked");
        let incoming = next(&listener);
        assert!(incoming.private_data().starts_with(b"knock\0"));
        assert_eq!(incoming.peer_addr().ip(), listener.local_addr().ip());
        let mut server = incoming.accept(bench.builder(), b"come in").expect("accepted");
        let mut client = connecting.wait().expect("connected");
        assert!(client.private_data().starts_with(b"come in\0"));
        bench.exchange(&mut client, &mut server, b"there");
        bench.exchange(&mut server, &mut client, b"and back");
    }
}

#[test]
fn a_side_begins_with_the_number_its_peer_asked_for() {
    // What is captured is said in the environment, so the test above runs once more, in a process of its own.
    let capture = std::env::temp_dir().join(format!("nonic-first-{}.pcapng", std::process::id()));
    let again = std::env::current_exe().expect("this program has a name");
    let status = std::process::Command::new(again)
        .args(["--exact", "connect::two_ends_meet_and_talk_over_both_families"])
        .env("NONIC_PCAP", &capture)
        .status();
    assert!(status.expect("it starts").success());
    let numbers = FirstNumbers::read(&capture);
    std::fs::remove_file(&capture).expect("our own file");
    // The client speaks first.
    assert_eq!(numbers.of_first_send, numbers.in_response, "{numbers:?}");
    assert_ne!(numbers.in_request, numbers.in_response);
}

#[test]
fn an_unreliable_connection_connects_too() {
    let bench = Bench::new();
    let listener = bench.listen("127.0.0.1:0");
    let builder = || bench.domain.queue_pair_builder::<Uc>(&bench.queue);
    let connecting = connect(builder(), listener.local_addr(), &[]).expect("asked");
    let _server = next(&listener).accept(builder(), &[]).expect("accepted");
    connecting.wait().expect("connected");
}

#[test]
fn accepting_with_another_service_is_an_error_and_the_peer_learns_of_it() {
    let bench = Bench::new();
    let listener = bench.listen("127.0.0.1:0");
    let connecting = connect(bench.builder(), listener.local_addr(), &[]).expect("asked");
    let builder = bench.domain.queue_pair_builder::<Uc>(&bench.queue);
    assert!(matches!(
        next(&listener).accept(builder, &[]),
        Err(ConnectError::Refused(_))
    ));
    assert!(matches!(connecting.wait(), Err(ConnectError::Rejected { .. })));
}

#[test]
fn a_rejection_carries_its_reason_and_words() {
    let bench = Bench::new();
    let listener = bench.listen("127.0.0.1:0");
    let connecting = connect(bench.builder(), listener.local_addr(), &[]).expect("asked");
    next(&listener).reject(b"not today").expect("rejected");
    let Err(ConnectError::Rejected {
        reason, private_data, ..
    }) = connecting.wait()
    else {
        panic!("it was rejected");
    };
    assert_eq!(reason, RejectReason::CONSUMER_DEFINED);
    assert!(private_data.starts_with(b"not today\0"));
}

#[test]
fn a_rejection_may_have_another_reason() {
    let bench = Bench::new();
    let listener = bench.listen("127.0.0.1:0");
    let connecting = connect(bench.builder(), listener.local_addr(), &[]).expect("asked");
    let rejected = next(&listener).reject_with(RejectReason::NO_RESOURCES, b"full");
    rejected.expect("rejected");
    let Err(ConnectError::Rejected { reason, .. }) = connecting.wait() else {
        panic!("it was rejected");
    };
    assert_eq!(reason, RejectReason::NO_RESOURCES);
}

#[test]
fn where_nobody_listens_the_answer_comes_soon() {
    let bench = Bench::new();
    let address = bench.listen("127.0.0.1:0").local_addr();
    let Err(ConnectError::Rejected { reason, .. }) =
        connect(bench.builder(), address, &[]).expect("asked").wait()
    else {
        panic!("nobody listens any more");
    };
    assert_eq!(reason, RejectReason::INVALID_SERVICE_ID);
}

#[test]
fn a_request_nobody_answers_is_rejected_when_the_listener_goes() {
    let bench = Bench::new();
    let listener = bench.listen("127.0.0.1:0");
    let connecting = connect(bench.builder(), listener.local_addr(), &[]).expect("asked");
    drop(listener);
    assert!(matches!(connecting.wait(), Err(ConnectError::Rejected { .. })));
}

#[test]
fn a_port_has_one_listener_also_across_devices() {
    let (bench, other) = (Bench::new(), Bench::new());
    let listener = bench.listen("127.0.0.1:0");
    let address = listener.local_addr();
    for device in [&bench.device, &other.device] {
        assert!(matches!(Listener::bind(device, address), Err(ListenError::InUse)));
    }
    drop(listener);
    Listener::bind(&other.device, address).expect("free again");
}

#[test]
fn an_address_of_another_device_cannot_be_listened_at() {
    let bench = Bench::new();
    let address: SocketAddr = "192.0.2.1:7".parse().expect("a literal address");
    assert!(matches!(
        Listener::bind(&bench.device, address),
        Err(ListenError::NoAddress(_))
    ));
}

#[test]
fn dropping_a_connection_tells_the_peer() {
    let bench = Bench::new();
    let listener = bench.listen("127.0.0.1:0");
    let connecting = connect(bench.builder(), listener.local_addr(), &[]).expect("asked");
    let server = next(&listener).accept(bench.builder(), &[]).expect("accepted");
    let client = connecting.wait().expect("connected");
    assert!(!server.wait_disconnected(Some(Duration::ZERO)));
    drop(client);
    assert!(server.wait_disconnected(Some(PATIENCE)));
}

#[test]
fn whoever_waits_for_a_receive_learns_that_the_peer_left() {
    let bench = Bench::new();
    let other = bench.device.completion_queue(4).expect("a queue");
    let listener = bench.listen("127.0.0.1:0");
    let connecting = connect(bench.builder(), listener.local_addr(), &[]).expect("asked");
    let builder = bench.domain.queue_pair_builder::<Rc>(&other);
    let mut server = next(&listener).accept(builder, &[]).expect("accepted");
    let client = connecting.wait().expect("connected");
    let lease = bench.domain.lease(8).expect("memory");
    server.pair.rq.recv(7, lease).expect("posted");
    drop(client);
    let done = other.wait(Some(PATIENCE)).expect("no overflow").expect("in time");
    assert_eq!((done.id, done.result), (7, Err(Status::Flushed)));
    assert_eq!(server.pair.state(), QpState::Error);
}

#[test]
fn shutting_down_tells_the_peer_and_keeps_what_was_posted() {
    let bench = Bench::new();
    let listener = bench.listen("127.0.0.1:0");
    let connecting = connect(bench.builder(), listener.local_addr(), &[]).expect("asked");
    let server = next(&listener).accept(bench.builder(), &[]).expect("accepted");
    let mut client = connecting.wait().expect("connected");
    let lease = bench.domain.lease_from(b"mine").expect("memory");
    client.pair.rq.recv(3, lease).expect("posted");
    client.shutdown().expect("it was connected");
    assert!(server.wait_disconnected(Some(PATIENCE)));
    let done = bench
        .queue
        .wait(Some(PATIENCE))
        .expect("no overflow")
        .expect("in time");
    assert_eq!((done.id, done.result), (3, Err(Status::Flushed)));
    assert_eq!(&done.buffers[0][..], b"mine");
}

#[test]
fn a_peer_that_does_not_answer_is_waited_for_as_long_as_one_likes() {
    let bench = Bench::new();
    let listener = bench.listen("127.0.0.1:0");
    let connecting = connect(bench.builder(), listener.local_addr(), &[]).expect("asked");
    let wait = connecting.wait_within(Duration::from_millis(50));
    assert!(matches!(wait, Err(ConnectError::Unreachable(_))));
    // It is withdrawn: accepting it fails, then or a little later, because the client does not wait any more.
    match next(&listener).accept(bench.builder(), &[]) {
        Ok(server) => assert!(server.wait_disconnected(Some(PATIENCE))),
        Err(error) => assert!(matches!(error, ConnectError::Refused(_)), "{error}"),
    }
}

#[test]
fn a_host_where_no_rdma_program_runs_is_given_up_soon_and_says_why() {
    let bench = Bench::new();
    let begun = Instant::now();
    let peer = SocketAddr::new(bench::deserted(), 7471);
    let refused = connect(bench.builder(), peer, &[]).expect("asked").wait();
    let error = refused.expect_err("nobody is there");
    assert!(
        matches!(error, ConnectError::PortUnreachable(at) if at == peer),
        "{error}"
    );
    assert!(error.to_string().contains("UDP port 4791"), "{error}");
    // Longer than the attempts that make sure of it, and shorter than one that is not answered.
    assert!(begun.elapsed() < ConnectOptions::default().patience / 2);
}

#[test]
fn the_end_can_be_awaited() {
    let bench = Bench::new();
    let listener = bench.listen("[::1]:0");
    let connecting = connect(bench.builder(), listener.local_addr(), &[]).expect("asked");
    let server = block_on(listener.incoming())
        .accept(bench.builder(), &[])
        .expect("accepted");
    let client = block_on(connecting).expect("connected");
    let leaver = std::thread::spawn(move || drop(client));
    block_on(server.disconnected());
    leaver.join().expect("it left");
}

#[test]
fn both_sides_can_be_awaited() {
    let bench = Bench::new();
    let listener = bench.listen("127.0.0.1:0");
    let connecting = connect(bench.builder(), listener.local_addr(), &[]).expect("asked");
    let incoming = block_on(listener.incoming());
    let _server = incoming.accept(bench.builder(), &[]).expect("accepted");
    block_on(connecting).expect("connected");
}

#[test]
fn nothing_is_left_of_connections_that_ended() {
    let bench = Bench::new();
    let listener = bench.listen("127.0.0.1:0");
    for _ in 0..50 {
        let connecting = connect(bench.builder(), listener.local_addr(), &[]).expect("asked");
        let mut server = next(&listener).accept(bench.builder(), &[]).expect("accepted");
        let mut client = connecting.wait().expect("connected");
        bench.exchange(&mut client, &mut server, b"once");
    }
    // A finished connection is remembered for a while, then forgotten.
    let start = std::time::Instant::now();
    while bench.device.usage().connections > 0 {
        assert!(
            start.elapsed() < PATIENCE,
            "{} left",
            bench.device.usage().connections
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_example_talks_between_two_processes() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    // Test programs stand in `deps`, examples beside it.
    let own = std::env::current_exe().expect("we run");
    let example = own
        .parent()
        .and_then(|deps| deps.parent())
        .expect("a build folder");
    let example = example.join("examples").join("connect");
    let mut server = Command::new(&example)
        .args(["serve", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("examples are built with the tests");
    let mut said = BufReader::new(server.stdout.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says where it listens");
    let address = line.trim().strip_prefix("listening on ").expect("an address");
    let client = Command::new(&example).args(["ask", address, "hello"]).output();
    let client = client.expect("the same program");
    assert_eq!(String::from_utf8_lossy(&client.stdout), "hello\n", "{client:?}");
    assert!(server.wait().expect("it ends").success());
}
