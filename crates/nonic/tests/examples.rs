//! The examples do what they say.

use std::path::PathBuf;
use std::process::Command;

/// An example that was built with the tests.
fn example(name: &str) -> Command {
    let mut folder: PathBuf = std::env::current_exe().expect("this program has a name");
    folder.pop();
    folder.pop();
    Command::new(folder.join("examples").join(name))
}

/// Runs an example; its output has all of these lines.
fn says(name: &str, arguments: &[&str], lines: &[&str]) {
    let run = example(name).args(arguments).output().expect("it was built");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(
        run.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    for line in lines {
        assert!(said.contains(line), "{line} is not in:\n{said}");
    }
}

#[test]
fn a_key_value_store_whose_reads_do_not_disturb_the_server() {
    for device in ["roce_lo", "iwarp_lo"] {
        let lines = ["colour = green", "shape = (nothing)", "the peer disconnected"];
        says("key_value", &["demo", device], &lines);
    }
}

#[test]
fn a_parameter_server_whose_trainers_add_at_the_same_time() {
    for device in ["roce_lo", "iwarp_lo"] {
        says("parameter_server", &["demo", device], &["y = 3.0 x + -1.5"]);
    }
}

#[test]
fn a_work_queue_from_which_each_task_is_taken_once() {
    for device in ["roce_lo", "iwarp_lo"] {
        // There are 24 primes from 1000000 to 1000299.
        let lines = ["24 of 300 numbers are prime", "300 tasks done by three workers"];
        says("work_queue", &["demo", device], &lines);
    }
}

/// The network is gone for longer than the NIC tries by itself.
#[test]
fn a_client_survives_a_network_that_is_gone_if_it_is_careful() {
    let disturbed = |manner: &str| {
        let mut run = example("reconnect");
        run.args(["demo", manner])
            .env("NONIC_FAULTS", "loss=100%,from=300ms,until=5s");
        run.output().expect("it was built")
    };
    let careless = disturbed("careless");
    assert!(!careless.status.success());
    let said = String::from_utf8_lossy(&careless.stderr).into_owned();
    // Which side gives up first is a matter of what was under way.
    let reasons = ["the peer disconnected", "transport retries exhausted"];
    assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
    let careful = disturbed("careful");
    let said = String::from_utf8_lossy(&careful.stdout).into_owned();
    assert!(careful.status.success(), "{said}");
    assert!(said.contains("50 messages, each taken once, over "), "{said}");
    assert!(said.contains("connecting again"), "{said}");
}

#[test]
fn whoever_asks_is_told_on_standard_error_how_long_each_request_took() {
    let run = |log: Option<&str>| {
        let mut run = example("key_value");
        run.arg("demo").env_remove("NONIC_LOG");
        let run = run.envs(log.map(|log| ("NONIC_LOG", log))).output();
        String::from_utf8_lossy(&run.expect("it was built").stderr).into_owned()
    };
    let told = run(Some("cm=debug,request=trace"));
    let has = |parts: &[&str]| {
        told.lines()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    };
    let request = [
        " trace request: request{op=READ qpn=0x",
        "bytes=64 outcome=success} took ",
        " µs",
    ];
    assert!(has(&request), "{told}");
    assert!(
        has(&[" debug cm: connect{peer=127.0.0.1:", " outcome=connected} took "]),
        "{told}"
    );
    assert!(!told.contains(" memory: "), "{told}");
    assert_eq!(run(None), "");
}

/// Both ends are in one process, and write to one file: each byte is there once.
#[test]
fn a_stream_between_two_ends_of_one_process_is_captured_once() {
    let file = std::env::temp_dir().join(format!("nonic-streams-{}.pcapng", std::process::id()));
    let mut run = example("key_value");
    let run = run.args(["demo", "iwarp_lo"]).env("NONIC_PCAP", &file).output();
    assert!(run.expect("it was built").status.success());
    let bytes = std::fs::read(&file).expect("it was written");
    std::fs::remove_file(&file).expect("it is ours");
    let mut next = std::collections::HashMap::new();
    let mut payload = 0;
    let mut reader = nonic_wire::pcap::CaptureReader::new();
    reader.handle(&bytes);
    while let Some(frame) = reader.next().expect("a capture") {
        let segment = frame.tcp_segment().expect("of TCP");
        let expected = next.entry((segment.src, segment.dst)).or_insert(0);
        assert_eq!(segment.sequence, *expected, "{segment:?}");
        *expected += u32::from(segment.syn) + u32::from(segment.fin) + segment.payload.len() as u32;
        payload += segment.payload.len();
    }
    assert!(next.len() > 1 && payload > 100, "{next:?}");
}
