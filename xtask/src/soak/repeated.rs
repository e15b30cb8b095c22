//! Soaks that do the same thing again and again.

use super::tally::Tally;
use crate::conformance;
use crate::dist::{Dist, workspace};
use anyhow::{Context, Result, ensure};
use std::process::Command;
use std::time::Instant;
use testbed::process::Process;

/// Ten thousand connections between two processes, so many times.
pub(super) fn connections(dist: &Dist, times: usize) -> Result<()> {
    repeat("connections", times, || {
        let mut command = Command::new(dist.nonic());
        command.args(["perf", "--loopback", "--connections", "10000"]);
        Process::start(&mut command)?.finish().map(drop)
    })
}

/// The test of iperf3, so many times.
pub(super) fn iperf3(times: usize) -> Result<()> {
    repeat("iperf3", times, || {
        tests("nonic-rspreload", "programs::iperf3_measures_rdma", 0)
    })
}

/// rdma-core's tests, so many times.
pub(super) fn conformance(dist: &Dist, times: usize) -> Result<()> {
    repeat("conformance", times, || {
        conformance::run(&conformance::Options::on(dist))
    })
}

/// The tests of both libraries that cancel threads, each with so many of them.
pub(super) fn cancel(times: usize) -> Result<()> {
    let mut tally = Tally::new("cancel");
    for package in ["nonic-verbs", "nonic-rdmacm"] {
        println!("cancel: {package}, {times} threads");
        tally.count(package, tests(package, "cancel::", times));
    }
    tally.conclude()
}

fn repeat(name: &'static str, times: usize, mut round: impl FnMut() -> Result<()>) -> Result<()> {
    let mut tally = Tally::new(name);
    for number in 1..=times {
        let started = Instant::now();
        tally.count(&format!("{name} {number} of {times}"), round());
        println!(
            "{name} {number} of {times}: {:.1} s, {} failed so far",
            started.elapsed().as_secs_f32(),
            tally.failed
        );
    }
    tally.conclude()
}

/// Runs those tests of a package whose path contains `filter`; all that they said if one fails.
fn tests(package: &str, filter: &str, cancels: usize) -> Result<()> {
    let output = Command::new(env!("CARGO"))
        .args([
            "nextest",
            "run",
            "--color",
            "never",
            "--package",
            package,
            "--test",
            "integration",
            filter,
        ])
        .env("NONIC_TEST_CANCELS", cancels.to_string())
        .current_dir(workspace())
        .output()
        .context("cannot start cargo")?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(
        output.status.success(),
        "{}\n{}",
        output.status,
        String::from_utf8_lossy(&said)
    );
    Ok(())
}
