//! What people see of running processes: as wide as their terminal, queue pairs as usually written, plurals, and what
//! scripts get.

use crate::support::{Outcome, Place, run};
use nonic::{Device, QueuePair, Rc};

/// A device of this process with two connected queue pairs.
fn connected() -> (Device, [QueuePair<Rc>; 2]) {
    let device = Device::open("roce_lo").expect("loopback");
    let (domain, queue) = (device.domain(), device.completion_queue(16).expect("a queue"));
    let pair = || domain.queue_pair::<Rc>(&queue).expect("a queue pair");
    let (left, right) = (pair(), pair());
    let ends = [left.endpoint(), right.endpoint()];
    let left = left.connect(&ends[1]).expect("connected");
    let right = right.connect(&ends[0]).expect("connected");
    (device, [left, right])
}

fn of_this_process(arguments: &[&str]) -> Outcome {
    let pid = std::process::id().to_string();
    let outcome = run(&Place::here(), &[arguments, &["--pid", &pid]].concat());
    assert!(outcome.success, "{arguments:?}: {}", outcome.stderr);
    outcome
}

#[test]
fn queue_pairs_fit_the_terminal_and_have_hexadecimal_numbers() {
    let _own = connected();
    let told = of_this_process(&["show", "qp", "--json"]).json();
    let qpn = told["qp"][0]["qpn"].as_u64().expect("a number for scripts");
    let written = format!(" {qpn:#08x} ");
    let narrow = of_this_process(&["show", "qp", "--width", "80"]).stdout;
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    for expected in [
        "PID",
        "QPN",
        "STATE",
        "PEER",
        "TX BYTES",
        "no room for",
        "EXPECTED",
        &written,
    ] {
        assert!(narrow.contains(expected), "{expected} in {narrow}");
    }
    for whole in [&["show", "qp"][..], &["show", "qp", "--width", "0"]] {
        let whole = of_this_process(whole).stdout;
        assert!(
            !whole.contains("no room") && whole.contains("EXPECTED"),
            "{whole}"
        );
    }
    assert!(of_this_process(&["show", "connection", "--width", "80"]).success);
}

#[test]
fn plurals_are_as_good_as_singulars() {
    let _own = connected();
    for (many, kind) in [
        ("qps", "qp"),
        ("mrs", "mr"),
        ("cqs", "cq"),
        ("connections", "connection"),
        ("listeners", "listener"),
        ("devices", "device"),
    ] {
        let told = of_this_process(&["show", many, "--json"]).json();
        assert!(told[kind].is_array(), "{many}: {told}");
    }
}

#[test]
fn scripts_get_what_the_screen_shows_as_json() {
    let _own = connected();
    let told = of_this_process(&["top", "--json", "--count", "2", "--interval", "10ms"]).stdout;
    let objects: Vec<serde_json::Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object on each line"))
        .collect();
    assert_eq!(objects.len(), 2, "{told}");
    for object in &objects {
        assert_eq!(object["qps"].as_array().map(Vec::len), Some(2), "{object}");
        assert!(
            object["devices"][0]["tx_bytes_per_second"].is_number(),
            "{object}"
        );
        assert!(object["qps"][0]["qpn"].is_u64(), "{object}");
    }
    let refused = run(&Place::here(), &["--json", "metrics"]);
    assert!(
        !refused.success && refused.stdout.is_empty() && refused.stderr.contains("nonic show device --json"),
        "{}",
        refused.stderr
    );
}

#[test]
fn hints_name_what_helps() {
    // A setting that is wrong is not cured by another address.
    let place = Place::here().with_environment("NONIC_LOG", "verbose");
    let outcome = run(&place, &["ping", "--loopback"]);
    assert!(
        !outcome.success && outcome.stderr.contains("NONIC_LOG"),
        "{}",
        outcome.stderr
    );
    assert!(!outcome.stderr.contains("--bind"), "{}", outcome.stderr);
    // What a hint says to type is a whole command.
    for line in run(&Place::here(), &["explain"]).stdout.lines() {
        assert!(!line.contains("`nonic show`"), "{line}");
    }
    let told = run(&Place::here(), &["explain", "EADDRINUSE"]).stdout;
    assert!(told.contains("`nonic show connection` lists listeners"), "{told}");
}
