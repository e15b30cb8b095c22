//! One of the processes that share UDP port 4791 dies without a word, or is stopped, while two others talk. They finish.
//!
//! Each test has a network namespace of its own, so that no other process of the machine shares the port.

use crate::support;
use crate::support::hosts::{new_namespace, unavailable, veth_pair};
use crate::support::matrix::number;
use crate::support::{Client, Place, Server, missing};
use std::time::Duration;
use testbed::stopwatch::Stopwatch;

/// How long a transfer goes on before the other process dies, and how long at least after.
const UNDISTURBED: Duration = Duration::from_millis(400);

#[test]
fn same_host_peers_do_not_notice_the_death_of_another() {
    let found = kill_another_during("rc", "write", &[]);
    assert_eq!(found["link"]["handed_in"], 0, "they talk directly: {found}");
}

#[test]
fn reliable_transfers_over_the_port_survive_the_death_of_another() {
    for op in ["send", "write", "read", "fetch-add"] {
        kill_another_during("rc", op, &[("NONIC_NO_SHORTCUT", "1")]);
    }
}

#[test]
fn unreliable_transfers_over_the_port_survive_the_death_of_another() {
    for (service, op) in [("uc", "write"), ("ud", "send")] {
        kill_another_during(service, op, &[("NONIC_NO_SHORTCUT", "1")]);
    }
}

/// A third process shares the port; it is killed while a checked transfer is under way. What the client said.
fn kill_another_during(service: &str, op: &str, environment: &[(&str, &str)]) -> serde_json::Value {
    if missing(unavailable()) {
        // As if it had gone well; the caller's checks need something to look at.
        return serde_json::json!({ "link": { "handed_in": 0 } });
    }
    let namespace = new_namespace();
    let mut place = Place::here().in_namespace(&namespace);
    for (key, value) in environment {
        place = place.with_environment(key, *value);
    }
    let other = Server::start(&place, "ping", "127.0.0.1:0", &[]);
    let server = Server::start(&place, "perf", "127.0.0.1:0", &["--once"]);
    assert!(other.joined && server.joined);

    let arguments = [
        "perf",
        &server.address,
        "--json",
        "--verify",
        "--service",
        service,
        "--op",
        op,
        "--duration",
        "2s",
    ];
    let client = Client::start(&place, &arguments);
    let begun = server.next_event();
    assert_eq!(begun["event"], "client", "{begun}");
    // Not a guess at how long something takes: the point is to strike in the middle.
    std::thread::sleep(UNDISTURBED);
    other.process.kill();
    std::thread::sleep(UNDISTURBED);
    let in_the_middle = client.process.is_running();

    let found = client.json();
    assert!(in_the_middle, "the other died too late");
    let run = &found["runs"][0];
    assert!(number(run, "messages") > 0, "{run}");
    if service == "rc" {
        assert_eq!(run["lost"], 0, "{run}");
    } else {
        // Some die with the other, or where inboxes overflow; but messages arrived to the end.
        let seconds = run["seconds"].as_f64().expect("a number");
        assert!(seconds > 3.0 * UNDISTURBED.as_secs_f64(), "{run}");
    }
    found
}

/// A stopped process keeps its socket, and the kernel goes on giving it what it believes to be for it. That must not be
/// what is for others: a remote transfer to a second process goes on, and a third can be connected to.
#[test]
fn a_stopped_process_is_in_nobodys_way() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let left = Place::here().in_namespace(&cable.left);
    let right = Place::here().in_namespace(&cable.right);
    // Other programs may want the processors as well: how long is long, a server that is alone tells.
    let alone = Server::start(&right, "perf", "10.77.0.2:0", &[]);
    let usual = (0..3).map(|_| transfer(&left, &alone)).max().expect("three");
    drop(alone);
    for stopped_first in [true, false] {
        let stopped = stopped_first.then(|| stopped_server(&right));
        let server = Server::start(&right, "perf", "10.77.0.2:0", &[]);
        let stopped = stopped.unwrap_or_else(|| stopped_server(&right));
        for _ in 0..5 {
            let took = transfer(&left, &server);
            assert!(
                took < 3 * usual + Duration::from_secs(1),
                "it took {took:?} instead of {usual:?}"
            );
        }
        stopped.process.signal("CONT");
    }
}

/// How long a client takes for a transfer to a server.
fn transfer(client: &Place, server: &Server) -> Duration {
    let arguments = [
        "perf",
        &server.address,
        "--json",
        "--verify",
        "--op",
        "send",
        "--iterations",
        "500",
    ];
    let begun = Stopwatch::new();
    let found = support::run(client, &arguments).json();
    assert_eq!(found["runs"][0]["messages"], 500, "{found}");
    begun.elapsed()
}

/// A server that listens, and then is stopped.
fn stopped_server(place: &Place) -> Server {
    let server = Server::start(place, "ping", "10.77.0.2:0", &[]);
    server.process.signal("STOP");
    server
}
