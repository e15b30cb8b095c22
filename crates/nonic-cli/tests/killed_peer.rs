//! A server on another host is killed: a connected client can disconnect, and a client that wants to connect is
//! refused, without waiting for answers that never come. The server's host is there to say so: another process of it,
//! or its kernel if there is none.

use crate::support::hosts::{unavailable, veth_pair};
use crate::support::{Place, Process, Server, missing};
use nonic::{ConnectError, Device, Rc, connect};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};
use testbed::namespace::Namespace;

/// What `nonic ping` says to its server.
const GREETING: &[u8] = b"nonic conversation";
/// Says to this program that it is the client, and of which server.
const CLIENT_OF: &str = "NONIC_TEST_CLIENT_OF";
/// And on which device.
const DEVICE: &str = "NONIC_TEST_DEVICE";
/// How long either may take: less than the minute that the protocol grants a peer that says nothing. Connecting takes
/// three quarters of it on a machine at rest where another process says that there is no listener: a server may be
/// about to start.
const SOON: Duration = Duration::from_secs(1);

/// This program once more, in a network namespace: the client.
struct Client {
    _process: Process,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    fn start(namespace: &Namespace, device: &str, server: &str) -> Self {
        let mut command = namespace.command([std::env::current_exe().expect("we run")]);
        command
            .args(["--exact", "killed_peer::the_client", "--nocapture"])
            .env(CLIENT_OF, server)
            .env(DEVICE, device)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        Client {
            stdin: child.stdin.take().expect("asked for"),
            stdout: BufReader::new(child.stdout.take().expect("asked for")),
            _process: Process::from(child),
        }
    }

    /// The rest of the next line that begins with these words.
    fn says(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            let length = self.stdout.read_line(&mut line).expect("text");
            assert!(length > 0, "it ended without a word");
            if let Some((_, rest)) = line.trim().split_once(words) {
                return rest.trim().to_owned();
            }
        }
    }

    fn go_on(&mut self) {
        self.stdin.write_all(b"\n").expect("it reads");
        self.stdin.flush().expect("it reads");
    }
}

/// What the client process does. Nothing, unless a test started it as a client.
#[test]
fn the_client() {
    let Ok(server) = std::env::var(CLIENT_OF) else {
        return;
    };
    let server: SocketAddr = server.parse().expect("an address");
    let device = std::env::var(DEVICE).expect("told with the server");
    let device = Device::open(&device).expect("the cable ends here");
    let (domain, queue) = (
        device.domain(),
        device.completion_queue(16).expect("there is room"),
    );
    let ask = || connect(domain.queue_pair_builder::<Rc>(&queue), server, GREETING)?.wait();
    let connection = ask().expect("it listens");
    println!("connected");
    std::io::stdin()
        .lock()
        .read_line(&mut String::new())
        .expect("a line");
    let begun = Instant::now();
    connection.shutdown().expect("it is connected");
    let disconnected = connection.wait_disconnected(Some(Duration::from_secs(100)));
    println!(
        "disconnected {disconnected} after {}",
        begun.elapsed().as_millis()
    );
    let begun = Instant::now();
    let refusal = match ask().expect_err("it is dead") {
        ConnectError::Unreachable(_) => "unreachable".to_owned(),
        ConnectError::PortUnreachable(_) => "port unreachable".to_owned(),
        ConnectError::Rejected { reason, .. } => format!("rejected ({})", reason.0),
        other => panic!("{other}"),
    };
    println!("refused as {refusal} after {}", begun.elapsed().as_millis());
}

/// Kills the server a client is connected to; `others` are its host's other servers, before it and after it. Answers
/// how the client is refused when it wants to connect once more.
fn kill_a_server(others: [bool; 2]) -> String {
    let cable = veth_pair(1500);
    let right = Place::here().in_namespace(&cable.right);
    let other = || Server::start(&right, "ping", "10.77.0.2:0", &[]);
    let _before = others[0].then(other);
    let server = Server::start(&right, "ping", "10.77.0.2:0", &[]);
    let _after = others[1].then(other);
    let mut client = Client::start(&cable.left, "roce_veth", &server.address);
    client.says("connected");
    server.process.kill();
    client.go_on();
    let disconnected = client.says("disconnected ");
    let refused = client.says("refused as ");
    println!("disconnected {disconnected} ms, refused as {refused} ms");
    assert_soon(&disconnected, "true");
    let (how, _) = refused.split_once(" after ").expect("two words");
    assert_soon(&refused, how);
    how.to_owned()
}

/// What the client said: what happened, and after how many milliseconds.
#[track_caller]
fn assert_soon(said: &str, what: &str) {
    let (happened, took) = said.split_once(" after ").expect("two words");
    assert_eq!(happened, what);
    let took = Duration::from_millis(took.parse().expect("a number"));
    assert!(took < SOON, "{what} after {took:?}");
}

#[test]
fn where_another_process_came_before_it_answers_for_the_dead_one() {
    if missing(unavailable()) {
        return;
    }
    assert_eq!(kill_a_server([true, false]), "rejected (8)");
}

#[test]
fn where_another_process_came_later_it_answers_for_the_dead_one() {
    if missing(unavailable()) {
        return;
    }
    assert_eq!(kill_a_server([false, true]), "rejected (8)");
}

#[test]
fn where_nobody_is_left_the_kernel_answers() {
    if missing(unavailable()) {
        return;
    }
    assert_eq!(kill_a_server([false, false]), "port unreachable");
}

#[test]
fn over_tcp_the_kernel_tells_of_the_end_at_once() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let right = Place::here().in_namespace(&cable.right);
    let right = right.with_environment("NONIC_WIRE", "iwarp");
    let server = Server::start(&right, "ping", "10.77.0.2:0", &[]);
    let mut client = Client::start(&cable.left, "iwarp_veth", &server.address);
    client.says("connected");
    server.process.kill();
    client.go_on();
    let disconnected = client.says("disconnected ");
    let refused = client.says("refused as ");
    assert_soon(&disconnected, "true");
    assert_soon(&refused, "rejected (8)");
}
