//! What `nonic run` finds out before the program starts, and what it tells the tools that programs are debugged with.

use crate::support::{Outcome, Place, run};

/// Runs `env` on a library that is an empty file: the loader says so and goes on.
fn run_env(place: &Place, more: &[&str]) -> (tempfile::TempDir, Outcome) {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["libibverbs.so.1", "nonic.supp"] {
        std::fs::write(folder.path().join(name), "").expect("it can be written");
    }
    let mut arguments = vec![
        "run",
        "--lib",
        folder.path().to_str().expect("text"),
        "--files",
        "off",
    ];
    arguments.extend(more);
    arguments.extend(["--", "env"]);
    let outcome = run(place, &arguments);
    (folder, outcome)
}

#[test]
fn files_that_cannot_be_written_are_named_before_the_program_starts() {
    let pcap = "/no/such/folder/capture.pcapng";
    let (_folder, outcome) = run_env(&Place::here(), &["--pcap", pcap]);
    assert!(!outcome.success && outcome.stdout.is_empty(), "{outcome:?}");
    let said = format!("the capture cannot be written to {pcap}: No such file or directory");
    assert!(outcome.stderr.contains(&said), "{}", outcome.stderr);

    let by_variable = Place::here().with_environment("NONIC_PCAP", pcap);
    let (_folder, outcome) = run_env(&by_variable, &[]);
    assert!(
        !outcome.success && outcome.stderr.contains(&said),
        "{}",
        outcome.stderr
    );

    let counters = Place::here().with_environment("NONIC_COUNTERS", "/proc/1/nonic-counters");
    let (_folder, outcome) = run_env(&counters, &[]);
    assert!(!outcome.success, "{outcome:?}");
    let said = "the counters of NONIC_COUNTERS cannot be written to /proc/1/nonic-counters";
    assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
}

#[test]
fn a_capture_that_can_be_written_is_not_made_by_looking() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("%p.pcapng");
    let (_library, outcome) = run_env(&Place::here(), &["--pcap", file.to_str().expect("text")]);
    assert!(outcome.success, "{}", outcome.stderr);
    assert!(outcome.stdout.contains("NONIC_PCAP="), "{}", outcome.stdout);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn sanitizers_and_valgrind_are_told_what_they_need() {
    let place = Place::here().with_environment("ASAN_OPTIONS", "detect_leaks=0");
    let (folder, outcome) = run_env(&place, &[]);
    assert!(outcome.success, "{}", outcome.stderr);
    let has = |line: &str| outcome.stdout.lines().any(|found| found == line);
    assert!(
        has("ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0"),
        "{}",
        outcome.stdout
    );
    let folder = folder.path().canonicalize().expect("it is there");
    let suppressions = format!("VALGRIND_OPTS=--suppressions={}/nonic.supp", folder.display());
    assert!(has(&suppressions), "{}", outcome.stdout);

    let place = Place::here().with_environment("VALGRIND_OPTS", "--leak-check=full");
    let (_folder, outcome) = run_env(&place, &[]);
    assert!(
        outcome.stdout.contains("VALGRIND_OPTS=--leak-check=full\n"),
        "{}",
        outcome.stdout
    );
}

#[test]
fn a_capture_that_finds_the_disk_full_says_so() {
    let place = Place::here().with_environment("NONIC_PCAP", "/dev/full");
    let outcome = run(&place, &["ping", "--loopback", "--count", "2"]);
    assert!(outcome.success, "the NIC goes on: {}", outcome.stderr);
    let told = outcome
        .stderr
        .matches("the capture of NONIC_PCAP ends early: No space left on device")
        .count();
    assert_eq!(told, 1, "{}", outcome.stderr);
}

#[test]
fn counters_that_cannot_be_written_are_told_when_the_device_is_opened() {
    let place = Place::here().with_environment("NONIC_COUNTERS", "/no/such/folder/counters");
    let outcome = run(&place, &["ping", "--loopback", "--count", "2"]);
    assert!(outcome.success, "{}", outcome.stderr);
    let said =
        "warn device: NONIC_COUNTERS=/no/such/folder/counters: the counters are not written: No such file";
    assert_eq!(outcome.stderr.matches(said).count(), 1, "{}", outcome.stderr);
}
