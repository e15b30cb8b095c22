//! Processes that end without a word. Their peers on this host hear of it at once.

mod bench;

use bench::Bench;
use nonic::{Connection, Listener, Rc, connect};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far below the four seconds after which a lost message is repeated.
const SOON: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);
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
        .args(["--exact", name, "--ignored", "--nocapture"])
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

/// A child's way to the server; `None` when somebody runs the ignored tests by hand.
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

/// As it would be from another host: without the shortcut, nobody sees a process of this host end.
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
