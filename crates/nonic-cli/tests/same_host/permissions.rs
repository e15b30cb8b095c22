//! Where the kernel does not let processes of one user into each other's memory, everything works all the same, and it is
//! said which road was taken.
//!
//! Yama is a setting of the whole machine, which tests leave alone. What it does to a process (its `ptrace_scope` of 2) is
//! what a process does to itself that is not to be dumped: it cannot be traced without privilege.

use super::{LENGTHS, namespace, talk};
use crate::party::{Party, connect};
use crate::support::{AS_NOBODY, readable_copy_of};
use testbed::namespace::Namespace;

/// WRITEs and READs that were executed in the memory of the other side.
fn direct(party: &mut Party) -> u64 {
    party.counter("direct_writes") + party.counter("direct_reads")
}

/// Every operation in both directions, of which no more than this many went directly by `confined`: those of before.
fn talk_without_direct_access(confined: &mut Party, other: &mut Party, before: u64) {
    let lanes = confined.counter("lane_sends");
    talk(confined, other);
    talk(other, confined);
    assert_eq!(direct(confined), before);
    assert_eq!(confined.counter("direct_forbidden"), 1);
    assert!(confined.counter("lane_sends") > lanes + LENGTHS.len() as u64);
    // Its own requests are no business of the confined one's.
    assert!(direct(other) > LENGTHS.len() as u64);
    assert_eq!(other.counter("direct_forbidden"), 0);
}

/// The process is confined before it meets the other one.
fn filtered_from_the_beginning(namespace: &Namespace, how: &str) {
    let [mut confined, mut other] = [(); 2].map(|()| Party::start(namespace, &[], &[]));
    confined.ask(&format!("confine {how}"));
    connect(&mut confined, &mut other, "qp");
    // Before it has tried to write.
    let remote = other.ask("expose early 4096");
    for seed in 0..20 {
        other.ask(&format!("put early 4096 {seed}"));
        assert_eq!(confined.ask(&format!("read qp {remote} 4096 {seed}")), "ok good");
    }
    talk_without_direct_access(&mut confined, &mut other, 0);
    let devices = confined.ask("devices");
    assert!(devices.contains("process_vm_writev is refused"), "{devices}");
}

/// The process is confined when it has reached the other one's memory.
fn filtered_in_the_middle(namespace: &Namespace, how: &str) {
    let [mut confined, mut other] = [(); 2].map(|()| Party::start(namespace, &[], &[]));
    connect(&mut confined, &mut other, "qp");
    talk(&mut confined, &mut other);
    let before = direct(&mut confined);
    assert!(before > 0 && confined.counter("direct_forbidden") == 0);
    confined.ask(&format!("confine {how}"));
    talk_without_direct_access(&mut confined, &mut other, before);
}

#[test]
fn a_filter_that_forbids_access_to_other_processes_leaves_packets() {
    let Some(namespace) = namespace() else { return };
    filtered_from_the_beginning(&namespace, "both-eperm");
    filtered_in_the_middle(&namespace, "both-eperm");
}

#[test]
fn a_filter_that_hides_access_to_other_processes_leaves_packets() {
    let Some(namespace) = namespace() else { return };
    filtered_from_the_beginning(&namespace, "both-enosys");
    filtered_in_the_middle(&namespace, "both-enosys");
}

/// Fails if only reading is tried before a process is taken to be reached.
#[test]
fn a_filter_that_forbids_writing_alone_leaves_packets() {
    let Some(namespace) = namespace() else { return };
    filtered_from_the_beginning(&namespace, "write-eperm");
}

/// As the user nobody: root may trace every process.
#[test]
fn who_may_not_be_traced_is_sent_packets() {
    let Some(namespace) = namespace() else { return };
    let (_directory, program) = readable_copy_of(&std::env::current_exe().expect("we run"));
    let start = || Party::start_program(&program, &namespace, &[], &AS_NOBODY);
    let [mut untraceable, mut other] = [(); 2].map(|()| start());
    untraceable.ask("confine undumpable");
    connect(&mut untraceable, &mut other, "qp");
    talk_without_direct_access(&mut other, &mut untraceable, 0);

    let [mut untraceable, mut other] = [(); 2].map(|()| start());
    connect(&mut untraceable, &mut other, "qp");
    talk(&mut other, &mut untraceable);
    let before = direct(&mut other);
    assert!(before > 0 && other.counter("direct_forbidden") == 0);
    untraceable.ask("confine undumpable");
    talk_without_direct_access(&mut other, &mut untraceable, before);
}
