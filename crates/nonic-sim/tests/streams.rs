//! iWARP queue pairs over byte streams that are cut, slowed, damaged and broken off anywhere.

use nonic_sim::{Options, Workload, run_many_of, run_seed};

const OPTIONS: Options = Options {
    pcap: None,
    narrate: false,
    workload: Workload::Streams,
};

#[test]
fn five_hundred_seeds_of_streams_pass_every_check() {
    let summary = run_many_of(Workload::Streams, 0, 500, 2, |_, _| true);
    let failures: Vec<String> = summary.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // The workload is worth something only if most of it succeeds and some of it fails.
    let total = summary.total;
    assert!(total.operations > 5_000, "{total:?}");
    assert!(total.completions > total.operations, "{total:?}");
    assert!(
        total.failures > 300 && total.failures * 4 < total.operations,
        "{total:?}"
    );
}

#[test]
fn a_seed_of_streams_is_the_same_run_every_time() {
    for seed in 0..40 {
        let [first, second] = [(), ()].map(|()| run_seed(seed, &OPTIONS));
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn different_seeds_of_streams_are_different_runs() {
    let hashes: std::collections::BTreeSet<u64> = (0..40)
        .filter_map(|seed| run_seed(seed, &OPTIONS).ok())
        .filter(|report| report.packets > 0)
        .map(|report| report.trace_hash)
        .collect();
    assert!(hashes.len() > 35, "{}", hashes.len());
}
