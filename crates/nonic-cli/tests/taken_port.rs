//! Another program has UDP port 4791: nothing can arrive from other hosts, and a program that opens the device is told so.

use crate::support;
use crate::support::hosts::{unavailable, veth_pair};
use crate::support::{Client, Place, Process, Server, missing, run};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::Stdio;
use std::time::{Duration, Instant};
use testbed::namespace::Namespace;

/// Set for the process that holds the port.
const HOLDER: &str = "NONIC_TEST_HOLDS_THE_PORT";

/// What the program that is not nonic does: this test in another process, which has the port of all addresses until it is killed.
#[test]
fn holds_the_port() {
    if std::env::var_os(HOLDER).is_some() {
        let _socket = UdpSocket::bind("0.0.0.0:4791").expect("nobody has it");
        println!("held");
        // Until it is killed, or at most as long as any test takes.
        std::thread::sleep(support::DEADLINE);
    }
}

/// Starts it in a namespace, and waits until it has the port.
fn hold_in(namespace: &Namespace) -> Process {
    let mut command = namespace.command([std::env::current_exe().expect("this test")]);
    command
        .args(["holds_the_port", "--nocapture"])
        .env(HOLDER, "1")
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("asked for")).lines();
    let process = Process::from(child);
    assert!(
        lines.any(|line| line.is_ok_and(|line| line.ends_with("held"))),
        "it has the port"
    );
    process
}

#[test]
fn whoever_opens_the_device_is_told_and_the_port_is_taken_over() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let holder = hold_in(&cable.left);
    let left = Place::here().in_namespace(&cable.left);
    let server = Server::start(&left, "ping", "10.77.0.1:0", &[]);
    assert!(!server.joined);

    // The client opens the device as well, and is told. Messages of the connection manager go to the port, on one host as well.
    let client = run(&left, &["ping", &server.address, "--count", "2"]);
    assert!(!client.success, "{}", client.stderr);
    let told = client
        .stderr
        .matches("another program has UDP port 4791 of 10.77.0.1")
        .count();
    assert_eq!(told, 1, "once: {}", client.stderr);
    for words in [
        "warn device: ",
        "nothing can arrive from other hosts",
        "connecting by address and port does not work either",
    ] {
        assert!(client.stderr.contains(words), "{words}: {}", client.stderr);
    }
    assert!(
        !client.stderr.contains("fd77::1"),
        "that of IPv6 is free: {}",
        client.stderr
    );

    let pid = server.process.pid().to_string();
    let show = || run(&left, &["show", "device", "--json", "--pid", &pid]).json();
    let shown = show();
    assert_eq!(shown["device"][0]["port_taken"], true, "{shown}");
    assert!(
        shown["device"][0]["port_4791"]
            .as_str()
            .is_some_and(|ports| ports.contains("10.77.0.1=taken")),
        "{shown}"
    );

    // When the program ends, the port is taken over, and other hosts get through.
    holder.kill();
    let deadline = Instant::now() + support::DEADLINE;
    while show()["device"][0]["port_taken"] != false {
        assert!(Instant::now() < deadline, "the port is never taken over");
        std::thread::sleep(Duration::from_millis(50));
    }
    let right = Place::here().in_namespace(&cable.right);
    let outcome = Client::start(&right, &["ping", &server.address, "--count", "2"]).finish();
    assert!(outcome.success, "{}", outcome.stderr);
    assert_eq!(
        outcome.stderr.matches("another program").count(),
        0,
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_client_whose_peer_cannot_hear_is_told_of_the_port() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let _holder = hold_in(&cable.left);
    let left = Place::here().in_namespace(&cable.left);
    let server = Server::start(&left, "ping", "10.77.0.1:0", &[]);
    let right = Place::here().in_namespace(&cable.right);
    let outcome = run(&right, &["ping", &server.address, "--count", "1"]);
    assert!(!outcome.success);
    assert!(
        outcome
            .stderr
            .contains("another program has UDP port 4791 on the peer's host"),
        "{}",
        outcome.stderr
    );
}
