//! `nonic sim`: random fabrics in virtual time, every completion and every byte checked, or every connection; or networks at size,
//! and what becomes of goodput and queues there.

mod network;

use crate::draw::{self, View, Window};
use crate::exit::ExitWith;
use crate::interrupt::Interrupt;
use crate::output;
use crate::units;
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use nonic_sim::{Options, Report, Summary, Workload, record_seed, run_many_of, run_seed, story_of_failure};
use serde_json::{Value, json};
use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Without a terminal, a line this often says that it still runs.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// One bug fails many seeds; these are enough to find it.
const ENOUGH_FAILURES: u64 = 20;
/// How many of the events before a failure are printed.
const EVENTS_OF_A_STORY: usize = 40;
/// More seeds than a person waits for.
const MANY_SEEDS: u64 = 1 << 40;

/// Run random workloads over simulated, faulty networks and check everything
///
/// Each seed is a fabric, its faults and a workload; the same seed is the same run, always. A seed that goes
/// wrong is printed as the command that repeats it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct Arguments {
    /// How many seeds to run [default: 1000, or as many as fit in --seconds]
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "seed")]
    seeds: Option<u64>,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 0, conflicts_with = "seed")]
    first: u64,
    /// Run this one seed
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Threads [default: one per processor]
    #[arg(short, long, value_name = "N", conflicts_with = "seed")]
    threads: Option<NonZero<usize>>,
    /// Connect and disconnect through the connection manager instead of moving data
    #[arg(short, long)]
    connections: bool,
    /// Keep many processes at one address busy, of which some do not answer, and measure what the others get
    #[arg(long, conflicts_with = "connections")]
    shares: bool,
    /// Move data over iWARP queue pairs, on byte streams that are cut, slowed, damaged and broken off
    #[arg(long, conflicts_with_all = ["connections", "shares", "pcap"])]
    iwarp: bool,
    /// Send messages between two ends of a channel, over a connection that is slow and breaks and whose ends are killed
    #[arg(long, conflicts_with_all = ["connections", "shares", "iwarp", "pcap"])]
    messages: bool,
    /// Run networks of up to a thousand hosts: congestion, incast, cut cables, several paths
    #[arg(long, conflicts_with_all = ["connections", "shares", "iwarp", "messages", "seed", "seeds", "first", "seconds"])]
    network: bool,
    /// Of those, only this one
    #[arg(long, value_name = "NAME", requires = "network")]
    scenario: Option<String>,
    /// Run them shorter, and only with nonic's own law; what must hold is the same
    #[arg(long, requires = "network")]
    quick: bool,
    /// Write what came out as networks-simulated.md and plots to this folder
    #[arg(long, value_name = "FOLDER", requires = "network", num_args = 0..=1, default_missing_value = "docs")]
    report: Option<PathBuf>,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "seed")]
    seconds: Option<Duration>,
    /// Write the seed's packets to this pcapng file
    #[arg(long, value_name = "FILE", requires = "seed")]
    pcap: Option<PathBuf>,
    /// Tell on standard error what happens
    #[arg(short, long, requires = "seed")]
    verbose: bool,
    /// Draw the seed as a ladder diagram: what was posted, sent, lost, placed and completed; to FILE as SVG
    #[arg(long, value_name = "FILE", requires = "seed", num_args = 0..=1, require_equals = true,
        conflicts_with_all = ["connections", "shares", "iwarp", "messages", "network", "pcap", "verbose"])]
    draw: Option<Option<PathBuf>>,
    #[command(flatten)]
    window: Window,
}

const NOTES: &str = "\
JSON (--json): {seeds, seconds, seeds_per_second, virtual_seconds, packets, operations, completions,
  failed_requests, failures: [{seed, virtual_ns, what, reproduce}]}; with --seed also trace_hash.
  With --connections, operations are connections asked for, completions those established, failed_requests
  those refused or given up. With --iwarp, packets are writes that a stream took. With --messages, packets are frames,
  operations messages sent, completions those taken, and virtual time counts steps.
  With --network: {seconds, quick, scenarios: [{name, holds, checks: [{what, value, at_least or at_most, holds}],
  runs: [{law, goodput, fairness, queue_bytes, completion_seconds, ...}]}]}.";

