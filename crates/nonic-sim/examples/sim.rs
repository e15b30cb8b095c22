//! Runs seeds of the simulator from the command line.
//!
//! `cargo run --release -p nonic-sim --example sim -- --seeds 1000`, or `--seed 17 --pcap 17.pcapng`, or `--network` and perhaps
//! the name of a scenario.

use nonic_sim::network::scenarios;
use nonic_sim::{Options, Workload, run_many_of, run_seed};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut seed, mut first, mut count, mut threads, mut failures) = (None, 0, 1000, 1, 20);
    let mut options = Options::default();
    let mut networks = false;
    while let Some(name) = arguments.next() {
        match name.as_str() {
            "--network" => networks = true,
            "--narrate" => options.narrate = true,
            "--connections" => options.workload = Workload::Connections,
            "--shares" => options.workload = Workload::Shares,
            "--iwarp" => options.workload = Workload::Streams,
            "--messages" => options.workload = Workload::Messages,
            _ => {}
        }
        if [
            "--network",
            "--narrate",
            "--connections",
            "--shares",
            "--iwarp",
            "--messages",
        ]
        .contains(&name.as_str())
        {
            continue;
        }
        let Some(value) = arguments.next() else {
            eprintln!("{name} needs a value");
            return ExitCode::from(2);
        };
        let number = || value.parse::<u64>().expect("a number");
        match name.as_str() {
            "--seed" => seed = Some(number()),
            "--first" => first = number(),
            "--seeds" => count = number(),
            "--threads" => threads = number() as usize,
            "--failures" => failures = number(),
            "--scenario" => return run_networks(Some(&value)),
            "--pcap" => options.pcap = Some(value.into()),
            _ => {
                eprintln!(
                    "usage: sim [--connections | --shares | --iwarp | --messages | --network [--scenario NAME]] [--seed N [--pcap FILE] [--narrate]] [--first N] [--seeds N] [--threads N] [--failures N]"
                );
                return ExitCode::from(2);
            }
        }
    }
    if networks {
        return run_networks(None);
    }
    if let Some(seed) = seed {
        return match run_seed(seed, &options) {
            Ok(report) => {
                println!("{report:#?}");
                ExitCode::SUCCESS
            }
            Err(failure) => {
                println!("{failure}");
                ExitCode::FAILURE
            }
        };
    }
    run_seeds(options.workload, first, count, threads, failures)
}

/// Runs many seeds; what failed is told.
fn run_seeds(workload: Workload, first: u64, count: u64, threads: usize, failures: u64) -> ExitCode {
    let start = Instant::now();
    let summary = run_many_of(workload, first, count, threads, |_, failed| failed < failures);
    for failure in &summary.failures {
        println!("{failure}");
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} seeds in {seconds:.1} s ({:.2} ms each, {threads} threads), {} failed\n{:?}",
        summary.seeds,
        seconds * 1000.0 * threads as f64 / summary.seeds.max(1) as f64,
        summary.failures.len(),
        summary.total
    );
    if summary.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs scenarios of networks quickly, or only one of them; what did not hold ends it.
fn run_networks(name: Option<&str>) -> ExitCode {
    let mut failed = false;
    for scenario in scenarios() {
        if name.is_some_and(|name| name != scenario.name) {
            continue;
        }
        let start = Instant::now();
        let outcome = scenario.run(true);
        for check in outcome.checks.iter().filter(|check| !check.holds()) {
            println!("{}: {check}", scenario.name);
            failed = true;
        }
        eprintln!("{} in {:.1} s", scenario.name, start.elapsed().as_secs_f64());
        if failed && name.is_none() {
            break;
        }
        if name.is_some() {
            for mut run in outcome.runs {
                (run.goodput_series, run.queue_series) = Default::default();
                eprintln!("{run:?}");
            }
            outcome.checks.iter().for_each(|check| eprintln!("{check}"));
        }
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
