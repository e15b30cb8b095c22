//! nonic against bare sockets: the same path, in one run, taking turns.
//!
//! Shared machines swing by a factor of two within minutes, so single figures mean little. Every round measures
//! both sides back to back, with the order swapped from round to round; what is reported is the median of the
//! rounds' ratios.

use crate::bare;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds; each measures both sides.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// How long each bandwidth measurement takes.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Batches (bare) and messages (nonic) under way at once.
    #[arg(long, default_value_t = 4)]
    window: usize,
    /// Round trips of each latency measurement.
    #[arg(long, default_value_t = 100_000)]
    iterations: usize,
    /// One short round, to see that it works.
    #[arg(long)]
    quick: bool,
    /// Measure this binary instead of building one.
    #[arg(long)]
    nonic: Option<PathBuf>,
    /// For scripts.
    #[arg(long)]
    json: bool,
}

/// One round's figures: bytes per second, and half round trips in microseconds (medians).
#[derive(Copy, Clone, Debug)]
struct Round {
    bare_bandwidth: f64,
    nonic_bandwidth: f64,
    bare_half_trip_us: f64,
    nonic_half_trip_us: f64,
}

pub(crate) fn run(mut options: Options) -> Result<()> {
    if options.quick {
        (options.rounds, options.seconds, options.iterations) = (1, 0.5, 10_000);
    }
    let nonic = match &options.nonic {
        Some(nonic) => nonic.clone(),
        None => build()?,
    };
    let mut rounds = Vec::new();
    for index in 0..options.rounds {
        let round = measure(&options, &nonic, index % 2 == 0)?;
        if !options.json {
            println!(
                "round {}: 64 KiB WRITE {:.2} GB/s, bare {:.2} GB/s; 64 B SEND {:.2} µs, bare {:.2} µs",
                index + 1,
                round.nonic_bandwidth / 1e9,
                round.bare_bandwidth / 1e9,
                round.nonic_half_trip_us,
                round.bare_half_trip_us
            );
        }
        rounds.push(round);
    }
    report(&rounds, options.json)
}

fn build() -> Result<PathBuf> {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--package", "nonic-cli"])
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "nonic does not build");
    Ok(PathBuf::from("target/release/nonic"))
}

fn measure(options: &Options, binary: &Path, bare_first: bool) -> Result<Round> {
    let bare = || -> Result<(f64, f64)> {
        let bandwidth = bare::bandwidth(options.seconds, options.window)?;
        Ok((bandwidth, bare::latency(options.iterations)?.median_us))
    };
    let nonic = || -> Result<(f64, f64)> {
        let (seconds, depth) = (format!("{}s", options.seconds), options.window.to_string());
        let bandwidth = perf(
            binary,
            &[
                "--test",
                "bw",
                "--op",
                "write",
                "--size",
                "64K",
                "--queue-depth",
                &depth,
                "--duration",
                &seconds,
            ],
        )?;
        let iterations = options.iterations.to_string();
        let latency = perf(
            binary,
            &[
                "--test",
                "lat",
                "--op",
                "send",
                "--size",
                "64",
                "--iterations",
                &iterations,
            ],
        )?;
        Ok((
            figure(&bandwidth, "/gigabytes_per_second")? * 1e9,
            figure(&latency, "/latency_ns/p50")? / 1e3,
        ))
    };
    let (bare, nonic) = if bare_first {
        let bare = bare()?;
        (bare, nonic()?)
    } else {
        let nonic = nonic()?;
        (bare()?, nonic)
    };
    Ok(Round {
        bare_bandwidth: bare.0,
        nonic_bandwidth: nonic.0,
        bare_half_trip_us: bare.1,
        nonic_half_trip_us: nonic.1,
    })
}

/// Runs `nonic perf` with both ends on loopback; its one run.
pub(crate) fn perf(nonic: &Path, arguments: &[&str]) -> Result<Value> {
    let output = Command::new(nonic)
        .args(["perf", "--loopback", "--service", "rc", "--json"])
        .args(arguments)
        .output()
        .with_context(|| format!("cannot start {}", nonic.display()))?;
    ensure!(
        output.status.success(),
        "nonic perf failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).context("nonic perf printed no JSON")?;
    report
        .pointer("/runs/0")
        .cloned()
        .context("nonic perf reported no run")
}

pub(crate) fn figure(run: &Value, pointer: &str) -> Result<f64> {
    run.pointer(pointer)
        .and_then(Value::as_f64)
        .with_context(|| format!("no figure {pointer} in {run}"))
}

fn report(rounds: &[Round], json: bool) -> Result<()> {
    let median = |of: fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    ensure!(!rounds.is_empty(), "at least one round is needed");
    let bandwidth = median(|round| round.nonic_bandwidth / round.bare_bandwidth);
    let latency = median(|round| round.nonic_half_trip_us / round.bare_half_trip_us);
    if json {
        let report = serde_json::json!({
            "rounds": rounds.len(),
            "bandwidth_ratio": bandwidth,
            "latency_ratio": latency,
            "nonic_bytes_per_second": median(|round| round.nonic_bandwidth),
            "bare_bytes_per_second": median(|round| round.bare_bandwidth),
            "nonic_half_trip_us": median(|round| round.nonic_half_trip_us),
            "bare_half_trip_us": median(|round| round.bare_half_trip_us),
        });
        println!("{report}");
        return Ok(());
    }
    println!("64 KiB RC WRITE: {bandwidth:.2} × bare UDP GSO/GRO (step 0.60, goal 0.90)");
    println!("64 B RC SEND half round trip: {latency:.2} × bare UDP ping-pong (step 1.50, goal 1.15)");
    Ok(())
}