impl Arguments {
    fn workload(&self) -> Workload {
        if self.connections {
            Workload::Connections
        } else if self.shares {
            Workload::Shares
        } else if self.iwarp {
            Workload::Streams
        } else if self.messages {
            Workload::Messages
        } else {
            Workload::Traffic
        }
    }
}

pub(crate) fn main(arguments: &Arguments, json: bool) -> Result<()> {
    if arguments.network {
        return network::main(&network::Request {
            scenario: arguments.scenario.as_deref(),
            quick: arguments.quick,
            report: arguments.report.as_deref(),
            threads: threads(arguments),
            json,
        });
    }
    match (arguments.seed, &arguments.draw) {
        (Some(seed), Some(svg)) => drawn(arguments, seed, svg.clone(), json),
        (Some(seed), None) => one(arguments, seed, json),
        (None, _) => many(arguments, json),
    }
}

/// Draws a seed, whatever comes of it.
fn drawn(arguments: &Arguments, seed: u64, svg: Option<PathBuf>, json: bool) -> Result<()> {
    let (outcome, ladder) = record_seed(seed);
    let view = View {
        window: arguments.window.clone(),
        svg,
        all: true,
    };
    draw::show(&view.window.selection().apply(ladder), &view, json)?;
    match outcome {
        Ok(_) => Ok(()),
        Err(failure) => bail!("{failure}"),
    }
}

