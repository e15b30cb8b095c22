//! Thousands of channels of messages over connections that are slow, break, and lose an end.

use nonic_sim::{Options, Workload, run_many_of, run_seed};

#[test]
fn two_thousand_seeds_of_messages_pass_every_check() {
    let summary = run_many_of(Workload::Messages, 0, 2000, 2, |_, _| true);
    let failures: Vec<String> = summary.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // The workload is worth something only if it does all kinds of things.
    let total = summary.total;
    assert!(total.operations > 60_000, "{total:?}");
    assert!(total.completions > total.operations / 2, "{total:?}");
    assert!(total.failures > 1000, "{total:?}");
}

#[test]
fn a_seed_of_messages_is_the_same_run_every_time() {
    let options = Options {
        workload: Workload::Messages,
        ..Options::default()
    };
    for seed in 0..20 {
        let [first, second] = [(), ()].map(|()| run_seed(seed, &options));
        assert_eq!(first, second, "seed {seed}");
    }
}
