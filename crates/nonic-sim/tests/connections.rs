//! Thousands of connections made and ended through the connection manager, over networks that misbehave.

use nonic_sim::{Options, Workload, run_many_of, run_seed};

#[test]
fn three_hundred_seeds_of_connections_pass_every_check() {
    let summary = run_many_of(Workload::Connections, 0, 300, 2, |_, _| true);
    let failures: Vec<String> = summary.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // The workload is worth something only if it does all kinds of things.
    let total = summary.total;
    assert!(total.operations > 8_000, "{total:?}");
    assert!(total.completions > total.operations / 4, "{total:?}");
    assert!(total.failures > 500 && total.retries_exceeded > 20, "{total:?}");
    let faults = total.faults;
    assert!(
        faults.lost > 100 && faults.duplicated > 100 && faults.reordered > 100 && faults.corrupted > 20,
        "{faults:?}"
    );
}

#[test]
fn a_seed_of_connections_is_the_same_run_every_time() {
    let options = Options {
        workload: Workload::Connections,
        ..Options::default()
    };
    for seed in 0..20 {
        let [first, second] = [(), ()].map(|()| run_seed(seed, &options));
        assert_eq!(first, second, "seed {seed}");
    }
}

/// In this one a request is repeated after the answer to it was given up: to the program it is a new one.
#[test]
fn a_seed_of_connections_that_once_failed_passes() {
    let summary = run_many_of(Workload::Connections, 53_748, 1, 1, |_, _| true);
    assert!(summary.failures.is_empty(), "{:?}", summary.failures);
}
