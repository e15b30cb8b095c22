//! Memory that a process allocated with nonic, and that processes of the same user and host map: which do, which do
//! not, and that all of them see the same. Each test has a network namespace of its own; the processes are this program
//! once more.

use crate::party::{Party, connect};
use crate::support::hosts::{new_namespace, unavailable};
use crate::support::{AS_NOBODY, missing, readable_copy_of};
use std::time::{Duration, Instant};

/// Several times what anything takes on a machine at rest.
const SOON: Duration = Duration::from_secs(20);
/// Around words, cache lines, pages and pieces.
const LENGTHS: [usize; 12] = [1, 7, 8, 9, 63, 64, 65, 4095, 4096, 4097, 65_536, 1_048_579];

/// One reads the other's memory until it has mapped it, or for so many READs.
fn reads_until_mapped(one: &mut Party, remote: &str, at_most: u32) {
    let deadline = Instant::now() + SOON;
    for _ in 0..at_most {
        assert!(one.ask(&format!("read qp {remote} 8 0")).starts_with("ok"));
        if one.counter("direct_mapped") > 0 {
            return;
        }
        assert!(Instant::now() < deadline, "it is not mapped");
    }
}

/// Every operation that needs no receive, from one to the other.
fn talk(one: &mut Party, other: &mut Party, remote: &str) {
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        assert_eq!(one.ask(&format!("write qp {remote} {length} {seed}")), "ok");
        assert_eq!(other.ask(&format!("check shelf {length} {seed}")), "good");
        let seed = seed + 100;
        other.ask(&format!("put shelf {length} {seed}"));
        assert_eq!(one.ask(&format!("read qp {remote} {length} {seed}")), "ok good");
    }
    let before = one.ask(&format!("add qp {remote} 5"));
    let word: u64 = before
        .strip_prefix("ok ")
        .expect("success")
        .parse()
        .expect("a number");
    let sum = word.wrapping_add(5);
    assert_eq!(one.ask(&format!("swap qp {remote} {sum} 1")), format!("ok {sum}"));
    assert_eq!(one.ask(&format!("swap qp {remote} {sum} 2")), "ok 1");
    assert_eq!(one.ask(&format!("add qp {remote} 0")), "ok 1");
}

#[test]
fn a_process_of_the_same_user_maps_memory_and_does_atomics_itself() {
    if missing(unavailable()) {
        return;
    }
    let namespace = new_namespace();
    let mut owner = Party::start(&namespace, &[], &[]);
    let mut requester = Party::start(&namespace, &[], &[]);
    connect(&mut requester, &mut owner, "qp");
    let remote = owner.ask("expose shelf 1048579");
    reads_until_mapped(&mut requester, &remote, u32::MAX);
    let before = requester.counter("direct_writes");
    talk(&mut requester, &mut owner, &remote);
    assert_eq!(requester.counter("direct_atomics"), 4);
    assert_eq!(requester.counter("direct_writes"), before + LENGTHS.len() as u64);
    assert_eq!(requester.counter("direct_mapped"), 1);
    assert_eq!(owner.counter("direct_given"), 1);
    // The owner has its memory back, and the requester's next WRITE fails as ever.
    assert!(owner.ask("revoke shelf 0").starts_with("clean"));
    assert_eq!(requester.ask(&format!("write qp {remote} 64 1")), "RemoteAccess");
    assert_eq!(owner.ask("still shelf"), "clean");
}

#[test]
fn without_direct_access_nothing_is_mapped() {
    if missing(unavailable()) {
        return;
    }
    // Whichever side does not want it.
    for (owners, requesters) in [(false, true), (true, false)] {
        let off = |direct: bool| if direct { "on" } else { "off" };
        let namespace = new_namespace();
        let mut owner = Party::start(&namespace, &[("NONIC_DIRECT", off(owners))], &[]);
        let mut requester = Party::start(&namespace, &[("NONIC_DIRECT", off(requesters))], &[]);
        connect(&mut requester, &mut owner, "qp");
        let remote = owner.ask("expose shelf 1048579");
        reads_until_mapped(&mut requester, &remote, 100);
        talk(&mut requester, &mut owner, &remote);
        for counter in ["direct_mapped", "direct_atomics", "direct_writes"] {
            assert_eq!(requester.counter(counter), 0, "{counter}");
        }
        assert_eq!(owner.counter("direct_given"), 0);
    }
}

