//! The command line itself: what it prints, how it fails, how it ends.

use crate::support;
use crate::support::{Place, Process, Server, run};
use std::process::Stdio;

#[test]
fn devices_are_listed_for_people_and_for_scripts() {
    let outcome = run(&Place::here(), &["devices", "-v"]);
    assert!(outcome.success, "{}", outcome.stderr);
    for expected in ["DEVICE", "roce_lo", "127.0.0.1", "max_sge"] {
        assert!(outcome.stdout.contains(expected), "{}", outcome.stdout);
    }
    let found = run(&Place::here(), &["--json", "devices"]).json();
    let devices = found["devices"].as_array().expect("a list");
    let loopback = devices
        .iter()
        .find(|device| device["loopback"] == true)
        .expect("loopback");
    assert_eq!(loopback["device"], "roce_lo");
    assert_eq!(loopback["state"], "up");
    assert_eq!(loopback["path_mtu"], 4096);
    let gid = &loopback["gids"][0];
    assert_eq!(
        (gid["index"].as_u64(), gid["gid"].as_str()),
        (Some(0), Some("::ffff:127.0.0.1"))
    );
    assert!(gid["port_4791"]["state"].is_string(), "{gid}");
    assert!(found["limits"]["max_wr"].is_u64(), "{found}");
}

