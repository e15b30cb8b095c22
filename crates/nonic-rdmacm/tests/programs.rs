//! Programs of rdma-core, unchanged, between two processes on loopback.

use crate::first_numbers::FirstNumbers;
use crate::support::pair::{PATIENCE, pair, port};
use crate::support::{Libraries, missing};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

fn succeeds(command: &mut Command) -> bool {
    command.output().expect("it starts").status.success()
}

fn stop(server: &mut Child) {
    // `timeout` passes the signal on.
    let stopped = Command::new("kill").arg(server.id().to_string()).status();
    assert!(stopped.expect("kill runs").success());
    server.wait().expect("the server ends");
}

#[test]
fn rping_reads_and_writes() {
    if missing("/usr/bin/rping") {
        return;
    }
    let libraries = Libraries::build();
    for (which, address) in [(0, "127.0.0.1"), (1, "::1")] {
        let port = port(which);
        let common = ["-a", address, "-p", &port, "-C", "100", "-S", "65535", "-V"];
        let side = |flag| [&[flag], &common[..]].concat();
        pair(&libraries, ["rping", "rping"], &side("-s"), &side("-c"));
    }
}

#[test]
fn a_side_begins_with_the_number_its_peer_asked_for() {
    if missing("/usr/bin/rping") || missing("/usr/bin/tshark") {
        return;
    }
    let libraries = Libraries::build();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let capture = folder.path().join("first.pcapng");
    let port = port(5);
    let common = ["-a", "127.0.0.1", "-p", &port];
    let server = libraries.command("rping").arg("-sP").args(common).spawn();
    let mut server = server.expect("the server starts");
    let started = Instant::now();
    while !succeeds(
        libraries
            .command("rping")
            .args(["-c", "-C", "1"])
            .args(common)
            .env("NONIC_PCAP", &capture),
    ) {
        assert!(started.elapsed() < PATIENCE, "nobody listens");
    }
    stop(&mut server);
    let numbers = FirstNumbers::read(&capture);
    // The client speaks first.
    assert_eq!(numbers.of_first_send, numbers.in_response, "{numbers:?}");
    assert_ne!(numbers.in_request, numbers.in_response);
}

#[test]
fn ucmatose_connects_many_times() {
    if missing("/usr/bin/ucmatose") {
        return;
    }
    let libraries = Libraries::build();
    let port = port(2);
    // Four connections, and twenty messages on each.
    let server = ["-c", "4", "-C", "20", "-p", &port];
    let client = [&server[..], &["-s", "127.0.0.1"]].concat();
    pair(&libraries, ["ucmatose", "ucmatose"], &server, &client);
}

#[test]
fn udaddy_resolves_datagram_services() {
    if missing("/usr/bin/udaddy") {
        return;
    }
    let libraries = Libraries::build();
    let server = ["-c", "4", "-C", "20"];
    let client = [&server[..], &["-s", "127.0.0.1"]].concat();
    pair(&libraries, ["udaddy", "udaddy"], &server, &client);
}

#[test]
fn endpoints_wait_for_their_events() {
    if missing("/usr/bin/rdma_server") {
        return;
    }
    let libraries = Libraries::build();
    let port = port(3);
    let client = ["-s", "127.0.0.1", "-p", &port];
    pair(
        &libraries,
        ["rdma_server", "rdma_client"],
        &["-p", &port],
        &client,
    );
}

#[test]
fn a_port_has_one_listener() {
    if missing("/usr/bin/rping") {
        return;
    }
    let libraries = Libraries::build();
    let port = port(4);
    let listen = ["-s", "-a", "127.0.0.1", "-p", &port];
    let mut first = libraries
        .command("rping")
        .args(listen)
        .arg("-P")
        .stderr(Stdio::null())
        .spawn()
        .expect("the server starts");
    let client = ["-c", "-a", "127.0.0.1", "-p", &port, "-C", "1"];
    let started = Instant::now();
    while !succeeds(libraries.command("rping").args(client)) {
        assert!(started.elapsed() < PATIENCE, "nobody listens");
    }
    let second = libraries.command("rping").args(listen).output();
    let second = second.expect("the second server starts");
    stop(&mut first);
    assert!(!second.status.success(), "two servers listen");
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("Address already in use"), "{said}");
}