fn one(arguments: &Arguments, seed: u64, json: bool) -> Result<()> {
    if let Some(path) = &arguments.pcap {
        // Said before the run, and with the file's name.
        std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let options = Options {
        pcap: arguments.pcap.clone(),
        narrate: arguments.verbose,
        workload: arguments.workload(),
    };
    let start = Instant::now();
    let outcome = run_seed(seed, &options);
    let mut summary = Summary {
        seeds: 1,
        ..Summary::default()
    };
    match outcome {
        Ok(report) => summary.total = report,
        Err(failure) => summary.failures.push(failure),
    }
    report(&summary, start.elapsed(), json)
}

fn many(arguments: &Arguments, json: bool) -> Result<()> {
    let count = match (arguments.seeds, arguments.seconds) {
        (Some(count), _) => count,
        (None, Some(_)) => MANY_SEEDS,
        (None, None) => 1000,
    };
    if arguments.first.checked_add(count).is_none() {
        bail!("the last seed would be beyond 2^64; use a smaller --first or --seeds");
    }
    let start = Instant::now();
    let interrupt = Interrupt::watch()?;
    let ticker = Ticker::new(count, json);
    let summary = run_many_of(
        arguments.workload(),
        arguments.first,
        count,
        threads(arguments),
        |done, failures| {
            ticker.tick(done, failures, start.elapsed());
            let time_is_up = arguments.seconds.is_some_and(|limit| start.elapsed() >= limit);
            failures < ENOUGH_FAILURES && !time_is_up && !interrupt.is_told()
        },
    );
    ticker.finish();
    let reason = reason_to_stop(&summary, count, interrupt.is_told());
    if let (Some(reason), false) = (reason, json) {
        let of = match count {
            MANY_SEEDS => String::new(),
            count => format!(" of {count}"),
        };
        output::line(format_args!(
            "stopped after {} seeds{of}: {reason}",
            summary.seeds
        ))?;
    }
    report(&summary, start.elapsed(), json)?;
    match interrupt.is_told() {
        true => Err(ExitWith::interrupted().into()),
        false => Ok(()),
    }
}

/// Why fewer seeds were run than were asked for, if that was so.
fn reason_to_stop(summary: &Summary, count: u64, is_interrupted: bool) -> Option<String> {
    let failures = summary.failures.len();
    if summary.seeds >= count || (count == MANY_SEEDS && !is_interrupted) {
        return None;
    }
    Some(match failures as u64 >= ENOUGH_FAILURES {
        true => format!("{failures} failures are enough to find a bug"),
        false if is_interrupted => "interrupted".to_owned(),
        false => "the time was up".to_owned(),
    })
}

fn threads(arguments: &Arguments) -> usize {
    match arguments.threads {
        Some(threads) => threads.get(),
        None => std::thread::available_parallelism().map_or(1, NonZero::get),
    }
}

fn report(summary: &Summary, elapsed: Duration, json: bool) -> Result<()> {
    if json {
        output::json(&as_json(summary, elapsed))?;
    } else {
        print(summary, elapsed)?;
    }
    match summary.failures.len() {
        0 => Ok(()),
        1 => bail!("1 seed failed"),
        failures => bail!("{failures} seeds failed"),
    }
}

fn print(summary: &Summary, elapsed: Duration) -> Result<()> {
    let Report {
        virtual_ns,
        packets,
        operations,
        completions,
        failures,
        trace_hash,
        ..
    } = summary.total;
    output::line(format_args!(
        "{} seeds in {:.1} s ({:.0}/s): {:.1} virtual seconds, {packets} packets, {operations} requests, \
         {completions} completed as checked, {failures} failed as they may",
        summary.seeds,
        elapsed.as_secs_f64(),
        per_second(summary.seeds, elapsed),
        virtual_ns as f64 / 1e9,
    ))?;
    if summary.seeds == 1 && summary.failures.is_empty() {
        output::line(format_args!("trace {trace_hash:016x}"))?;
    }
    summary.failures.iter().try_for_each(output::line)?;
    // One bug fails many seeds; the story of the first is enough to begin with.
    let first = summary
        .failures
        .iter()
        .find(|failure| failure.workload == Workload::Traffic);
    let Some(failure) = first else {
        return Ok(());
    };
    match story_of_failure(failure.seed, EVENTS_OF_A_STORY) {
        Some(story) => {
            output::line("")?;
            draw::show(&story, &View::terminal(), false)?;
            output::line(format_args!(
                "nonic sim --seed {} --draw=seed.svg draws all of it; docs/debugging.md says how to go on",
                failure.seed
            ))
        }
        None => Ok(()),
    }
}

fn as_json(summary: &Summary, elapsed: Duration) -> Value {
    let failures: Vec<Value> = summary
        .failures
        .iter()
        .map(|failure| {
            json!({
                "seed": failure.seed,
                "virtual_ns": failure.virtual_ns,
                "what": failure.what,
                "reproduce": format!("nonic sim{} --seed {}", failure.workload.flag(), failure.seed),
            })
        })
        .collect();
    let total = &summary.total;
    let mut value = json!({
        "seeds": summary.seeds,
        "seconds": elapsed.as_secs_f64(),
        "seeds_per_second": per_second(summary.seeds, elapsed),
        "virtual_seconds": total.virtual_ns as f64 / 1e9,
        "packets": total.packets,
        "operations": total.operations,
        "completions": total.completions,
        "failed_requests": total.failures,
        "failures": failures,
    });
    if summary.seeds == 1 {
        value["trace_hash"] = Value::from(format!("{:016x}", total.trace_hash));
    }
    value
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64().max(1e-9)
}

/// Shows that it goes on: a bar on a terminal, a line now and then elsewhere.
struct Ticker {
    bar: Option<ProgressBar>,
    spoken: Mutex<Instant>,
}

impl Ticker {
    fn new(count: u64, json: bool) -> Self {
        let bar = (output::progress_is_welcome() && !json).then(|| {
            let bar = ProgressBar::new(count);
            let template = "{bar:30} {pos}/{len} seeds, {eta} left{msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        Ticker {
            bar,
            spoken: Mutex::new(Instant::now()),
        }
    }

    fn tick(&self, done: u64, failures: u64, elapsed: Duration) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            let failed = if failures > 0 {
                format!(", {failures} FAILED")
            } else {
                String::new()
            };
            bar.set_message(format!(", {:.0}/s{failed}", per_second(done, elapsed)));
            return;
        }
        let mut spoken = self.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        if spoken.elapsed() >= HEARTBEAT {
            *spoken = Instant::now();
            let rate = per_second(done, elapsed);
            // A closed standard error is no reason to stop.
            let _ = writeln!(std::io::stderr(), "{done} seeds, {rate:.0}/s, {failures} failed");
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
