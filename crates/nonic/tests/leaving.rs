//! Processes that end without a word. Their peers on this host hear of it at once, and the ports they listened at are
//! free. (Peers on other hosts learn of it when acknowledgements stay away: see the tests of the command.)

use crate::bench::{Bench, PATIENCE};
use nonic::{Connection, Listener, Rc, Status, connect};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far below the four seconds after which a lost message is repeated.
const SOON: Duration = Duration::from_secs(2);
const SERVER: &str = "NONIC_TEST_SERVER";

/// A child process in one of the roles below.
struct Leaver(Child);

impl Leaver {
    fn start(name: &str, server: SocketAddr) -> Self {
        let child = role(name, &server.to_string()).spawn();
        Leaver(child.expect("a child process"))
    }
}

fn role(name: &str, server: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args(["--exact", &format!("leaving::{name}"), "--ignored", "--nocapture"])
        .env(SERVER, server)
        .stdout(Stdio::null());
    command
}

impl Drop for Leaver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A child's way to the server; `None` when the ignored tests are run by hand.
fn connected() -> Option<Connection<Rc>> {
    let server: SocketAddr = std::env::var(SERVER).ok()?.parse().ok()?;
    let bench = Bench::new();
    let builder = bench.domain.queue_pair_builder(&bench.queue);
    let asked = connect(builder, server, b"").expect("asks");
    let connection = asked.wait().expect("connects");
    // The device is to be open when the process ends.
    std::mem::forget(bench);
    Some(connection)
}

/// Role: connect and exit with everything open.
#[test]
#[ignore = "a child process of the other tests"]
fn exits() {
    if let Some(connection) = connected() {
        std::mem::forget(connection);
        std::process::exit(0);
    }
}

/// Role: connect and wait to be killed.
#[test]
#[ignore = "a child process of the other tests"]
fn stays() {
    if let Some(connection) = connected() {
        connection.wait_disconnected(Some(PATIENCE));
    }
}

fn accepted(role: &str) -> (Leaver, Connection<Rc>) {
    let bench = Bench::new();
    let listener = Listener::bind(&bench.device, SocketAddr::from(([127, 0, 0, 1], 0))).expect("free");
    let leaver = Leaver::start(role, listener.local_addr());
    let incoming = listener.accept_within(PATIENCE).expect("the child connects");
    let builder = bench.domain.queue_pair_builder(&bench.queue);
    (leaver, incoming.accept(builder, b"").expect("accepts"))
}

/// Role: the peer of one that exits.
#[test]
#[ignore = "a child process of the other tests"]
fn hears() {
    if std::env::var_os(SERVER).is_some() {
        let (_leaver, connection) = accepted("exits");
        assert!(connection.wait_disconnected(Some(SOON)));
    }
}

/// As from another host: without the shortcut, peers on this host do not see the process end.
#[test]
fn a_process_that_exits_says_goodbye() {
    let mut command = role("hears", "the test");
    let outcome = command
        .env("NONIC_NO_SHORTCUT", "1")
        .status()
        .expect("a child process");
    assert!(outcome.success());
}

#[test]
fn a_process_that_is_killed_is_missed() {
    let (mut leaver, connection) = accepted("stays");
    assert!(!connection.wait_disconnected(Some(Duration::from_millis(100))));
    leaver.0.kill().expect("it lives");
    let killed = Instant::now();
    assert!(connection.wait_disconnected(Some(SOON)), "nobody noticed");
    assert!(killed.elapsed() < SOON);
}

#[test]
fn whoever_waits_for_a_message_of_a_killed_process_is_told() {
    let bench = Bench::new();
    let listener = Listener::bind(&bench.device, SocketAddr::from(([127, 0, 0, 1], 0))).expect("free");
    let mut leaver = Leaver::start("stays", listener.local_addr());
    let incoming = listener.accept_within(PATIENCE).expect("the child connects");
    let builder = bench.domain.queue_pair_builder::<Rc>(&bench.queue);
    let mut connection = incoming.accept(builder, b"").expect("accepts");
    let lease = bench.domain.lease(8).expect("memory");
    connection.pair.rq.recv(1, lease).expect("posted");
    let early = bench.queue.wait(Some(Duration::from_millis(100)));
    assert!(early.expect("no overflow").is_none(), "it lives");
    leaver.0.kill().expect("it lives");
    let killed = Instant::now();
    let done = bench
        .queue
        .wait(Some(SOON))
        .expect("no overflow")
        .expect("told in time");
    assert_eq!(done.result, Err(Status::Flushed));
    println!("told after {:?}", killed.elapsed());
}

/// Role: listen at an address, say so, accept every client and wait to be killed.
#[test]
#[ignore = "a child process of the other tests"]
fn listens() {
    let Some(address) = std::env::var(SERVER)
        .ok()
        .and_then(|address| address.parse().ok())
    else {
        return;
    };
    let bench = Bench::new();
    let listener = Listener::bind(&bench.device, address).expect("nobody listens there any more");
    println!("\nlistening on {}", listener.local_addr());
    let mut connections = Vec::new();
    while let Some(incoming) = listener.accept_within(PATIENCE) {
        let builder = bench.domain.queue_pair_builder::<Rc>(&bench.queue);
        connections.push(incoming.accept(builder, b"").expect("accepts"));
    }
}

/// A child that listens, and where.
fn listener_at(address: &str) -> (Leaver, SocketAddr) {
    let child = role("listens", address).stdout(Stdio::piped()).spawn();
    let mut leaver = Leaver(child.expect("a child process"));
    let said = BufReader::new(leaver.0.stdout.take().expect("piped"));
    let mut lines = said.lines().map_while(Result::ok);
    let line = lines.find_map(|line| Some(line.strip_prefix("listening on ")?.to_owned()));
    let address = line.expect("it says where it listens");
    (leaver, address.parse().expect("an address"))
}

#[test]
fn a_killed_listener_starts_again_on_the_same_port_at_once() {
    let bench = Bench::new();
    let meet = |server| {
        let builder = bench.domain.queue_pair_builder::<Rc>(&bench.queue);
        connect(builder, server, b"")
            .expect("asks")
            .wait_within(SOON)
            .expect("connects")
    };
    let (mut first, address) = listener_at("127.0.0.1:0");
    let old: Vec<Connection<Rc>> = (0..3).map(|_| meet(address)).collect();
    for _ in 0..3 {
        first.0.kill().expect("it lives");
        first.0.wait().expect("our own child");
        let (second, again) = listener_at(&address.to_string());
        assert_eq!(again, address);
        // The connections of the dead one are still in our hands.
        meet(address);
        first = second;
    }
    for connection in &old {
        assert!(connection.wait_disconnected(Some(SOON)), "nobody noticed");
    }
}

#[test]
fn nobody_waits_long_for_a_peer_that_does_not_answer_a_goodbye() {
    let (peer, address) = listener_at("127.0.0.1:0");
    let bench = Bench::new();
    let builder = bench.domain.queue_pair_builder::<Rc>(&bench.queue);
    let connection = connect(builder, address, b"")
        .expect("asks")
        .wait_within(SOON)
        .expect("connects");
    let signal = |name: &str| {
        let status = Command::new("kill")
            .args([name, &peer.0.id().to_string()])
            .status();
        assert!(status.is_ok_and(|status| status.success()), "our own child");
    };
    signal("-STOP");
    let began = Instant::now();
    drop(connection);
    drop(bench);
    assert!(began.elapsed() < SOON, "closing took {:?}", began.elapsed());
    signal("-CONT");
}
