//! Two hosts, as far as the kernel can tell: network namespaces joined by a virtual cable.

use crate::party::{self, Party};
use crate::support;
use crate::support::hosts::{unavailable, veth_pair};
use crate::support::matrix;
use crate::support::{Place, Process, Server, missing, readable_copy, run};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};
use testbed::namespace::Namespace;

/// How long it may take to learn that a peer is gone; several times what it takes on a machine at rest.
const LEARNED: Duration = Duration::from_secs(20);

#[test]
fn everything_works_over_an_ethernet_of_mtu_1500() {
    everything_at(1500, 1024);
}

#[test]
fn everything_works_over_an_ethernet_of_mtu_9000() {
    everything_at(9000, 4096);
}

/// Everything over IPv4, IPv6 and IPv6 link-local addresses.
fn everything_at(mtu: u32, path_mtu: u64) {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(mtu);
    let left = Place::here().in_namespace(&cable.left);
    let right = Place::here().in_namespace(&cable.right);
    for bind in ["10.77.0.2:0", "[fd77::2]:0", "[fe80::2%veth]:0"] {
        let mut server = Server::start(&right, "perf", bind, &[]);
        assert!(server.joined, "alone in its namespace");
        server.address = reachable(&server.address);
        matrix::everything(&left, &server);
        let run = matrix::perf(
            &left,
            &server.address,
            "rc",
            "write",
            "100000",
            &["--iterations", "100"],
        );
        assert_eq!(run["mtu"], path_mtu, "{run}");
    }
}

/// A scope is a number on the host that named it; the client knows its own by name.
fn reachable(address: &str) -> String {
    match address.split_once('%') {
        Some((ip, rest)) => {
            let port = rest.split_once("]:").map_or("", |(_, port)| port);
            format!("{ip}%veth]:{port}")
        }
        None => address.to_owned(),
    }
}

/// As on an interface that just came up. Fails if tentative addresses are no GIDs: the server is told that no device has the address.
#[test]
fn an_address_that_is_still_tentative_is_a_gid() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    // Each attempt to find a duplicate takes a second.
    let probes = cable.right.write_sysctl("net/ipv6/conf/veth/dad_transmits", "3");
    probes.expect("our own namespace");
    let ip = |words: &[&str]| cable.right.ip(words).expect("our own namespace");
    ip(&["addr", "add", "fe80::7/64", "dev", "veth"]);
    let tentative = ip(&["-6", "addr", "show", "tentative"]);
    assert!(tentative.contains("fe80::7/64"), "{tentative}");
    let right = Place::here().in_namespace(&cable.right);
    let mut server = Server::start(&right, "perf", "[fe80::7%veth]:0", &[]);
    server.address = reachable(&server.address);
    let left = Place::here().in_namespace(&cable.left);
    let run = matrix::perf(
        &left,
        &server.address,
        "rc",
        "write",
        "64",
        &["--iterations", "100"],
    );
    assert_eq!(run["messages"], 100, "{run}");
}

/// No process is left that could answer, so the queue pair's peer was told when it was destroyed.
#[test]
fn a_peer_that_destroyed_its_queue_pair_and_ended_is_not_waited_for() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let device = [(party::DEVICE, "roce_veth")];
    let mut one = Party::start(&cable.left, &device, &[]);
    let mut other = Party::start(&cable.right, &device, &[]);
    let shelf = other.ask("expose shelf 4096");
    party::connect(&mut one, &mut other, "qp");
    assert_eq!(one.ask(&format!("write qp {shelf} 4096 1")), "ok");
    other.ask("drop qp");
    drop(other);
    assert_eq!(one.ask(&format!("write qp {shelf} 4096 2")), "RetryExceeded");
    assert_eq!(one.counter("timeouts"), 0);
}

#[test]
fn two_processes_per_host_share_its_address() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let left = Place::here().in_namespace(&cable.left);
    let right = Place::here().in_namespace(&cable.right);
    let servers = [(); 2].map(|()| Server::start(&right, "perf", "10.77.0.2:0", &[]));
    assert!(servers.iter().all(|server| server.joined), "they share the port");
    let clients: Vec<support::Client> = servers
        .iter()
        .map(|server| {
            let arguments = [
                "perf",
                &server.address,
                "--json",
                "--verify",
                "--op",
                "send",
                "--size",
                "5000",
                "--iterations",
                "2000",
            ];
            support::Client::start(&left, &arguments)
        })
        .collect();
    for client in clients {
        let found = client.json();
        assert_eq!(found["runs"][0]["messages"], 2000, "{found}");
    }
}

