//! Processes of one user on one host: which road their requests take, also where they may not reach each other
//! ([`permissions`]), what becomes of them when one is killed or stopped ([`ends`]), and that memory which was taken back is
//! left alone. Each test has a network namespace of its own; the processes are
//! this program once more ([`party`]).

#[path = "same_host/ends.rs"]
mod ends;
#[path = "same_host/permissions.rs"]
mod permissions;

use crate::party::{Party, connect};
use crate::support::hosts::{new_namespace, unavailable};
use crate::support::{AS_NOBODY, missing, readable_copy_of};
use std::time::{Duration, Instant};
use testbed::namespace::Namespace;
use testbed::stopwatch::Stopwatch;

/// Lengths around everything that matters: words, cache lines, packets, batches, the window, direct access.
const LENGTHS: [usize; 14] = [
    0, 1, 7, 8, 9, 63, 64, 65, 4095, 4096, 4097, 65_536, 300_001, 1_048_579,
];
/// What a survivor may take for anything: several times what it takes on a machine at rest.
const SOON: Duration = Duration::from_secs(10);
/// The region of a flood.
const REGION: usize = 262_144;

/// A network namespace for a test, where there can be one.
fn namespace() -> Option<Namespace> {
    (!missing(unavailable())).then(new_namespace)
}

/// The same numbers on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Every operation from one to the other, with every length.
fn talk(one: &mut Party, other: &mut Party) {
    let longest = LENGTHS[LENGTHS.len() - 1];
    let remote = other.ask(&format!("expose shelf {longest}"));
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        let written = one.ask(&format!("write qp {remote} {length} {seed}"));
        assert_eq!(written, "ok", "WRITE of {length}");
        let found = other.ask(&format!("check shelf {length} {seed}"));
        assert_eq!(found, "good", "WRITE of {length}");

        let seed = seed + 100;
        other.ask(&format!("put shelf {length} {seed}"));
        let read = one.ask(&format!("read qp {remote} {length} {seed}"));
        assert_eq!(read, "ok good", "READ of {length}");

        let seed = seed + 100;
        other.ask(&format!("recv qp {length}"));
        assert_eq!(
            one.ask(&format!("send qp {length} {seed}")),
            "ok",
            "SEND of {length}"
        );
        let received = other.ask(&format!("received qp {seed}"));
        assert_eq!(received, format!("{length} good"), "SEND of {length}");
    }
    let before = one.ask(&format!("add qp {remote} 5"));
    let word: u64 = before
        .strip_prefix("ok ")
        .expect("success")
        .parse()
        .expect("a number");
    let sum = word.wrapping_add(5);
    assert_eq!(one.ask(&format!("swap qp {remote} {sum} 1")), format!("ok {sum}"));
    assert_eq!(one.ask(&format!("add qp {remote} 0")), "ok 1");
    other.ask("revoke shelf 0");
}

/// Two processes talk; what both have counted together under these names.
fn counted_in_conversation<const N: usize>(
    namespace: &Namespace,
    environment: &[(&str, &str)],
    wrapper: &[&str],
    names: [&str; N],
) -> [u64; N] {
    let mut left = Party::start(namespace, environment, &[]);
    let mut right = Party::start(namespace, environment, wrapper);
    connect(&mut left, &mut right, "qp");
    talk(&mut left, &mut right);
    talk(&mut right, &mut left);
    let counts = names.map(|name| left.counter(name) + right.counter(name));
    println!("{names:?}: {counts:?}");
    counts
}

#[test]
fn processes_of_one_user_reach_each_others_memory_directly() {
    let Some(namespace) = namespace() else { return };
    let names = [
        "direct_writes",
        "direct_reads",
        "lane_sends",
        "direct_peers",
        "direct_forbidden",
    ];
    let [writes, reads, lanes, peers, forbidden] = counted_in_conversation(&namespace, &[], &[], names);
    // The first ones may go before the lane is there.
    let most = LENGTHS.len() as u64;
    assert!(
        writes > most && reads > most,
        "{writes} and {reads} of {} each",
        2 * most
    );
    assert!(lanes > 0);
    assert_eq!((peers, forbidden), (2, 0));
}

