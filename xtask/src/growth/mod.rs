//! Growth: what one more costs beside few others and beside many (connections, memory keys, queue pairs, listeners).
//!
//! Nothing else notices a sum over all of them that is made for each new one: it works, and tests have few. The judge is processor
//! time, not time: both sides of a connection, the library's threads among them, so that a machine that is busy otherwise does not
//! change it much. Few and many take turns, and the best of several rounds counts.
//!
//! The C libraries are measured by `growth.c`, the Rust API by `nonic perf
//! --connections`.

use crate::c_program;
use crate::dist::{self, Dist};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use testbed::process::Process;

const SOURCE: &str = include_str!("growth.c");

/// Many are made at no less than this part of the rate of few.
const LEAST_RATIO: f64 = 0.8;
/// What one may cost more beside many all the same: what belongs to them does not fit the processor's caches. Something that is done
/// for each of 20,000 takes several times as long.
const CACHES_NS: f64 = 1_000.0;
/// The same for connections and listeners, of which each side keeps several kilobytes.
const CONNECTION_CACHES_NS: f64 = 8_000.0;
/// So often at most all rounds are measured. Neighbours of a virtual machine may fill its caches for a minute.
const MOST_TRIES: u32 = 5;

/// How often.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds of which the best counts
    #[arg(long, default_value_t = 4)]
    rounds: u32,
    #[command(flatten)]
    dist: dist::Chosen,
}

/// How many of something there are, few and many.
type Counts = [u32; 2];

const FEW_AND_MANY: Counts = [2_000, 20_000];
/// 2,000 connections fit the largest cache of a server, and 20,000 do not: to end one then takes 30 to 40 us more, which is what 10,000 and
/// 40,000 cost as well. So these are both beyond any cache.
const CONNECTIONS: Counts = [8_000, 32_000];
/// Each listener has several descriptors of its own, of which a process may have 20,000 or so.
const LISTENERS: Counts = [200, 2_000];

/// Nanoseconds of processor time for each, beside few and beside many.
type Cost = [f64; 2];

pub(crate) fn run(options: &Options) -> Result<()> {
    let dist = options.dist.get()?;
    let program = c_program::compile("growth", SOURCE, &["-lrdmacm", "-libverbs"])?;
    let rounds = options.rounds.max(1);
    println!(
        "processor time for one, the best of {rounds} rounds; the rate beside many is at least {LEAST_RATIO} of that beside few, \
         but for {} us, and {} us for connections and listeners",
        CACHES_NS / 1e3,
        CONNECTION_CACHES_NS / 1e3
    );
    println!(
        "{:34} {:>7} {:>7} {:>9} {:>9} {:>6}",
        "", "few", "many", "few us", "many us", "ratio"
    );
    let mut failed = Vec::new();
    // Connections are many, and take long.
    let rounds_of = |counts: Counts| (rounds * FEW_AND_MANY[1] / counts[1].max(FEW_AND_MANY[1])).max(1);
    let cost = settled(CONNECTION_CACHES_NS, || {
        Ok([in_rust(&dist, rounds_of(CONNECTIONS))?])
    })?;
    judge(
        "connect (Rust)",
        CONNECTIONS,
        CONNECTION_CACHES_NS,
        cost[0],
        &mut failed,
    );
    for (subject, verbs, counts, caches) in [
        (
            "connections",
            ["rdma_connect, rdma_accept", "rdma_disconnect, rdma_destroy_id"],
            CONNECTIONS,
            CONNECTION_CACHES_NS,
        ),
        (
            "memory-keys",
            ["ibv_reg_mr", "ibv_dereg_mr"],
            FEW_AND_MANY,
            CACHES_NS,
        ),
        (
            "queue-pairs",
            ["ibv_create_qp", "ibv_destroy_qp"],
            FEW_AND_MANY,
            CACHES_NS,
        ),
        (
            "listeners",
            ["rdma_listen", "rdma_destroy_id (a listener's)"],
            LISTENERS,
            CONNECTION_CACHES_NS,
        ),
    ] {
        let costs = settled(caches, || {
            in_c(&dist, &program, subject, counts, rounds_of(counts))
        })?;
        for (verb, cost) in verbs.into_iter().zip(costs) {
            judge(verb, counts, caches, cost, &mut failed);
        }
    }
    ensure!(
        failed.is_empty(),
        "cost more the more there are: {}",
        failed.join("; ")
    );
    Ok(())
}

/// Measures until nothing grows, [`MOST_TRIES`] times at most. The least of all rounds is the cost: what else the machine does only
/// adds to it, so more rounds can come nearer to it and never below.
fn settled<const N: usize>(caches: f64, mut measure: impl FnMut() -> Result<[Cost; N]>) -> Result<[Cost; N]> {
    let mut least = measure()?;
    for _ in 1..MOST_TRIES {
        if !least.iter().any(|cost| grows(caches, cost)) {
            break;
        }
        for (least, again) in least.iter_mut().flatten().zip(measure()?.into_iter().flatten()) {
            *least = least.min(again);
        }
    }
    Ok(least)
}

fn grows(caches: f64, [beside_few, beside_many]: &Cost) -> bool {
    *beside_many > beside_few / LEAST_RATIO + caches
}

/// Prints a row of the table, and remembers what grows.
fn judge(
    what: &str,
    [few, many]: Counts,
    caches: f64,
    [beside_few, beside_many]: Cost,
    failed: &mut Vec<String>,
) {
    let ratio = beside_few / beside_many;
    println!(
        "{what:34} {few:>7} {many:>7} {:>9.1} {:>9.1} {ratio:>6.2}",
        beside_few / 1e3,
        beside_many / 1e3
    );
    if grows(caches, &[beside_few, beside_many]) {
        failed.push(format!("{what}, {ratio:.2}"));
    }
}

/// Connections by the Rust API, between two processes.
fn in_rust(dist: &Dist, rounds: u32) -> Result<Cost> {
    let mut best = [f64::INFINITY; 2];
    for _ in 0..rounds {
        for (best, count) in best.iter_mut().zip(CONNECTIONS) {
            let mut command = Command::new(dist.nonic());
            command.args([
                "perf",
                "--loopback",
                "--json",
                "--connections",
                &count.to_string(),
            ]);
            let printed = Process::start(&mut command)?.finish()?;
            let found: serde_json::Value = serde_json::from_str(&printed).context("nonic perf")?;
            let sides = ["client", "server"].map(|side| found[side]["connect_cpu_seconds"].as_f64());
            let [Some(client), Some(server)] = sides else {
                anyhow::bail!("nonic perf does not tell its processor time: {printed}");
            };
            *best = best.min((client + server) * 1e9 / f64::from(count));
        }
    }
    Ok(best)
}

/// What the C libraries take to make one, and to take it away again.
fn in_c(dist: &Dist, program: &Path, subject: &str, counts: Counts, rounds: u32) -> Result<[Cost; 2]> {
    let mut command = Command::new(dist.nonic());
    command.env("NONIC_LOOPBACK", "only");
    command.args(["run", "--"]).arg(program).arg(subject);
    command.args([counts[0], counts[1], rounds].map(|number| number.to_string()));
    let printed = Process::start(&mut command)?
        .finish()
        .context(subject.to_owned())?;
    let numbers: Vec<f64> = printed
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [made_few, made_many, gone_few, gone_many] = numbers[..] else {
        anyhow::bail!("{subject}: {printed}");
    };
    Ok([[made_few, made_many], [gone_few, gone_many]])
}
