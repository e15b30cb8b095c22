//! Another program has UDP port 4791: nothing can arrive from other hosts, and whoever opens the device is told so.

use crate::support;
use crate::support::namespace::{Cable, Namespace};
use crate::support::{Client, Place, Process, Server, missing, run};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};

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
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net=/run/netns/{}", namespace.name))
        .arg(std::env::current_exe().expect("this test"))
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
fn whoever_opens_the_device_is_told_and_peers_on_the_host_are_reached() {
    if missing(Namespace::unavailable()) {
        return;
    }
    let cable = Cable::new(1500);
    let holder = hold_in(&cable.left);
    let left = Place::here().in_namespace(&cable.left.name);
    let server = Server::start(&left, "ping", "10.77.0.1:0", &[]);
    assert!(!server.joined);

    // On the same host nothing is missing. The client opens the device as well, and is told, whatever it succeeds in.
    let client = run(&left, &["ping", &server.address, "--count", "2"]);
    assert!(client.success, "{}", client.stderr);
    let told = client
        .stderr
        .matches("another program has UDP port 4791 of 10.77.0.1")
        .count();
    assert_eq!(told, 1, "once: {}", client.stderr);
    for words in [
        "warn device: ",
        "nothing can arrive from other hosts",
        "Programs on this host reach each other",
    ] {
        assert!(client.stderr.contains(words), "{words}: {}", client.stderr);
    }
    assert!(
        !client.stderr.contains("fd77::1"),
        "that of IPv6 is free: {}",
        client.stderr
    );

    let shown = run(
        &left,
        &[
            "show",
            "device",
            "--json",
            "--pid",
            &server.process.pid().to_string(),
        ],
    );
    let shown = shown.json();
    assert_eq!(shown["device"][0]["port_taken"], true, "{shown}");
    assert!(
        shown["device"][0]["port_4791"]
            .as_str()
            .is_some_and(|ports| ports.contains("10.77.0.1=taken")),
        "{shown}"
    );

    // When the program ends, the port is taken over, and other hosts get through.
    holder.kill();
    let right = Place::here().in_namespace(&cable.right.name);
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
    if missing(Namespace::unavailable()) {
        return;
    }
    let cable = Cable::new(1500);
    let _holder = hold_in(&cable.left);
    let left = Place::here().in_namespace(&cable.left.name);
    let server = Server::start(&left, "ping", "10.77.0.1:0", &[]);
    let right = Place::here().in_namespace(&cable.right.name);
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
