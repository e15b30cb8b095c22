//! A process is killed or stopped, at any step of setting up a lane and of using it: no other process hangs, and
//! nothing is left behind.
//!
//! Requests to it fail when they were repeated often enough. With the usual options that takes two seconds, which would
//! be most of a round; so what leads there is `brisk`.

use super::{Dice, REGION, SOON, has_no_more_than, namespace};
use crate::party::{Party, connect};
use std::time::Duration;
use testbed::namespace::Namespace;
use testbed::stopwatch::Stopwatch;

/// A moment from the first step of something on.
fn moment(dice: &mut Dice) -> Duration {
    Duration::from_micros(match dice.below(4) {
        0 => 0,
        1 => dice.below(300),
        2 => dice.below(3000),
        _ => dice.below(20_000),
    })
}

/// A flood has ended because requests failed.
fn has_failed(ended: &str) -> bool {
    !ended.starts_with("ok") && !ended.starts_with("hanging")
}

/// Both flood each other, and one is killed: while they connect, or in the middle, or before the other one begins.
fn kill_in_the_middle(namespace: &Namespace, survivor: &mut Party, dice: &mut Dice) {
    let mut victim = Party::start(namespace, &[], &[]);
    let theirs = victim.ask(&format!("expose shelf {REGION}"));
    let ours = survivor.ask(&format!("expose shelf {REGION}"));
    let here = survivor.ask("prepare qp");
    let there = victim.ask("prepare qp");
    let flood = format!("flood qp {theirs} {}", u64::MAX);
    // The survivor may be alone in its wish to connect.
    let mutual = dice.below(8) > 0;
    let both_flood = dice.below(4) > 0;
    let connects = dice.below(3) == 0;
    let late = dice.below(8) == 0;
    if mutual {
        victim.tell(&format!("connect qp {here}"));
    }
    survivor.tell(&format!("connect qp {there} brisk"));
    if !connects {
        assert_eq!(survivor.says("connect"), "done");
        if mutual && both_flood {
            victim.tell(&format!("flood qp {ours} {}", u64::MAX));
        }
        if !late {
            survivor.tell(&flood);
        }
    }
    std::thread::sleep(moment(dice));
    victim.process.kill();
    let begun = Stopwatch::new();
    if connects {
        assert_eq!(survivor.says("connect"), "done");
    }
    if connects || late {
        survivor.tell(&flood);
    }
    let revoked = survivor.ask("revoke shelf 0");
    assert!(revoked.starts_with("clean"), "{revoked}");
    let ended = survivor.says("ended");
    assert!(has_failed(&ended), "{ended}");
    assert!(begun.elapsed() < SOON, "{ended} after {:?}", begun.elapsed());
    survivor.says("flood");
}

fn survive_kills(namespace: &Namespace, rounds: u64) {
    let mut survivor = Party::start(namespace, &[], &[]);
    let mut friend = Party::start(namespace, &[], &[]);
    let mut dice = Dice(2);
    // With what is made once, for the first peer.
    connect(&mut survivor, &mut friend, "friend");
    let friendly = friend.ask("expose shelf 4096");
    assert_eq!(survivor.ask(&format!("write friend {friendly} 4096 1")), "ok");
    kill_in_the_middle(namespace, &mut survivor, &mut dice);
    assert_eq!(survivor.ask(&format!("write friend {friendly} 4096 2")), "ok");
    std::thread::sleep(Duration::from_millis(200));
    let before = survivor.ask("left");
    for round in 0..rounds {
        kill_in_the_middle(namespace, &mut survivor, &mut dice);
        let written = survivor.ask(&format!("write friend {friendly} 4096 {round}"));
        assert_eq!(written, "ok", "round {round}");
        let found = friend.ask(&format!("check shelf 4096 {round}"));
        assert_eq!(found, "good", "round {round}");
    }
    has_no_more_than(&mut survivor, &before);
    assert_eq!(survivor.ask("usage"), "1", "one queue pair is left");
    println!("{rounds} rounds; {before}");
}

#[test]
fn who_survives_a_killed_process_goes_on_and_keeps_nothing_of_it() {
    let Some(namespace) = namespace() else { return };
    survive_kills(&namespace, 150);
}

#[test]
#[ignore = "takes minutes"]
fn who_survives_a_thousand_killed_processes_goes_on_and_keeps_nothing_of_them() {
    let Some(namespace) = namespace() else { return };
    survive_kills(&namespace, 1000);
}