#[test]
fn statuses_events_reasons_errnos_and_syndromes_are_explained() {
    let explain = |arguments: &[&str]| {
        let outcome = run(&Place::here(), &[&["explain"], arguments].concat());
        assert!(outcome.success, "{}", outcome.stderr);
        outcome.stdout
    };
    let all = explain(&[]);
    for expected in [
        "IBV_WC_REM_ACCESS_ERR",
        "IBV_EVENT_CQ_ERR",
        "IB_CM_REJ_STALE_CONN",
        "ibv_post_send: EINVAL",
    ] {
        assert!(all.contains(expected), "{all}");
    }
    let status = explain(&["IBV_WC_RNR_RETRY_EXC_ERR"]);
    assert!(
        status.contains("(status 13)") && status.contains("likely:") && status.contains("try:"),
        "{status}"
    );
    assert_eq!(explain(&["rnr_retry"]), status);
    let syndrome = explain(&["--syndrome", "0x62"]);
    assert!(
        syndrome.contains("syndrome 0x62") && syndrome.contains("IBV_WC_REM_ACCESS_ERR"),
        "{syndrome}"
    );
    let found = run(&Place::here(), &["--json", "explain", "12"]).json();
    assert_eq!(found[0]["name"], "IBV_WC_RETRY_EXC_ERR", "{found}");
    let event = explain(&["RDMA_CM_EVENT_UNREACHABLE"]);
    assert!(
        event.contains("(cm event 7)") && event.contains("UDP port 4791"),
        "{event}"
    );
    assert_eq!(explain(&["unreachable"]), event);
    assert_eq!(explain(&["7"]).matches("RDMA_CM_EVENT_UNREACHABLE").count(), 1);
    for (typo, meant) in [
        ("RDMA_CM_EVENT_UNREACHEABLE", "RDMA_CM_EVENT_UNREACHABLE"),
        ("ibv_wc_rem_acces_err", "IBV_WC_REM_ACCESS_ERR"),
        ("port_eror", "IBV_EVENT_PORT_ERR"),
    ] {
        let unknown = run(&Place::here(), &["explain", typo]);
        let expected = format!("did you mean {meant}?");
        assert!(
            !unknown.success && unknown.stderr.contains(&expected),
            "{}",
            unknown.stderr
        );
    }
    let unknown = run(&Place::here(), &["explain", "nonsense"]);
    assert!(!unknown.stderr.contains("did you mean"), "{}", unknown.stderr);
    assert!(
        !unknown.success && unknown.stderr.contains("nonic explain"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn the_user_of_the_port_is_named() {
    let here = Place::here();
    let _server = Server::start(&here, "ping", "127.0.0.1:0", &[]);
    let found = run(&here, &["devices", "--json"]).json();
    let port = &found["devices"][0]["gids"][0]["port_4791"];
    assert_eq!(port["state"], "shared", "{found}");
    assert!(port["uid"].is_u64(), "{found}");
}

#[test]
fn failures_say_what_to_do_and_have_an_exit_code() {
    let cases: [(&[&str], &str); 9] = [
        (&["perf", "127.0.0.1:1"], "start the server there"),
        (
            &["ping", "--loopback", "--device", "roce_nothing"],
            "there are: roce_lo",
        ),
        (
            &["perf", "--loopback", "--service", "uc", "--op", "read"],
            "use --service rc",
        ),
        (
            &["perf", "--loopback", "--service", "ud", "--op", "write"],
            "--op send",
        ),
        (
            &["perf", "--loopback", "--service", "ud", "--size", "1M"],
            "at most the path MTU",
        ),
        (&["perf", "--loopback", "--size", "0"], "--size 1 or more"),
        (
            &["perf", "--loopback", "--op", "fetch-add", "--size", "16"],
            "leave --size away",
        ),
        (
            &["perf", "--server", "--bind", "192.0.2.77:0"],
            "choose another with --bind",
        ),
        (
            &["sim", "--seed", "1", "--pcap", "/nowhere/x"],
            "cannot write /nowhere/x",
        ),
    ];
    for (arguments, expected) in cases {
        let outcome = run(&Place::here(), arguments);
        assert!(!outcome.success, "{arguments:?} succeeded");
        assert!(
            outcome.stderr.contains(expected),
            "{arguments:?}: {}",
            outcome.stderr
        );
        assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    }
}

#[test]
fn nonsense_is_refused_before_anything_happens() {
    let cases: [&[&str]; 9] = [
        &["sim", "--draw"],
        &["perf", "--loopback", "--server"],
        &["perf", "--loopback", "--size", "x"],
        &["perf", "--loopback", "--mtu", "1000"],
        &["ping", "--loopback", "--interval", "soon"],
        &["sim", "--seed", "1", "--seeds", "2"],
        &["sim", "--network", "--seed", "1"],
        &["sim", "--quick"],
        &["unknown"],
    ];
    for arguments in cases {
        let outcome = run(&Place::here(), arguments);
        assert!(!outcome.success, "{arguments:?} succeeded");
        assert!(
            outcome.stderr.contains("Usage") || outcome.stderr.contains("--help"),
            "{}",
            outcome.stderr
        );
    }
}

#[test]
fn a_stranger_at_the_servers_door_is_told_and_others_are_served() {
    let here = Place::here();
    let server = Server::start(&here, "perf", "127.0.0.1:0", &[]);
    let address = server.address.parse().expect("an address");
    let device = nonic::Device::open("roce_lo").expect("loopback");
    let (domain, queue) = (device.domain(), device.completion_queue(4).expect("a queue"));
    let connect = |words: &[u8]| {
        let builder = domain.queue_pair_builder::<nonic::Rc>(&queue);
        nonic::connect(builder, address, words).expect("asked").wait()
    };
    // A program that is not `nonic`.
    let Err(nonic::ConnectError::Rejected { private_data, .. }) = connect(b"rdma-ping-0") else {
        panic!("it is no nonic");
    };
    assert!(private_data.starts_with(b"this port is for"), "{private_data:?}");
    // One that knows the greeting and then talks nonsense is told as well, and hung up on.
    let mut nonsense = connect(b"nonic conversation").expect("welcome");
    let room = domain.lease(4096).expect("memory");
    nonsense.pair.rq.recv(1, room).expect("posted");
    let words = domain.lease_from(b"GET / HTTP/1.1").expect("memory");
    nonsense.pair.sq.send(2, words).expect("posted");
    let mut told = false;
    for _ in 0..2 {
        let done = queue
            .wait(Some(support::DEADLINE))
            .expect("no overflow")
            .expect("in time");
        let length = done.result.expect("success");
        told |= done.id == 1 && done.buffers[0][..length].starts_with(b"error text=");
    }
    assert!(told);
    assert!(nonsense.wait_disconnected(Some(support::DEADLINE)));
    support::matrix::ping(&here, &server.address, "rc");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let mut command =
        Place::here().command(&["ping", "--loopback", "--count", "1000000", "--interval", "1ms"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut stderr = child.stderr.take().expect("asked for");
    // Read one line and hang up, as `head -1` does.
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("asked for"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).expect("a line");
    drop(stdout);
    let mut process = Process::from(child);
    assert!(process.wait(std::time::Instant::now() + support::DEADLINE));
    let mut complaint = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut complaint).expect("text");
    assert_eq!(complaint, "");
}

#[test]
fn simulated_seeds_are_repeatable_and_counted() {
    let here = Place::here();
    let first = run(&here, &["sim", "--seed", "7", "--json"]);
    let again = run(&here, &["sim", "--seed", "7", "--json"]);
    assert!(first.success, "{}", first.stderr);
    assert_eq!(first.json()["trace_hash"], again.json()["trace_hash"]);
    let many = run(
        &here,
        &[
            "sim",
            "--seeds",
            "40",
            "--first",
            "100",
            "--threads",
            "2",
            "--json",
        ],
    );
    assert!(many.success, "{}", many.stderr);
    let found = many.json();
    assert_eq!(found["seeds"], 40);
    assert!(
        found["completions"].as_u64().is_some_and(|count| count > 0),
        "{found}"
    );
    assert_eq!(found["failures"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_simulated_network_is_judged_and_reported() {
    let here = Place::here();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("text");
    let arguments = [
        "sim",
        "--network",
        "--quick",
        "--scenario",
        "devices",
        "--report",
        path,
        "--json",
    ];
    let outcome = run(&here, &arguments);
    assert!(outcome.success, "{}", outcome.stderr);
    let value: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let scenario = &value["scenarios"][0];
    assert_eq!(
        (&scenario["name"], &scenario["holds"]),
        (&"devices".into(), &true.into())
    );
    assert!(
        scenario["runs"][0]["goodput"]
            .as_f64()
            .is_some_and(|goodput| goodput > 0.5)
    );
    for file in ["networks-simulated.md", "plots/network-devices.svg"] {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
    let unknown = run(&here, &["sim", "--network", "--scenario", "nothing"]);
    assert!(
        !unknown.success && unknown.stderr.contains("all-to-all"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn a_simulated_seed_can_be_captured() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("seed.pcapng");
    let outcome = run(
        &Place::here(),
        &["sim", "--seed", "7", "--pcap", path.to_str().expect("text")],
    );
    assert!(outcome.success, "{}", outcome.stderr);
    let bytes = std::fs::read(&path).expect("it was written");
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a pcapng section header");
    assert!(bytes.len() > 1000);
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        let outcome = run(&Place::here(), &["completions", shell]);
        assert!(outcome.success && outcome.stdout.contains("perf"), "{shell}");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("man");
    let outcome = run(&Place::here(), &["man", "--dir", path.to_str().expect("text")]);
    assert!(outcome.success, "{}", outcome.stderr);
    assert!(path.join("nonic-perf.1").is_file());
}

#[test]
fn without_a_host_all_ways_are_named() {
    for command in ["ping", "perf"] {
        let outcome = run(&Place::here(), &[command]);
        assert!(!outcome.success);
        for way in ["HOST", "--loopback", "--server"] {
            assert!(
                outcome.stderr.contains(&format!("nonic {command} {way}")),
                "{}",
                outcome.stderr
            );
        }
        let outcome = run(&Place::here(), &[command, "127.0.0.1:1"]);
        let advice = format!("`nonic {command} --server`");
        assert!(outcome.stderr.contains(&advice), "{}", outcome.stderr);
    }
}
