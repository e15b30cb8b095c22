//! How commands end: after Ctrl-C with a summary, for a program that is not there with the code that shells have for it.

use crate::support::{DEADLINE, Place};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A command in a process group of its own, to which Ctrl-C of a terminal goes.
fn start(arguments: &[&str]) -> Child {
    let mut command = Place::here().command(arguments);
    command
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

fn interrupt_group(leader: &Child) {
    let group = rustix::process::Pid::from_raw(i32::try_from(leader.id()).expect("a pid")).expect("not zero");
    rustix::process::kill_process_group(group, rustix::process::Signal::INT).expect("our own child");
}

/// The exit code, within the deadline.
fn code(mut child: Child) -> Option<i32> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().expect("our own child") {
            return status.code();
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("still runs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn ping_that_is_interrupted_prints_its_summary() {
    let mut child = start(&["ping", "--loopback", "--count", "1000000", "--interval", "10ms"]);
    let mut output = BufReader::new(child.stdout.take().expect("asked for"));
    let mut line = String::new();
    output.read_line(&mut line).expect("text");
    assert!(line.contains("seq=0"), "{line}");
    interrupt_group(&child);
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    let mut complaint = String::new();
    let mut errors = child.stderr.take().expect("asked for");
    errors.read_to_string(&mut complaint).expect("text");
    assert_eq!(code(child), Some(130), "{complaint}");
    assert!(
        rest.contains("--- rc send: ") && rest.contains("contents verified"),
        "{rest}"
    );
    assert!(
        !rest.contains("--- rc write: "),
        "the other operations are left out: {rest}"
    );
    assert_eq!(complaint, "");
}

#[test]
fn a_ping_whose_pause_is_long_ends_at_once() {
    let mut child = start(&["--json", "ping", "--loopback", "--count", "2", "--interval", "1h"]);
    // With --json nothing is printed before the end. The pause begins when the process has a queue pair that has sent something.
    let pid = child.id().to_string();
    let deadline = Instant::now() + DEADLINE;
    let has_pinged = || {
        let outcome = crate::support::run(&Place::here(), &["show", "qp", "--json", "--pid", &pid]);
        outcome.success
            && outcome.json()["qp"]
                .as_array()
                .is_some_and(|pairs| pairs.len() >= 2)
    };
    while !has_pinged() {
        assert!(Instant::now() < deadline, "no queue pair");
        std::thread::sleep(Duration::from_millis(10));
    }
    interrupt_group(&child);
    let mut told = String::new();
    let mut output = child.stdout.take().expect("asked for");
    output.read_to_string(&mut told).expect("text");
    assert_eq!(code(child), Some(130));
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["runs"].as_array().map(Vec::len), Some(1), "{told}");
}

#[test]
fn a_simulation_that_is_interrupted_prints_its_summary() {
    let mut child = start(&["sim", "--seconds", "1h", "--threads", "1"]);
    // Ctrl-C ends a process that does not wait for it yet. It does, once it has the thread that waits.
    let deadline = Instant::now() + DEADLINE;
    while !has_thread(child.id(), "interrupt") {
        assert!(Instant::now() < deadline, "it does not wait for Ctrl-C");
        std::thread::sleep(Duration::from_millis(2));
    }
    interrupt_group(&child);
    let mut told = String::new();
    let mut output = child.stdout.take().expect("asked for");
    output.read_to_string(&mut told).expect("text");
    assert_eq!(code(child), Some(130), "{told}");
    assert!(
        told.contains("seeds: interrupted") && told.contains("virtual seconds"),
        "{told}"
    );
}

fn has_thread(pid: u32, name: &str) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let names = tasks
        .flatten()
        .map(|task| std::fs::read_to_string(task.path().join("comm")));
    names.flatten().any(|found| found.trim_end() == name)
}

#[test]
fn a_program_that_cannot_be_run_has_the_exit_code_of_shells() {
    let folder = tempfile::tempdir().expect("a folder");
    // Any folder with a library of that name will do: the program never starts.
    std::fs::write(folder.path().join("libibverbs.so.1"), "").expect("written");
    let lib = folder.path().to_str().expect("text");
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "no program").expect("written");
    for (program, expected) in [("nosuchprogram", 127), (plain.to_str().expect("text"), 126)] {
        let output = Place::here()
            .command(&["run", "--lib", lib, "--", program])
            .output()
            .expect("it runs");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{complaint}");
        assert!(complaint.contains("cannot run"), "{complaint}");
    }
}
