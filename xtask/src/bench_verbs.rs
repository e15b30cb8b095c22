//! What the C library costs: perftest on our libibverbs beside `nonic perf` on the Rust API, and bare sockets.
//!
//! As in [`crate::bench`], the sides take turns and the median of the rounds' ratios counts. The loops are not the
//! same program: perftest verifies nothing, keeps its own statistics and, writing, has a server that sleeps, so
//! `nonic perf` is told to let its server sleep too. A ratio near one says that the library costs nothing that shows.

use crate::bench::{figure, perf};
use crate::dist::Dist;
use crate::tools::perftest;
use crate::{bare, dist};
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// Messages under way at once.
const DEPTH: usize = 16;

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds; each measures all sides.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// For scripts.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    dist: dist::Options,
}

/// One round's figures: bytes per second, and half round trips in microseconds.
#[derive(Copy, Clone, Debug)]
struct Round {
    bare: (f64, f64),
    rust: (f64, f64),
    c: (f64, f64),
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.rounds > 0, "at least one round is needed");
    crate::host::install(&[("/usr/bin/ib_write_bw", "perftest")])?;
    let nonic = Dist::build(&options.dist)?.nonic();
    let mut rounds = Vec::new();
    for index in 0..options.rounds {
        let bare = (bare::bandwidth(1.0, DEPTH)?, bare::latency(30_000)?.median_us);
        // Whoever goes second finds a machine that the first has warmed up.
        let (rust, c) = if index % 2 == 0 {
            let rust = rust_api(&nonic)?;
            (rust, c_abi(&nonic)?)
        } else {
            let c = c_abi(&nonic)?;
            (rust_api(&nonic)?, c)
        };
        if !options.json {
            println!(
                "round {}: 64 KiB WRITE ib_write_bw {:.2}, nonic perf {:.2}, bare {:.2} GB/s; \
                 64 B SEND ib_send_lat {:.2}, nonic perf {:.2}, bare {:.2} µs",
                index + 1,
                c.0 / 1e9,
                rust.0 / 1e9,
                bare.0 / 1e9,
                c.1,
                rust.1,
                bare.1
            );
        }
        rounds.push(Round { bare, rust, c });
    }
    report(&rounds, options.json);
    Ok(())
}

fn rust_api(nonic: &Path) -> Result<(f64, f64)> {
    let depth = DEPTH.to_string();
    let writing = [
        "--test",
        "bw",
        "--op",
        "write",
        "--size",
        "64K",
        "--target-sleeps",
    ];
    let limits = ["--queue-depth", &depth, "--duration", "1s"];
    let bandwidth = perf(nonic, &[&writing[..], &limits[..]].concat())?;
    let sending = [
        "--test",
        "lat",
        "--op",
        "send",
        "--size",
        "64",
        "--iterations",
        "30000",
    ];
    let latency = perf(nonic, &sending)?;
    Ok((
        figure(&bandwidth, "/gigabytes_per_second")? * 1e9,
        figure(&latency, "/latency_ns/p50")? / 1e3,
    ))
}

fn c_abi(nonic: &Path) -> Result<(f64, f64)> {
    // perftest's mega is 2^20.
    let writing = vec!["-F", "-s", "65536", "-n", "20000", "-t", "16", "-Q", "1"];
    let bandwidth = last_row(&perftest(nonic, "ib_write_bw", writing)?, "65536", 3)? * f64::from(1 << 20);
    let sending = vec!["-F", "-s", "64", "-n", "30000", "-I", "0"];
    let latency = last_row(&perftest(nonic, "ib_send_lat", sending)?, "64", 4)?;
    Ok((bandwidth, latency))
}

/// A column of the row that perftest prints for a size.
fn last_row(printed: &str, size: &str, column: usize) -> Result<f64> {
    let mut rows = printed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.rfind(|row| row.first() == Some(&size))
        .and_then(|row| row.get(column)?.parse().ok())
        .with_context(|| format!("perftest printed no row for {size} bytes: {printed}"))
}

fn report(rounds: &[Round], json: bool) {
    let median = |of: fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let bandwidth = median(|round| round.c.0 / round.rust.0);
    let latency = median(|round| round.c.1 / round.rust.1);
    if json {
        let report = serde_json::json!({
            "rounds": rounds.len(),
            "bandwidth_ratio_to_rust": bandwidth,
            "latency_ratio_to_rust": latency,
            "bandwidth_ratio_to_bare": median(|round| round.c.0 / round.bare.0),
            "latency_ratio_to_bare": median(|round| round.c.1 / round.bare.1),
        });
        println!("{report}");
        return;
    }
    println!("64 KiB RC WRITE: ib_write_bw {bandwidth:.2} × nonic perf (at least 0.97 wanted)");
    println!("64 B RC SEND: ib_send_lat {latency:.2} × nonic perf (at most 1.03 wanted)");
}
