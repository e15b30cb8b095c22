//! Processes of one machine, on one address.

use crate::support;
use crate::support::hosts::place_of_its_own;
use crate::support::matrix::{self, number};
use crate::support::{Client, Place, Server, run};

#[test]
fn two_processes_on_one_address_do_everything() {
    let here = Place::here();
    let server = Server::start(&here, "ping", "127.0.0.1:0", &[]);
    matrix::everything(&here, &server);
}

#[test]
fn two_processes_on_one_ipv6_address_do_everything() {
    let here = Place::here();
    let server = Server::start(&here, "perf", "[::1]:0", &[]);
    matrix::everything(&here, &server);
}

#[test]
fn everything_works_by_the_detour_over_port_4791() {
    let detour = Place::here().with_environment("NONIC_NO_SHORTCUT", "1");
    let server = Server::start(&detour, "perf", "127.0.0.1:0", &[]);
    matrix::everything(&detour, &server);
}

#[test]
fn two_pairs_share_an_address_at_the_same_time() {
    let here = Place::here();
    let servers = [(); 2].map(|()| Server::start(&here, "perf", "127.0.0.1:0", &[]));
    let clients: Vec<Client> = servers
        .iter()
        .flat_map(|server| {
            ["send", "write", "read"].map(|op| {
                let arguments = [
                    "perf",
                    &server.address,
                    "--json",
                    "--verify",
                    "--op",
                    op,
                    "--size",
                    "20000",
                    "--iterations",
                    "2000",
                ];
                Client::start(&here, &arguments)
            })
        })
        .collect();
    for client in clients {
        let found = client.json();
        assert_eq!(found["runs"][0]["messages"], 2000, "{found}");
    }
}

#[test]
fn sleeping_and_spinning_sides_and_several_queue_pairs_agree() {
    let here = Place::here();
    let server = Server::start(&here, "perf", "127.0.0.1:0", &[]);
    for (service, op) in matrix::COMBINATIONS {
        let size = if op == "fetch-add" || op == "compare-swap" {
            "8"
        } else {
            "777"
        };
        let more = ["--events", "--qps", "3", "--test", "rate", "--iterations", "500"];
        let run = matrix::perf(&here, &server.address, service, op, size, &more);
        assert_eq!(number(&run, "messages") + number(&run, "lost"), 500, "{run}");
        let more = ["--events", "--test", "lat", "--iterations", "50"];
        let run = matrix::perf(&here, &server.address, service, op, size, &more);
        assert_eq!(number(&run, "samples") + number(&run, "lost"), 50, "{run}");
    }
    let more = ["--target-sleeps", "--iterations", "500"];
    let run = matrix::perf(&here, &server.address, "rc", "write", "30000", &more);
    assert_eq!(run["messages"], 500, "{run}");
}

#[test]
fn every_size_is_measured_and_reported() {
    let outcome = run(
        &Place::here(),
        &[
            "perf",
            "--loopback",
            "--json",
            "--verify",
            "--all-sizes",
            "--iterations",
            "20",
        ],
    );
    assert!(outcome.success, "{}", outcome.stderr);
    let found = outcome.json();
    let sizes: Vec<u64> = found["runs"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|run| number(run, "size"))
        .collect();
    let expected: Vec<u64> = (1..=23).map(|bit| 1 << bit).collect();
    assert_eq!(sizes, expected);
}

#[test]
fn loopback_needs_no_server() {
    let outcome = run(
        &Place::here(),
        &["ping", "--loopback", "--count", "2", "--interval", "1ms"],
    );
    assert!(outcome.success, "{}", outcome.stderr);
    for op in ["send", "write", "read"] {
        let summary = format!("--- rc {op}: 2 sent, 2 answered, 0% lost, contents verified");
        assert!(outcome.stdout.contains(&summary), "{}", outcome.stdout);
    }
    assert_eq!(outcome.stdout.matches(" time=").count(), 6, "{}", outcome.stdout);
}

#[test]
fn a_server_told_so_ends_after_one_client() {
    let here = Place::here();
    let mut server = Server::start(&here, "ping", "127.0.0.1:0", &["--once"]);
    matrix::ping(&here, &server.address, "ud");
    assert!(server.process.wait(std::time::Instant::now() + support::DEADLINE));
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let (_namespace, here) = place_of_its_own();
    let server = Server::start(&here, "perf", "127.0.0.1:0", &[]);
    let arguments = ["perf", &server.address, "--json", "--connections", "1000"];
    // Twice, so that what stays for good is seen as well.
    for _ in 0..2 {
        let found = Client::start(&here, &arguments).json();
        println!("{found}");
        assert_eq!(found["connections"], 1000, "{found}");
        for side in ["client", "server"] {
            let side = &found[side];
            assert_eq!(side["left_behind"].as_array().map(Vec::len), Some(0), "{found}");
            assert!(number(side, "bytes_per_connection") < 8192, "{found}");
        }
    }
}

/// Each arrival is held back by what was asked for at least, also when the program has slept before it.
#[test]
fn a_delay_is_never_shorter_than_asked_for() {
    let mut ping = Place::here().command(&[
        "ping",
        "--loopback",
        "--op",
        "send",
        "--interval",
        "5ms",
        "--json",
    ]);
    let output = ping.env("NONIC_FAULTS", "delay=2ms").output().expect("it starts");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let shortest = found["runs"][0]["rtt_ns"]["min"].as_u64();
    assert!(shortest >= Some(4_000_000), "{found}");
}
