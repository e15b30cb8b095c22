//! Every service with every operation it has, between two places.

use super::{Client, Place, Server};
use serde_json::Value;

/// All that is legal.
pub(crate) const COMBINATIONS: [(&str, &str); 8] = [
    ("rc", "send"),
    ("rc", "write"),
    ("rc", "read"),
    ("rc", "fetch-add"),
    ("rc", "compare-swap"),
    ("uc", "send"),
    ("uc", "write"),
    ("ud", "send"),
];

/// Pings and measures everything between a client's place and a server, with every byte checked.
pub(crate) fn everything(client: &Place, server: &Server) {
    for service in ["rc", "uc", "ud"] {
        ping(client, &server.address, service);
    }
    for (service, op) in COMBINATIONS {
        let size = match op {
            "fetch-add" | "compare-swap" => "8",
            // More than a packet at any MTU, and no multiple of anything.
            _ if service != "ud" => "10001",
            _ => "999",
        };
        bandwidth(client, &server.address, service, op, size);
        latency(client, &server.address, service, op, size);
    }
}

/// A few pings of every operation of a service.
pub(crate) fn ping(client: &Place, server: &str, service: &str) {
    let pings = [
        "ping",
        server,
        "--json",
        "--count",
        "3",
        "--interval",
        "1ms",
        "--service",
        service,
    ];
    let found = Client::start(client, &pings).json();
    let runs = found["runs"].as_array().expect("a list").clone();
    let expected = match service {
        "rc" => vec!["send", "write", "read"],
        "uc" => vec!["send", "write"],
        _ => vec!["send"],
    };
    let ops: Vec<&str> = runs.iter().filter_map(|run| run["op"].as_str()).collect();
    assert_eq!(ops, expected, "{found}");
    for run in &runs {
        assert_eq!(run["sent"], 3, "{run}");
        assert!(number(run, "received") >= 1, "{run}");
        assert_eq!(number(run, "received") + number(run, "lost"), 3, "{run}");
        if service == "rc" {
            assert_eq!(run["received"], 3, "{run}");
        }
    }
}

/// Checked messages with the queue kept full. What a reliable service was given arrives, all of it.
pub(crate) fn bandwidth(client: &Place, server: &str, service: &str, op: &str, size: &str) {
    let more = ["--test", "bw", "--iterations", "300", "--queue-depth", "16"];
    let run = perf(client, server, service, op, size, &more);
    assert_eq!(run["sent"], 300, "{run}");
    assert_eq!(number(&run, "messages") + number(&run, "lost"), 300, "{run}");
    assert!(number(&run, "messages") > 0, "{run}");
    if service == "rc" {
        assert_eq!(run["lost"], 0, "{run}");
    }
    assert_eq!(
        number(&run, "bytes"),
        number(&run, "messages") * number(&run, "size"),
        "{run}"
    );
}

/// Checked messages one at a time.
pub(crate) fn latency(client: &Place, server: &str, service: &str, op: &str, size: &str) {
    let more = ["--test", "lat", "--iterations", "100"];
    let run = perf(client, server, service, op, size, &more);
    assert_eq!(number(&run, "samples") + number(&run, "lost"), 100, "{run}");
    assert!(number(&run, "samples") > 0, "{run}");
    let whole = matches!(op, "read" | "fetch-add" | "compare-swap");
    assert_eq!(run["half_round_trip"], !whole, "{run}");
    let times = &run["latency_ns"];
    // Of percentiles, those that so many samples can give.
    let order = ["min", "p50", "p90", "p99", "p99_9", "max"].map(|name| times[name].as_u64());
    let order: Vec<u64> = order.into_iter().flatten().collect();
    assert!(order.is_sorted() && order[0] > 0, "{run}");
    assert_eq!((times["p99_9"].as_u64(), order.len() >= 2), (None, true), "{run}");
}

/// The one run of a `nonic perf` that must succeed.
pub(crate) fn perf(
    client: &Place,
    server: &str,
    service: &str,
    op: &str,
    size: &str,
    more: &[&str],
) -> Value {
    let mut arguments = vec!["perf", server, "--json", "--verify"];
    arguments.extend(["--service", service, "--op", op, "--size", size]);
    arguments.extend(more);
    let found = Client::start(client, &arguments).json();
    let run = found["runs"][0].clone();
    assert_eq!(found["runs"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(run["verified"], true, "{run}");
    assert_eq!(
        (run["service"].as_str(), run["op"].as_str()),
        (Some(service), Some(op))
    );
    run
}

/// A count.
pub(crate) fn number(value: &Value, name: &str) -> u64 {
    value[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {value}"))
}
