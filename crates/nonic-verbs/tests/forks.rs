//! Programs that fork; see `c/forks.c` and `c/forked_inspected.c`.

use crate::support::{HEADER, Library, missing, succeeded};
use nonic_engine::inspect::{Request, processes};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_child_lets_go_of_what_it_inherited_and_opens_its_own() {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("forks", &["-libverbs"]);
    let output = library.command(program).output().expect("it starts");
    assert_eq!(succeeded(&output, "the program"), "both live\n");
}

/// Each is asked for what it has itself: a child that only inherited a device has none, and does not answer for its parent.
#[test]
fn a_process_and_its_child_are_looked_into_each_for_itself() {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("forked_inspected", &["-libverbs"]);
    let mut parent = library.command(program);
    let parent = parent.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut parent = parent.expect("it starts");
    let mut line = String::new();
    BufReader::new(parent.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("it says who they are");
    let pids: Vec<u32> = line
        .split_whitespace()
        .map(|pid| pid.parse().expect("a number"))
        .collect();
    let known = processes().expect("/proc is mounted");
    let queues = |pid: u32| {
        let process = known.iter().find(|process| process.pid() == pid)?;
        let answer = process
            .ask(Request::CompletionQueues, PATIENCE)
            .expect("it answers");
        assert_eq!(answer.pid, pid);
        Some(
            answer
                .records
                .iter()
                .filter(|record| record.kind() == "cq")
                .count(),
        )
    };
    let found: Vec<Option<usize>> = pids.into_iter().map(queues).collect();
    drop(parent.stdin.take());
    assert!(parent.wait().expect("it ends").success());
    assert_eq!(found, [Some(2), None, Some(3)]);
}