#[test]
fn a_process_of_another_user_maps_nothing() {
    if missing(unavailable()) {
        return;
    }
    let namespace = new_namespace();
    let (_directory, program) = readable_copy_of(&std::env::current_exe().expect("we run"));
    let mut owner = Party::start(&namespace, &[], &[]);
    let mut requester = Party::start_program(&program, &namespace, &[], &AS_NOBODY);
    connect(&mut requester, &mut owner, "qp");
    let remote = owner.ask("expose shelf 1048579");
    reads_until_mapped(&mut requester, &remote, 100);
    talk(&mut requester, &mut owner, &remote);
    assert_eq!(requester.counter("direct_mapped"), 0);
    assert_eq!(requester.counter("direct_atomics"), 0);
    assert_eq!(owner.counter("direct_given"), 0);
}

#[test]
fn atomics_of_several_processes_by_mapping_and_by_packet_add_up() {
    const EACH: usize = 300;
    if missing(unavailable()) {
        return;
    }
    let namespace = new_namespace();
    let mut owner = Party::start(&namespace, &[], &[]);
    let remote = owner.ask("expose shelf 8");
    let mut requesters: Vec<Party> = ["on", "on", "off"]
        .into_iter()
        .enumerate()
        .map(|(number, direct)| {
            let mut requester = Party::start(&namespace, &[("NONIC_DIRECT", direct)], &[]);
            let here = requester.ask("prepare qp");
            let there = owner.ask(&format!("prepare qp{number}"));
            assert_eq!(requester.ask(&format!("connect qp {there}")), "done");
            assert_eq!(owner.ask(&format!("connect qp{number} {here}")), "done");
            if direct == "on" {
                reads_until_mapped(&mut requester, &remote, u32::MAX);
            }
            requester
        })
        .collect();
    // All at the same time.
    for requester in &mut requesters {
        (0..EACH).for_each(|_| requester.tell(&format!("add qp {remote} 1")));
    }
    let mut found: Vec<u64> = Vec::new();
    for requester in &mut requesters {
        let words = (0..EACH).map(|_| requester.says("add"));
        let words = words.map(|word| {
            word.strip_prefix("ok ")
                .expect("success")
                .parse()
                .expect("a number")
        });
        let words: Vec<u64> = words.collect();
        assert!(words.is_sorted(), "one after the other");
        found.extend(words);
    }
    found.sort_unstable();
    let expected: Vec<u64> = (0..requesters.len() as u64 * EACH as u64).collect();
    assert_eq!(found, expected, "nobody found what another one had found");
    let direct = requesters
        .iter_mut()
        .map(|requester| requester.counter("direct_atomics"));
    assert_eq!(direct.collect::<Vec<_>>(), [EACH as u64, EACH as u64, 0]);
}

#[test]
fn a_killed_owner_leaves_nothing_mapped_and_a_killed_requester_nothing_busy() {
    if missing(unavailable()) {
        return;
    }
    let namespace = new_namespace();
    let mut survivor = Party::start(&namespace, &[], &[]);
    for round in 0..6 {
        let mut victim = Party::start(&namespace, &[], &[]);
        connect(&mut survivor, &mut victim, "qp");
        let remote = victim.ask("expose shelf 262144");
        let mapped = survivor.counter("direct_mapped");
        let deadline = Instant::now() + SOON;
        while survivor.counter("direct_mapped") == mapped {
            assert!(survivor.ask(&format!("read qp {remote} 8 0")).starts_with("ok"));
            assert!(Instant::now() < deadline, "it is not mapped");
        }
        let ours = survivor.ask("expose shelf 262144");
        victim.tell(&format!("flood qp {ours} {}", u64::MAX));
        survivor.tell(&format!("flood qp {remote} {}", u64::MAX));
        std::thread::sleep(Duration::from_millis(7 * round));
        victim.process.kill();
        let ended = survivor.says("ended");
        assert!(
            !ended.starts_with("ok") && !ended.starts_with("hanging"),
            "{ended}"
        );
        let revoked = survivor.ask("revoke shelf 0");
        assert!(revoked.starts_with("clean"), "{revoked}");
        survivor.says("flood");
        let pid = survivor.process.pid();
        let deadline = Instant::now() + SOON;
        loop {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
            let left = maps.matches("nonic-memory").count();
            // Its own, which it may have back as it was.
            if left <= 1 {
                break;
            }
            assert!(Instant::now() < deadline, "{left} left of the dead");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