/// As on a machine that has more to do than processors: what connects waits for the answer of a process that may not run now.
#[test]
fn a_peer_that_is_late_to_answer_is_reached_through_memory_all_the_same() {
    let Some(namespace) = namespace() else { return };
    let mut one = Party::start(&namespace, &[], &[]);
    let mut late = Party::start(&namespace, &[], &[]);
    let here = one.ask("prepare qp");
    let there = late.ask("prepare qp");
    late.process.signal("STOP");
    one.tell(&format!("connect qp {there}"));
    one.tell("send qp 5000 1");
    std::thread::sleep(Duration::from_millis(150));
    late.process.signal("CONT");
    assert_eq!(late.ask(&format!("connect qp {here}")), "done");
    late.ask("recv qp 5000");
    assert_eq!(one.says("connect"), "done");
    assert_eq!(one.says("send"), "ok");
    assert_eq!(late.ask("received qp 1"), "5000 good");
    talk(&mut one, &mut late);
    assert!(one.counter("direct_writes") > 0, "WRITEs");
    assert!(one.counter("lane_sends") > 0, "SENDs");
}

#[test]
fn a_peer_that_never_answers_is_waited_for_once() {
    let Some(namespace) = namespace() else { return };
    let mut one = Party::start(&namespace, &[], &[]);
    let mut stopped = Party::start(&namespace, &[], &[]);
    let there: Vec<_> = (0..8)
        .map(|at| {
            one.ask(&format!("prepare {at}"));
            stopped.ask(&format!("prepare {at}"))
        })
        .collect();
    stopped.process.signal("STOP");
    let begun = Stopwatch::new();
    for (at, there) in there.iter().enumerate() {
        assert_eq!(one.ask(&format!("connect {at} {there}")), "done");
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn without_direct_access_packets_take_the_lane() {
    let Some(namespace) = namespace() else { return };
    let names = ["direct_writes", "direct_reads", "lane_sends", "direct_peers"];
    let counts = counted_in_conversation(&namespace, &[("NONIC_DIRECT", "off")], &[], names);
    assert_eq!((counts[0], counts[1], counts[3]), (0, 0, 0));
    assert!(counts[2] > 2 * LENGTHS.len() as u64);
}

#[test]
fn without_a_lane_packets_take_the_socket() {
    let Some(namespace) = namespace() else { return };
    let names = ["direct_writes", "direct_reads", "lane_sends", "sends"];
    let counts = counted_in_conversation(&namespace, &[("NONIC_LANE", "off")], &[], names);
    assert_eq!((counts[0], counts[1], counts[2]), (0, 0, 0));
    assert!(counts[3] > 2 * LENGTHS.len() as u64);
}

#[test]
fn who_does_not_see_the_other_process_sends_packets_on_the_lane() {
    let Some(namespace) = namespace() else { return };
    let names = [
        "direct_writes",
        "direct_reads",
        "lane_sends",
        "direct_peers",
        "direct_forbidden",
    ];
    let [writes, reads, lanes, peers, forbidden] =
        counted_in_conversation(&namespace, &[], &["unshare", "--pid", "--fork"], names);
    // The outer one sees the inner one, but not the other way round.
    let most = LENGTHS.len() as u64;
    assert!(writes <= most && reads <= most, "{writes} and {reads}");
    assert_eq!((peers, forbidden), (1, 1));
    assert!(lanes > most);
}

#[test]
fn processes_of_two_users_have_neither_lane_nor_direct_access() {
    let Some(namespace) = namespace() else { return };
    let (_directory, program) = readable_copy_of(&std::env::current_exe().expect("we run"));
    let mut left = Party::start(&namespace, &[], &[]);
    let mut right = Party::start_program(&program, &namespace, &[], &AS_NOBODY);
    connect(&mut left, &mut right, "qp");
    talk(&mut left, &mut right);
    talk(&mut right, &mut left);
    for party in [&mut left, &mut right] {
        for road in ["direct_writes", "direct_reads", "lane_sends", "direct_peers"] {
            assert_eq!(party.counter(road), 0, "{road}");
        }
        assert!(party.counter("sends") > 0);
    }
}

/// What a process has used of the processor, and how often its threads fell asleep.
fn usage(party: &Party) -> (u64, u64) {
    let pid = party.process.pid();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    // The name, in parentheses, may contain anything; what follows is numbers.
    let (_, rest) = stat.rsplit_once(')').expect("a name in parentheses");
    let ticks = rest.split_ascii_whitespace().skip(11).take(2);
    let ticks = ticks.map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let sleeps = threads.filter_map(|thread| {
        let status = std::fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    });
    (ticks, sleeps.sum())
}

#[test]
fn processes_with_a_lane_that_only_wait_take_no_time() {
    let Some(namespace) = namespace() else { return };
    let mut left = Party::start(&namespace, &[], &[]);
    let mut right = Party::start(&namespace, &[], &[]);
    connect(&mut left, &mut right, "qp");
    talk(&mut left, &mut right);
    talk(&mut right, &mut left);
    // One waits for a message, the other for nothing at all.
    right.ask("recv qp 100");
    right.tell("received qp 7");
    std::thread::sleep(Duration::from_secs(2));
    let before = [&left, &right].map(usage);
    std::thread::sleep(Duration::from_secs(5));
    let after = [&left, &right].map(usage);
    for (before, after) in before.into_iter().zip(after) {
        let (ticks, sleeps) = (after.0 - before.0, after.1 - before.1);
        println!("{ticks} ticks, {sleeps} wake-ups");
        assert!(ticks <= 1, "{ticks} ticks");
        assert!(sleeps <= 5, "{sleeps} wake-ups");
    }
    assert_eq!(left.ask("send qp 100 7"), "ok");
    assert_eq!(right.says("received"), "100 good");
}

/// One takes memory back while the other writes to it, until so many WRITEs were made. Fails if the access is not announced
/// before it is checked, or if `withdraw_entry` does not wait.
fn revoke_under_a_flood(namespace: &Namespace, writes: u64) {
    let mut target = Party::start(namespace, &[], &[]);
    let mut writer = Party::start(namespace, &[], &[]);
    let mut dice = Dice(1);
    let (mut total, mut rounds, mut dirty) = (0, 0, 0);
    while total < writes {
        connect(&mut writer, &mut target, "qp");
        let remote = target.ask(&format!("expose shelf {REGION}"));
        writer.tell(&format!("flood qp {remote} {}", u64::MAX));
        let found = target.ask(&format!("revoke shelf {}", dice.below(40_000)));
        let ended = writer.says("ended");
        writer.says("flood");
        let (status, count) = ended.split_once(' ').expect("two words");
        assert_eq!(status, "RemoteAccess", "round {rounds}");
        dirty += u64::from(!found.starts_with("clean"));
        target.ask("drop qp");
        total += count.parse::<u64>().expect("a number");
        rounds += 1;
    }
    let direct = writer.counter("direct_writes");
    println!("{total} WRITEs in {rounds} rounds, {direct} of them direct; {dirty} rounds too late");
    assert_eq!(dirty, 0, "of {rounds} rounds");
    assert!(direct > total / 2, "{direct} of {total}");
}

#[test]
fn no_byte_lands_in_memory_that_was_taken_back() {
    let Some(namespace) = namespace() else { return };
    revoke_under_a_flood(&namespace, 200_000);
}

#[test]
#[ignore = "takes a minute"]
fn no_byte_of_a_million_writes_lands_in_memory_that_was_taken_back() {
    let Some(namespace) = namespace() else { return };
    revoke_under_a_flood(&namespace, 1_000_000);
}

/// Waits until a party has no more than this open and mapped.
fn has_no_more_than(party: &mut Party, before: &str) {
    let deadline = Instant::now() + SOON;
    loop {
        let now = party.ask("left");
        if now == before {
            return;
        }
        assert!(Instant::now() < deadline, "{before} became {now}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process of the same user attacks while another is served: that one notices nothing, and what was not exposed is as
/// it was. What the attacker says.
fn attack(namespace: &Namespace, name: &str) -> String {
    let [mut victim, mut friend, mut attacker] = [(); 3].map(|()| Party::start(namespace, &[], &[]));
    let theirs = friend.ask("prepare friend");
    let ours = victim.ask("prepare friend");
    victim.ask(&format!("connect friend {theirs}"));
    friend.ask(&format!("connect friend {ours}"));
    // Memory that no peer may write to any more.
    victim.ask("expose private 100000");
    victim.ask("revoke private 0");
    let shelf = victim.ask("expose shelf 70000");
    assert_eq!(friend.ask(&format!("write friend {shelf} 70000 1")), "ok");
    std::thread::sleep(Duration::from_millis(100));
    let before = victim.ask("left");

    attacker.tell(&format!("attack {name} {ours}"));
    let begun = Stopwatch::new();
    let mut seed = 0;
    while seed < 30 || !attacker.has_said("attack") {
        seed += 1;
        assert_eq!(
            friend.ask(&format!("write friend {shelf} 70000 {seed}")),
            "ok",
            "WRITE {seed}"
        );
        assert_eq!(
            victim.ask(&format!("check shelf 70000 {seed}")),
            "good",
            "WRITE {seed}"
        );
        victim.ask("recv friend 5000");
        assert_eq!(
            friend.ask(&format!("send friend 5000 {seed}")),
            "ok",
            "SEND {seed}"
        );
        assert_eq!(
            victim.ask(&format!("received friend {seed}")),
            "5000 good",
            "SEND {seed}"
        );
    }
    assert!(begun.elapsed() < 2 * SOON, "{:?}", begun.elapsed());
    let said = attacker.says("attack");
    assert_eq!(victim.ask("still private"), "clean");
    assert_eq!(friend.ask(&format!("write friend {shelf} 70000 99")), "ok");
    attacker.process.kill();
    has_no_more_than(&mut victim, &before);
    said
}

#[test]
fn what_is_no_ring_is_refused() {
    let Some(namespace) = namespace() else { return };
    assert_eq!(attack(&namespace, "nonsense"), "0 taken");
}

#[test]
fn garbage_in_a_ring_harms_nobody() {
    let Some(namespace) = namespace() else { return };
    assert_eq!(attack(&namespace, "garbage"), "200 taken");
}

/// What comes after the end of a line could otherwise keep the reader for as long as the sender is faster.
#[test]
fn who_hangs_up_and_goes_on_writing_is_not_read_for_ever() {
    let Some(namespace) = namespace() else { return };
    assert_eq!(attack(&namespace, "without-end"), "1 taken");
}

/// Fails if a broken lane is forgotten before its line ends.
#[test]
fn lanes_are_not_taken_without_end() {
    let Some(namespace) = namespace() else { return };
    let taken = attack(&namespace, "many");
    let count: u32 = taken
        .strip_suffix(" taken")
        .expect("a number")
        .parse()
        .expect("a number");
    assert!(count <= 256, "{taken}");
}

#[test]
fn accesses_that_never_end_hold_nobody_up() {
    let Some(namespace) = namespace() else { return };
    assert_eq!(attack(&namespace, "hazard"), "1 taken");
}

/// Fails if a thread that ends a queue pair waits for its peer in a turn of the shard's.
#[test]
fn the_end_of_a_queue_pair_whose_peer_does_not_end_an_access_holds_nobody_up() {
    let Some(namespace) = namespace() else { return };
    let [mut victim, mut friend, mut attacker] = [(); 3].map(|()| Party::start(&namespace, &[], &[]));
    connect(&mut victim, &mut friend, "friend");
    let ours = victim.ask("prepare held");
    let theirs = friend.ask("prepare held");
    victim.ask(&format!("connect held {theirs}"));
    friend.ask(&format!("connect held {ours}"));
    let shelf = victim.ask("expose shelf 4096");
    // A record has to come before a queue pair is published.
    assert_eq!(friend.ask(&format!("add held {shelf} 0")), "ok 0");
    let held = attacker.ask(&format!("attack hold {ours}"));
    assert_eq!(held, "1 taken");

    let begun = Instant::now();
    victim.tell("drop held");
    let (mut count, mut longest) = (0, Duration::ZERO);
    while !victim.has_said("drop") {
        let asked = Stopwatch::new();
        // The victim's processor serves it.
        assert_eq!(
            friend.ask(&format!("add friend {shelf} 1")),
            format!("ok {count}")
        );
        longest = longest.max(asked.elapsed());
        count += 1;
    }
    let took = begun.elapsed();
    println!("{count} atomics in {took:?}, the slowest in {longest:?}");
    assert!(took > Duration::from_millis(900), "nobody held it: {took:?}");
    assert!(longest < took / 2, "{longest:?} of {took:?}");
}

/// Fails if what wakes a reader is one eventfd for all its senders: a sender that has it can make it block.
#[test]
fn what_wakes_a_reader_is_nothing_to_hold_it_by() {
    let Some(namespace) = namespace() else { return };
    assert_eq!(attack(&namespace, "bell"), "1 taken");
}
