//! Runs seeds of the simulator from the command line.
//!
//! `cargo run --release -p nonic-sim --example sim -- --seeds 1000`, or `--seed 17 --pcap 17.pcapng`.

use nonic_sim::{Options, Workload, run_many_of, run_seed};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut seed, mut first, mut count, mut threads, mut failures) = (None, 0, 1000, 1, 20);
    let mut options = Options::default();
    while let Some(name) = arguments.next() {
        if name == "--narrate" {
            options.narrate = true;
            continue;
        }
        if name == "--connections" {
            options.workload = Workload::Connections;
            continue;
        }
        if name == "--shares" {
            options.workload = Workload::Shares;
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
            "--pcap" => options.pcap = Some(value.into()),
            _ => {
                eprintln!(
                    "usage: sim [--connections | --shares] [--seed N [--pcap FILE] [--narrate]] [--first N] [--seeds N] [--threads N] [--failures N]"
                );
                return ExitCode::from(2);
            }
        }
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
    let start = Instant::now();
    let summary = run_many_of(options.workload, first, count, threads, |_, failed| {
        failed < failures
    });
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