/// Its process lives, so a requester that goes on sending is told: soon, not when its retries have run out.
#[test]
fn who_sends_to_a_queue_pair_that_was_destroyed_is_told_at_once() {
    let Some(namespace) = namespace() else { return };
    for settings in [&[][..], &[("NONIC_DIRECT", "off")], &[("NONIC_LANE", "off")]] {
        let mut one = Party::start(&namespace, settings, &[]);
        let mut other = Party::start(&namespace, settings, &[]);
        let shelf = other.ask("expose shelf 4096");
        for request in [format!("write qp {shelf} 4096 7"), "send qp 5000 7".to_owned()] {
            connect(&mut one, &mut other, "qp");
            assert_eq!(one.ask(&format!("write qp {shelf} 4096 1")), "ok", "{settings:?}");
            other.ask("drop qp");
            assert_eq!(one.ask(&request), "RetryExceeded", "{settings:?}");
            one.ask("drop qp");
        }
        // A busy machine may be late for once; silence would make it all retries, of two requests.
        assert!(
            one.counter("timeouts") < 3,
            "{settings:?}: {}",
            one.counter("timeouts")
        );
    }
}

/// Two processes that have nothing to do with it exchange messages and WRITEs.
fn serve_friend(survivor: &mut Party, friend: &mut Party, friendly: &str) {
    let begun = Stopwatch::new();
    for seed in 0..10 {
        friend.ask("recv friend 5000");
        assert_eq!(survivor.ask(&format!("send friend 5000 {seed}")), "ok");
        assert_eq!(friend.ask(&format!("received friend {seed}")), "5000 good");
        let written = survivor.ask(&format!("write friend {friendly} 70000 {seed}"));
        assert_eq!(written, "ok");
    }
    assert!(begun.elapsed() < SOON, "the friend waited {:?}", begun.elapsed());
}

/// A process is stopped while it floods the survivor, or while both connect, and goes on later. How long it took to take
/// memory back meanwhile.
fn stop_in_the_middle(
    namespace: &Namespace,
    survivor: &mut Party,
    dice: &mut Dice,
    meanwhile: impl FnOnce(&mut Party),
) -> Duration {
    let mut sleeper = Party::start(namespace, &[], &[]);
    let floods = dice.below(3) > 0;
    let ours = survivor.ask(&format!("expose shelf {REGION}"));
    let here = survivor.ask("prepare messages");
    let there = sleeper.ask("prepare messages");
    if floods {
        connect(survivor, &mut sleeper, "flooded");
    }
    sleeper.tell(&format!("connect messages {here}"));
    survivor.tell(&format!("connect messages {there} brisk"));
    if floods {
        assert_eq!(survivor.says("connect"), "done");
        sleeper.tell(&format!("flood flooded {ours} {}", u64::MAX));
    }
    std::thread::sleep(moment(dice));
    sleeper.process.signal("STOP");
    if !floods {
        assert_eq!(survivor.says("connect"), "done");
    }

    meanwhile(survivor);
    // A message to a peer that does not answer is one to a peer that is not there.
    assert_eq!(survivor.ask("send messages 5000 1"), "RetryExceeded");
    // Where it was stopped in the middle of an access, this takes as long as it may.
    let begun = Stopwatch::new();
    let revoked = survivor.ask("revoke shelf 0");
    assert!(revoked.starts_with("clean"), "{revoked}");
    let took = begun.elapsed();
    assert!(took < SOON, "{took:?}, {revoked}");

    sleeper.process.signal("CONT");
    if floods {
        let ended = sleeper.says("ended");
        assert!(has_failed(&ended), "{ended}");
    }
    // Whatever it was in the middle of has not come here.
    assert_eq!(survivor.ask("still shelf"), "clean");
    survivor.ask("drop flooded");
    survivor.ask("drop messages");
    // Both can begin anew.
    connect(survivor, &mut sleeper, "again");
    let theirs = sleeper.ask("expose shelf 70000");
    assert_eq!(survivor.ask(&format!("write again {theirs} 70000 3")), "ok");
    assert_eq!(sleeper.ask("check shelf 70000 3"), "good");
    survivor.ask("drop again");
    took
}

fn survive_stops(namespace: &Namespace, rounds: u64) {
    let mut survivor = Party::start(namespace, &[], &[]);
    let mut friend = Party::start(namespace, &[], &[]);
    let mut dice = Dice(3);
    connect(&mut survivor, &mut friend, "friend");
    let friendly = friend.ask(&format!("expose shelf {REGION}"));
    let mut longest = Duration::ZERO;
    for _ in 0..rounds {
        let meanwhile = |survivor: &mut Party| serve_friend(survivor, &mut friend, &friendly);
        let took = stop_in_the_middle(namespace, &mut survivor, &mut dice, meanwhile);
        longest = longest.max(took);
    }
    println!("{rounds} rounds; memory was taken back within {longest:?}");
}

#[test]
fn a_stopped_process_holds_nobody_up() {
    let Some(namespace) = namespace() else { return };
    survive_stops(&namespace, 20);
}

#[test]
#[ignore = "takes minutes"]
fn two_hundred_stopped_processes_hold_nobody_up() {
    let Some(namespace) = namespace() else { return };
    survive_stops(&namespace, 200);
}
