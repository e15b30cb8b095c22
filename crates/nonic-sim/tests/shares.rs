//! What the live processes of a host are sent while others there are dead, slow or not ready.

use nonic_sim::{Options, Workload, run_many_of, run_seed};

#[test]
fn sixty_seeds_of_processes_that_share_an_address_pass_every_check() {
    let summary = run_many_of(Workload::Shares, 0, 60, 2, |_, _| true);
    let failures: Vec<String> = summary.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(summary.total.completions > 100_000, "{:?}", summary.total);
}

#[test]
fn a_seed_of_shares_is_the_same_run_every_time() {
    let options = Options {
        workload: Workload::Shares,
        ..Options::default()
    };
    for seed in 0..3 {
        let [first, second] = [(), ()].map(|()| run_seed(seed, &options));
        assert_eq!(first, second, "seed {seed}");
    }
}
