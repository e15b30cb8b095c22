//! `nonic draw` and `nonic sim --draw`: a capture and a seed as ladders, on the terminal and as SVG.

use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Output};

fn nonic(arguments: &[&str], environment: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nonic"));
    command.args(arguments);
    for (name, value) in environment {
        command.env(name, value);
    }
    command.output().expect("nonic runs")
}

fn text(output: &Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

const PING: [&str; 8] = [
    "ping",
    "--loopback",
    "--op",
    "send",
    "--count",
    "2",
    "--interval",
    "1ms",
];

#[test]
fn a_capture_of_our_own_is_drawn_on_eighty_columns_and_as_svg() {
    let folder = tempfile::tempdir().expect("a folder");
    let (capture, picture) = (folder.path().join("ping.pcapng"), folder.path().join("ping.svg"));
    text(&nonic(&PING, &[("NONIC_PCAP", &capture)]));
    let path = capture.to_str().expect("text");
    let drawn = text(&nonic(&["draw", path], &[]));
    assert!(
        drawn.lines().skip(1).all(|line| line.chars().count() <= 80),
        "{drawn}"
    );
    for wanted in ["CM REQ", "CM REP", "SEND PSN", "ACK PSN", "CM DREQ", "├──", "──┤"] {
        assert!(drawn.contains(wanted), "{wanted} in {drawn}");
    }
    let told = text(&nonic(&["draw", path, "--json", "--limit", "0"], &[]));
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let events = told["events"].as_array().expect("events");
    // Both pings there and back, and no packet twice. Between two ends: what others on this host send to the port that all share
    // may be in the capture as well.
    let payloads: Vec<&Value> = events
        .iter()
        .filter(|event| event["what"].as_str().is_some_and(|what| what.ends_with(" 64 B")))
        .collect();
    assert!(payloads.len() >= 4, "{told}");
    let ends: HashSet<u64> = payloads
        .iter()
        .filter_map(|event| event["end"].as_u64())
        .collect();
    assert_eq!(ends.len(), 2, "{told}");
    let peer = events
        .iter()
        .find_map(|event| event["peer_qp"].as_u64())
        .expect("a queue pair");
    let one = text(&nonic(&["draw", path, "--qp", &peer.to_string()], &[]));
    assert!(one.lines().count() < drawn.lines().count());
    let svg = picture.to_str().expect("text");
    text(&nonic(&["draw", path, "--svg", svg, "--limit", "10"], &[]));
    let svg = std::fs::read_to_string(&picture).expect("it was written");
    assert!(svg.starts_with("<svg") && svg.contains("rows left out"));
}

#[test]
fn the_connection_over_which_two_sides_agree_is_left_out_unless_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    for wire in ["roce_lo", "iwarp_lo"] {
        let capture = folder.path().join(format!("{wire}.pcapng"));
        let arguments = [&PING[..], &["--device", wire]].concat();
        text(&nonic(&arguments, &[("NONIC_PCAP", &capture)]));
        let path = capture.to_str().expect("text");
        let rows = |more: &[&str]| {
            let drawn = text(&nonic(&[&["draw", path], more].concat(), &[]));
            let rows = drawn.lines().filter(|line| line.contains("──")).count();
            (drawn, rows)
        };
        let (drawn, few) = rows(&[]);
        let (everything, all) = rows(&["--all"]);
        // Connecting, two pings there and back with their acknowledgements, and disconnecting; what is sent twice on a busy machine is
        // among them.
        assert!(few < 30 && few < all, "{wire}: {few} of {all}\n{drawn}");
        assert!(
            drawn.contains("of the control connection are left out; --all shows them."),
            "{drawn}"
        );
        assert!(!everything.contains("control connection"), "{everything}");
        let told = text(&nonic(&["draw", path, "--json", "--limit", "0"], &[]));
        let told: Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!(told["events"].as_array().map(Vec::len), Some(few), "{told}");
    }
}

#[test]
fn queue_pairs_have_six_digits() {
    let folder = tempfile::tempdir().expect("a folder");
    let capture = folder.path().join("ping.pcapng");
    text(&nonic(&PING, &[("NONIC_PCAP", &capture)]));
    let drawn = text(&nonic(&["draw", capture.to_str().expect("text")], &[]));
    let numbers: Vec<&str> = drawn.split("QP 0x").skip(1).collect();
    assert!(!numbers.is_empty(), "{drawn}");
    for number in numbers {
        let digits = number.find(|letter: char| !letter.is_ascii_hexdigit());
        // A heading with several numbers may be cut where its column ends, and says so.
        let is_cut = digits.is_some_and(|end| number[end..].starts_with('…'));
        assert!(is_cut || digits.unwrap_or(number.len()) == 6, "{drawn}");
    }
}

#[test]
fn a_program_is_drawn_while_it_runs() {
    let program = env!("CARGO_BIN_EXE_nonic");
    let arguments = [&["draw", "--live", "--", program][..], &PING].concat();
    let drawn = text(&nonic(&arguments, &[]));
    assert!(
        drawn.contains("SEND PSN") && drawn.contains("contents verified"),
        "{drawn}"
    );
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    for (arguments, expected) in [
        (vec!["draw", "/no/such/capture"], "No such file"),
        (
            vec!["draw", manifest.to_str().expect("text")],
            "neither pcap nor pcapng",
        ),
        (vec!["draw", "--live"], "which program to run"),
        (vec!["draw"], "CAPTURE"),
    ] {
        let output = nonic(&arguments, &[]);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && complaint.contains(expected),
            "{arguments:?}: {complaint}"
        );
    }
}

#[test]
fn a_seed_is_drawn_with_what_programs_did() {
    let drawn = text(&nonic(&["sim", "--seed", "3", "--draw", "--limit", "0"], &[]));
    for wanted in ["posts request 0", "placed at", "request 0 done", "PSN 0x", "✗"] {
        assert!(drawn.contains(wanted), "{wanted} in {drawn}");
    }
    assert!(drawn.lines().all(|line| line.chars().count() <= 80));
    let told = nonic(&["sim", "--seed", "3", "--verbose"], &[]);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    let first = told.lines().next().expect("a line");
    assert!(first.starts_with("2 NICs over IPv4"), "{first}");
    assert!(!told.contains("Scenario {"));
}
