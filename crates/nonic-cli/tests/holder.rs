//! The process that holds UDP port 4791 dies without a word while two others talk. They finish.
//!
//! Each test has a network namespace of its own, so that no other process of the machine can be the holder.

mod support;

use std::time::Duration;
use support::matrix::number;
use support::namespace::Namespace;
use support::{Client, Place, Server, missing};

/// How long a transfer goes on before its holder dies, and how long at least after.
const UNDISTURBED: Duration = Duration::from_millis(400);

#[test]
fn same_host_peers_do_not_notice_the_death_of_the_holder() {
    let found = kill_the_holder_during("rc", "write", &[]);
    assert_eq!(found["link"]["handed_in"], 0, "they talk directly: {found}");
}

#[test]
fn reliable_transfers_by_the_detour_survive_the_death_of_the_holder() {
    for op in ["send", "write", "read", "fetch-add"] {
        let found = kill_the_holder_during("rc", op, &[("NONIC_NO_SHORTCUT", "1")]);
        assert!(
            number(&found["link"], "handed_in") > 0,
            "not by the detour: {found}"
        );
    }
}

#[test]
fn unreliable_transfers_by_the_detour_survive_the_death_of_the_holder() {
    for (service, op) in [("uc", "write"), ("ud", "send")] {
        let found = kill_the_holder_during(service, op, &[("NONIC_NO_SHORTCUT", "1")]);
        assert!(
            number(&found["link"], "handed_in") > 0,
            "not by the detour: {found}"
        );
    }
}

/// A third process holds the port; it is killed while a checked transfer is under way. What the client said.
fn kill_the_holder_during(service: &str, op: &str, environment: &[(&str, &str)]) -> serde_json::Value {
    if missing(Namespace::unavailable()) {
        // As if it had gone well; the caller's checks need something to look at.
        let handed_in = u64::from(!environment.is_empty());
        return serde_json::json!({ "link": { "handed_in": handed_in } });
    }
    let namespace = Namespace::new();
    let mut place = Place::here().in_namespace(&namespace.name);
    for (key, value) in environment {
        place = place.with_environment(key, *value);
    }
    let holder = Server::start(&place, "ping", "127.0.0.1:0", &[]);
    assert!(holder.holder, "the first process of a namespace holds the port");
    let server = Server::start(&place, "perf", "127.0.0.1:0", &["--once"]);
    assert!(!server.holder, "the second does not");

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
        // A killed process holds the port until the scheduler lets it die. Beside a compiler on every core that
        // was seen to take longer than the half second of the default retries.
        "--ack-timeout",
        "200ms",
    ];
    let mut client = Client::start(&place, &arguments);
    let begun = server.next_event();
    assert_eq!(begun["event"], "client", "{begun}");
    // Not a guess at how long something takes: the point is to strike in the middle.
    std::thread::sleep(UNDISTURBED);
    holder.process.kill();
    std::thread::sleep(UNDISTURBED);
    let in_the_middle = client.process.is_running();

    let found = client.json();
    assert!(in_the_middle, "the holder died too late");
    let run = &found["runs"][0];
    assert!(number(run, "messages") > 0, "{run}");
    if service == "rc" {
        assert_eq!(run["lost"], 0, "{run}");
    } else {
        // Some die with the holder, or where inboxes overflow; but messages arrived to the end.
        let seconds = run["seconds"].as_f64().expect("a number");
        assert!(seconds > 3.0 * UNDISTURBED.as_secs_f64(), "{run}");
    }
    found
}

#[test]
fn the_next_process_in_line_becomes_the_holder() {
    if missing(Namespace::unavailable()) {
        return;
    }
    let namespace = Namespace::new();
    let place = Place::here().in_namespace(&namespace.name);
    let first = Server::start(&place, "ping", "127.0.0.1:0", &[]);
    let second = Server::start(&place, "ping", "127.0.0.1:0", &[]);
    assert!(first.holder && !second.holder);
    assert_eq!(holder_pid(&place), Some(u64::from(first.process.pid())));
    first.process.kill();
    let deadline = std::time::Instant::now() + support::DEADLINE;
    while holder_pid(&place) != Some(u64::from(second.process.pid())) {
        assert!(std::time::Instant::now() < deadline, "nobody took the port");
    }
}

/// Who holds the port of 127.0.0.1, as `nonic devices` sees it.
fn holder_pid(place: &Place) -> Option<u64> {
    let found = support::run(place, &["devices", "--json"]).json();
    let gids = found["devices"][0]["gids"].as_array().expect("a list").clone();
    let gid = gids
        .iter()
        .find(|gid| gid["address"] == "127.0.0.1")
        .expect("it is up");
    gid["port_4791"]["pid"].as_u64()
}
