//! `nonic ps`, `show`, `metrics` and `top` on real processes: this test's own, and servers that are stopped or of another user.

use crate::support;
use crate::support::{Outcome, Place, Server, has_program, is_root, missing, readable_copy, run};
use nonic::{Device, Endpoint, Lease, QueuePair, Rc};
use serde_json::Value;
use std::time::{Duration, Instant};

/// A process of this test's own, with two connected queue pairs that have talked.
struct Own {
    _device: Device,
    _pairs: [QueuePair<Rc>; 2],
    _lease: Lease,
    ends: [Endpoint; 2],
}

impl Own {
    fn new() -> Self {
        let device = Device::open("roce_lo").expect("loopback");
        let (domain, queue) = (device.domain(), device.completion_queue(77).expect("a queue"));
        let pair = || domain.queue_pair::<Rc>(&queue).expect("a queue pair");
        let (left, right) = (pair(), pair());
        let ends = [left.endpoint(), right.endpoint()];
        let mut left = left.connect(&ends[1]).expect("connected");
        let mut right = right.connect(&ends[0]).expect("connected");
        right
            .rq
            .recv(1, domain.lease(64).expect("memory"))
            .expect("posted");
        left.sq
            .send(2, domain.lease_from(b"look inside").expect("memory"))
            .expect("posted");
        for _ in 0..2 {
            let done = queue.wait(Some(support::DEADLINE)).expect("no overflow");
            done.expect("in time").result.expect("it worked");
        }
        Own {
            _device: device,
            _pairs: [left, right],
            _lease: domain.lease(4096).expect("memory"),
            ends,
        }
    }
}

fn own_pid() -> String {
    std::process::id().to_string()
}

fn show(what: &str, more: &[&str]) -> Outcome {
    let pid = own_pid();
    let mut arguments = vec!["show", what, "--pid", &pid];
    arguments.extend(more);
    let outcome = run(&Place::here(), &arguments);
    assert!(outcome.success, "{arguments:?}: {}", outcome.stderr);
    outcome
}

fn list(what: &str, kind: &str) -> Vec<Value> {
    let document = show(what, &["--json"]).json();
    document[kind].as_array().expect("a list").clone()
}

#[test]
fn queue_pairs_are_shown_with_their_peers_and_what_went_over_them() {
    let own = Own::new();
    let pairs = list("qp", "qp");
    assert_eq!(pairs.len(), 2, "{pairs:?}");
    let find = |end: &Endpoint| {
        let qpn = u64::from(end.qpn.value());
        let mut found = pairs.iter().filter(|pair| pair["qpn"] == qpn);
        found.next().unwrap_or_else(|| panic!("{qpn}: {pairs:?}"))
    };
    let (left, right) = (find(&own.ends[0]), find(&own.ends[1]));
    for pair in [left, right] {
        assert_eq!(pair["pid"], std::process::id());
        assert_eq!(
            (&pair["device"], &pair["state"], &pair["service"]),
            (&"roce_lo".into(), &"RTS".into(), &"rc".into())
        );
        // The one that only receives answers where the records are.
        let packets = ["tx_packets", "rx_packets"].map(|name| pair[name].as_u64().unwrap_or(0));
        assert!(packets.iter().sum::<u64>() > 0, "{pair}");
        assert!(
            ["udp", "lane", "direct"].contains(&pair["road"].as_str().expect("a word")),
            "{pair}"
        );
    }
    assert_eq!(left["peer_qpn"], right["qpn"]);
    assert_eq!(left["next_psn"], right["expected_psn"]);
    assert_eq!(left["next_psn"], left["una_psn"], "everything is acknowledged");
    let table = show("qp", &[]).stdout;
    assert!(table.contains("PEER QPN") && table.contains("RTS"), "{table}");
}

#[test]
fn memory_queues_and_devices_are_shown_and_keys_only_if_asked_for() {
    let _own = Own::new();
    let regions = list("mr", "mr");
    assert!(
        !regions.is_empty() && regions.iter().all(|region| region["key"].is_null()),
        "{regions:?}"
    );
    assert!(regions[0]["length"].as_u64() > Some(0));
    let with_keys = show("mr", &["--json", "--keys"]).json();
    assert!(with_keys["mr"][0]["key"].as_u64() > Some(0), "{with_keys}");
    assert!(show("mr", &["--keys"]).stdout.contains("KEY"));
    let queues = list("cq", "cq");
    assert!(queues[0]["capacity"].as_u64() >= Some(77), "{queues:?}");
    let devices = list("device", "device");
    assert_eq!(
        (&devices[0]["device"], &devices[0]["queue_pairs"]),
        (&"roce_lo".into(), &2.into())
    );
    let ps = run(&Place::here(), &["ps"]).stdout;
    assert!(
        ps.lines()
            .any(|line| line.trim_start().starts_with(&own_pid()) && line.contains("roce_lo")),
        "{ps}"
    );
}

#[test]
fn queue_pairs_that_share_a_receive_queue_are_shown_with_it() {
    let device = Device::open("roce_lo").expect("loopback");
    let (domain, queue) = (device.domain(), device.completion_queue(8).expect("a queue"));
    let shared = domain.shared_receive_queue(&queue, 8);
    let build = |sharing: bool| {
        let builder = domain.queue_pair_builder::<Rc>(&queue);
        let builder = if sharing {
            builder.shared_receives(&shared)
        } else {
            builder
        };
        builder.build().expect("a queue pair")
    };
    let pairs = [build(true), build(true), build(false)];
    let shown = list("qp", "qp");
    let srqs = pairs.each_ref().map(|pair| {
        let qpn = u64::from(pair.endpoint().qpn.value());
        let found = shown.iter().find(|pair| pair["qpn"] == qpn);
        found.unwrap_or_else(|| panic!("{qpn}: {shown:?}"))["srq"].clone()
    });
    assert!(srqs[0].is_u64() && srqs[0] == srqs[1], "{srqs:?}");
    assert!(srqs[2].is_null(), "{srqs:?}");
}

