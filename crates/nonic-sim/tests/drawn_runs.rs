//! A run that is drawn is the same run, and its ladder has what happened.

use nonic_sim::{Options, record_seed, run_seed, story_of_failure};

#[test]
fn drawing_changes_nothing() {
    for seed in 0..40 {
        let (outcome, ladder) = record_seed(seed);
        assert_eq!(outcome, run_seed(seed, &Options::default()), "seed {seed}");
        assert!(!ladder.events.is_empty());
        assert!(ladder.events.is_sorted_by_key(|event| event.at_ns), "seed {seed}");
    }
}

#[test]
fn what_was_posted_sent_lost_placed_and_completed_is_in_it() {
    let mut packets = 0;
    let mut lost = 0;
    for seed in 0..40 {
        let (outcome, ladder) = record_seed(seed);
        let report = outcome.expect("the seed passes");
        let count = |what: &str| {
            ladder
                .events
                .iter()
                .filter(|event| event.text.contains(what))
                .count() as u64
        };
        assert_eq!(count("posts request"), report.operations, "seed {seed}");
        assert!(report.completions == 0 || count(" done") > 0, "seed {seed}");
        assert!(report.completions == 0 || count(" placed at ") > 0, "seed {seed}");
        let sent = ladder.events.iter().filter(|event| event.peer().is_some());
        let marked =
            |event: &&nonic_ladder::Event| event.mark.as_deref().is_some_and(|mark| mark.contains("lost"));
        lost += sent.clone().filter(marked).count() as u64;
        packets += sent.count() as u64;
    }
    assert!(packets > 1000 && lost > 10, "{packets} packets, {lost} lost");
}

#[test]
fn a_seed_that_passes_has_no_story_of_a_failure() {
    assert!(story_of_failure(3, 20).is_none());
}