#[test]
fn everything_works_between_hosts_without_privileges() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let (_directory, program) = readable_copy();
    let left = Place::here()
        .in_namespace(&cable.left)
        .run_by_nobody(program.clone());
    let right = Place::here().in_namespace(&cable.right).run_by_nobody(program);
    for bind in ["10.77.0.2:0", "[fd77::2]:0"] {
        let server = Server::start(&right, "perf", bind, &[]);
        matrix::everything(&left, &server);
    }
}

/// Waits until so many bytes have come to a namespace by its cable.
fn wait_for_bytes(namespace: &Namespace, wanted: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let told = namespace
            .ip(&["-s", "-j", "link", "show", "veth"])
            .expect("our own namespace");
        let told: serde_json::Value = serde_json::from_str(&told).expect("ip prints JSON");
        let received = told[0]["stats64"]["rx"]["bytes"].as_u64().expect("a number");
        if received >= wanted {
            return;
        }
        assert!(Instant::now() < deadline, "only {received} bytes came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_cable_that_is_cut_ends_a_reliable_run_with_the_reason() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let left = Place::here().in_namespace(&cable.left);
    let right = Place::here().in_namespace(&cable.right);
    let server = Server::start(&right, "perf", "10.77.0.2:0", &[]);
    let client = support::Client::start(&left, &["perf", &server.address, "--duration", "30s"]);
    let begun = server.next_event();
    assert_eq!(begun["event"], "client", "{begun}");
    // While the two still agree on what to do, a cut cable has another reason.
    wait_for_bytes(&cable.right, 1_000_000);
    let cut = cable.right.ip(&["link", "set", "veth", "down"]);
    cut.expect("our own namespace");
    let outcome = client.finish();
    assert!(!outcome.success);
    assert!(
        outcome.stderr.contains("retries exhausted") || outcome.stderr.contains("did not say"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn devices_of_a_namespace_are_its_own() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(9000);
    let found = run(&Place::here().in_namespace(&cable.left), &["devices", "--json"]).json();
    let devices = found["devices"].as_array().expect("a list");
    let names: Vec<&str> = devices
        .iter()
        .filter_map(|device| device["netdev"].as_str())
        .collect();
    assert_eq!(names, ["lo", "veth"]);
    let veth = &devices[1];
    assert_eq!(
        (veth["mtu"].as_u64(), veth["path_mtu"].as_u64()),
        (Some(9000), Some(4096))
    );
    let gids: Vec<&str> = veth["gids"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|gid| gid["gid"].as_str())
        .collect();
    assert_eq!(gids, ["fe80::1", "::ffff:10.77.0.1", "fd77::1"]);
}

#[test]
fn a_server_killed_on_another_host_ends_a_reliable_run_within_its_retries() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let left = Place::here().in_namespace(&cable.left);
    let right = Place::here().in_namespace(&cable.right);
    let server = Server::start(&right, "perf", "10.77.0.2:0", &[]);
    let arguments = ["perf", &server.address, "--op", "write", "--duration", "60s"];
    let client = support::Client::start(&left, &arguments);
    let begun = server.next_event();
    assert_eq!(begun["event"], "client", "{begun}");
    // Not a guess at how long something takes: the point is to strike in the middle.
    std::thread::sleep(Duration::from_secs(1));
    server.process.kill();
    let killed = Instant::now();
    let outcome = client.finish();
    let elapsed = killed.elapsed();
    println!("learned after {elapsed:?}");
    assert!(!outcome.success, "{}", outcome.stdout);
    // Eight attempts of 67 ms each.
    assert!(elapsed < LEARNED, "{elapsed:?}: {}", outcome.stderr);
}

#[test]
fn a_client_killed_on_another_host_is_missed_though_nobody_sends() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let left = Place::here().in_namespace(&cable.left);
    let right = Place::here().in_namespace(&cable.right);
    let server = Server::start(&right, "ping", "10.77.0.2:0", &[]);
    let arguments = ["ping", &server.address, "--interval", "60s", "--op", "send"];
    let mut command = left.command(&arguments);
    let mut client = command.stdout(Stdio::piped()).spawn().expect("it starts");
    // The first answer is there; the next question comes in a minute.
    let mut said = BufReader::new(client.stdout.take().expect("asked for"));
    said.read_line(&mut String::new()).expect("a line");
    Process::from(client).kill();
    let killed = Instant::now();
    let begun = server.next_event();
    assert_eq!(begun["event"], "client", "{begun}");
    let ended = server.next_event();
    let elapsed = killed.elapsed();
    println!("learned after {elapsed:?}: {ended}");
    // Two seconds of silence, then eight attempts of 268 ms to say something.
    assert!(elapsed < LEARNED, "{elapsed:?}");
    matrix::ping(&left, &server.address, "rc");
}