#[test]
fn listeners_and_connections_are_shown_on_both_wires() {
    for wire in ["roce", "iwarp"] {
        let place = Place::here().with_environment("NONIC_WIRE", wire);
        let server = Server::start(&place, "ping", "127.0.0.1:0", &[]);
        let (_, port) = server.address.rsplit_once(':').expect("an address and a port");
        let pid = server.process.pid().to_string();
        let shown = run(&place, &["show", "connection", "--json", "--pid", &pid]).json();
        let service = format!("tcp:{port}");
        let listeners = shown["listener"].as_array().expect("a list");
        assert!(
            listeners.iter().any(|listener| listener["service"] == service),
            "{shown}"
        );
        let client = ["ping", &server.address, "--count", "50", "--interval", "100ms"];
        let _client = support::Client::start(&place, &client);
        let deadline = Instant::now() + support::DEADLINE;
        loop {
            let shown = run(&place, &["show", "connection", "--json", "--pid", &pid]).json();
            let connections = shown["connection"].as_array().expect("a list");
            if connections
                .iter()
                .any(|one| one["state"] == "Established" && one["role"] == "passive")
            {
                break;
            }
            assert!(Instant::now() < deadline, "{wire}: {shown}");
        }
    }
}

#[test]
fn metrics_are_the_counters_of_the_device() {
    let _own = Own::new();
    let outcome = run(&Place::here(), &["metrics", "--pid", &own_pid()]);
    assert!(outcome.success, "{}", outcome.stderr);
    let sample = |name: &str| {
        let line = outcome
            .stdout
            .lines()
            .find(|line| line.starts_with(&format!("{name}{{")));
        let line = line.unwrap_or_else(|| panic!("{name}: {}", outcome.stdout));
        assert!(line.contains(&format!("pid=\"{}\"", own_pid())), "{line}");
        let value = line.rsplit(' ').next().expect("a value");
        value.parse::<u64>().expect("a number")
    };
    assert!(sample("nonic_tx_packets_total") > 0);
    assert_eq!(sample("nonic_queue_pairs"), 2);
    let counters = list("device", "counters");
    assert_eq!(counters[0]["completions"], sample("nonic_completions_total"));
}

#[test]
fn a_stopped_process_holds_nobody_up_and_is_named() {
    let here = Place::here();
    let (stopped, running) = (
        Server::start(&here, "ping", "127.0.0.1:0", &[]),
        Server::start(&here, "ping", "127.0.0.1:0", &[]),
    );
    stopped.process.signal("STOP");
    let began = Instant::now();
    let listed = run(&here, &["ps", "--json"]).json();
    let took = began.elapsed();
    stopped.process.signal("CONT");
    let has = |list: &Value, pid: u32| {
        let list = list.as_array().expect("a list");
        list.iter().any(|entry| entry["pid"] == pid)
    };
    assert!(has(&listed["silent"], stopped.process.pid()), "{listed}");
    assert!(has(&listed["devices"], running.process.pid()), "{listed}");
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn processes_of_another_user_are_counted_and_tell_nothing_but_to_root() {
    if missing(unavailable()) {
        return;
    }
    let (_directory, program) = readable_copy();
    let nobody = Place::here().run_by_nobody(program);
    let own = Server::start(&Place::here(), "ping", "127.0.0.1:0", &[]);
    let pid = own.process.pid().to_string();
    let refused = run(&nobody, &["show", "qp", "--pid", &pid]);
    assert!(
        !refused.success && refused.stderr.contains("another user"),
        "{}",
        refused.stderr
    );
    let listed = run(&nobody, &["ps", "--json"]).json();
    assert!(listed["other_users"].as_u64() > Some(0), "{listed}");
    let server = Server::start(&nobody, "ping", "127.0.0.1:0", &[]);
    let pid = server.process.pid().to_string();
    // Its own user gets an answer, and so does root, which could look into the process without us.
    for place in [&nobody, &Place::here()] {
        let itself = run(place, &["show", "device", "--json", "--pid", &pid]).json();
        let device = &itself["device"][0];
        assert_eq!(
            (&device["device"], &device["uid"]),
            (&"roce_lo".into(), &65534.into())
        );
    }
    let ps = run(&Place::here(), &["ps"]).stdout;
    let is_it = |line: &&str| line.trim_start().starts_with(&pid);
    assert!(
        ps.lines().find(is_it).is_some_and(|line| line.contains("nobody")),
        "{ps}"
    );
}

fn unavailable() -> Option<String> {
    if !is_root() {
        return Some("only root can become the user nobody".to_owned());
    }
    (!has_program("setpriv", "--version")).then(|| "util-linux (`setpriv`) is not installed".to_owned())
}

#[test]
fn without_a_process_or_a_terminal_it_says_what_to_do() {
    let nobody = run(&Place::here(), &["show", "qp", "--pid", "1"]);
    assert!(
        !nobody.success && nobody.stderr.contains("nonic ps"),
        "{}",
        nobody.stderr
    );
    let top = run(&Place::here(), &["top"]);
    assert!(
        !top.success && top.stderr.contains("nonic show"),
        "{}",
        top.stderr
    );
}
