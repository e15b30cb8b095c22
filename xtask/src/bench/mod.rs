//! nonic beside the bare machine, and beside what one would use instead: the same work, in one run, taking turns.
//!
//! Shared machines swing by a factor of two within minutes, so single figures mean little. Every round measures all subjects
//! of a comparison back to back, and each round begins with another one; what is reported is the median of the rounds' ratios,
//! and their extremes. `--report` writes `docs/performance.md` and its plots. It judges but never fails for being slow: a
//! machine that others use too would fail for nothing.
//!
//! Read first: [`rows`] (what is compared, and what must show), [`probe`] (the subjects), [`measure`] (how), [`bare_loops`]
//! (the yardsticks).

mod before;
mod curves;
mod guest;
pub(crate) mod machine;
mod measure;
mod parse;
mod probe;
pub(crate) mod report;
mod rows;
pub(crate) mod svg;
mod table;
mod verdict;
mod watched;

use crate::dist;
use anyhow::{Context, Result, ensure};
use before::Builds;
use machine::Machine;
use measure::{Absence, Bench};
use report::Report;
use rows::Comparison;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testbed::namespace::VethPair;
use testbed::packages::is_root;
use testbed::sysctl::Sysctl;
use testbed::topology::{self, Topology};
use verdict::Found;

/// Rounds of the plots, at most: they have many figures, and are only looked at.
const CURVE_ROUNDS: u32 = 3;

/// What to measure, and how long.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    dist: dist::Chosen,
    /// Rounds; each measures every subject once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Begin no round that would not be over after so many minutes, if there was one
    #[arg(long, default_value_t = 8.0)]
    minutes: f64,
    /// One short round, to see that it works
    #[arg(long)]
    quick: bool,
    /// Only rows whose title or rival contains this, or those of a place: `onehost`, `twohosts`
    #[arg(long, default_value = "", value_name = "PATTERN")]
    only: String,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
    /// Write performance.md and its plots to this folder
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "docs", conflicts_with = "only")]
    report: Option<PathBuf>,
    /// What it costs to be watched: only perftest, with `nonic top` running and without it
    #[arg(long, conflicts_with_all = ["report", "guest", "only", "json"])]
    watched: bool,
    /// Only nonic, and beside it another build's folder, as made by `dist`: whether a change made anything slower
    #[arg(long, value_name = "DIR", conflicts_with_all = ["report", "guest", "watched"])]
    before: Option<PathBuf>,
    /// Also beside Linux's rxe, in a guest: minutes more
    #[arg(long)]
    guest: bool,
}

impl Options {
    fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }
}

/// Measures and tells.
pub(crate) fn run(options: &Options) -> Result<()> {
    let began = Instant::now();
    let comparisons = chosen(&options.only);
    ensure!(!comparisons.is_empty(), "no row mentions that");
    let dist = options.dist.get()?;
    let _buffers = Sysctl::at_least("/proc/sys/net/core/rmem_max", 4 << 20);
    let veth_pair = if is_root() { Some(VethPair::new()?) } else { None };
    let topologies = veth_pair.as_ref().map(as_ourselves);
    let bench = Bench {
        nonic: dist.nonic(),
        one_host: topologies.as_ref().map_or_else(|| topology::here(), |all| all[0]),
        two_hosts: topologies.as_ref().map(|all| all[1]),
        scale: if options.quick { 0.1 } else { 1.0 },
    };
    if options.watched {
        return watched::run(bench, options.rounds());
    }
    let machine = Machine::with_dist(&dist.root, options.dist.is_current().then(commit).flatten());
    let whole = Duration::try_from_secs_f64(options.minutes * 60.0).context("not a number of minutes")?;
    if let Some(before) = &options.before {
        let before = Bench {
            nonic: std::path::absolute(before)?.join("bin/nonic"),
            ..bench
        };
        compare_builds(&before, &bench, &comparisons, options, began + whole);
        return Ok(());
    }
    // Plots take longer for a round, and less depends on them.
    let for_tables = if options.report.is_some() {
        whole * 6 / 10
    } else {
        whole
    };
    let mut found = Found::default();
    let rounds = repeat(options.rounds(), began + for_tables, |round| {
        measure_round(&bench, &comparisons, round, &mut found);
    });
    // What was measured so far must not be lost with a guest.
    let in_guest = options.guest.then(|| guest::measure(&dist.root));
    let in_guest = in_guest.map(|found| found.unwrap_or_else(|error| guest::failed(&error)));
    let mut plots = Vec::new();
    if let Some(docs) = &options.report {
        plots = curves::all();
        let curve_rounds = repeat(rounds.min(CURVE_ROUNDS), began + whole, |round| {
            curves::measure_round(&bench, &mut plots, round);
        });
        let report = Report {
            machine: &machine,
            tables: table::markdown(&comparisons, &found),
            plots: &plots,
            guest: in_guest.as_ref().map(guest::markdown),
            rounds,
            curve_rounds,
            seconds: began.elapsed().as_secs_f64(),
        };
        report.write(docs)?;
    }
    let results = Results {
        machine,
        comparisons,
        found,
        plots,
        in_guest,
        rounds,
    };
    results.print(options.json);
    eprintln!("took {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// What was measured, where.
struct Results {
    machine: Machine,
    comparisons: Vec<Comparison>,
    found: Found,
    plots: Vec<curves::Plot>,
    in_guest: Option<serde_json::Value>,
    rounds: u32,
}

impl Results {
    fn print(self, as_json: bool) {
        match as_json {
            true => println!("{:#}", self.json()),
            false => print!("{}", self.text()),
        }
    }

    fn json(self) -> serde_json::Value {
        let mut json = table::json(&self.comparisons, &self.found, self.rounds);
        json["machine"] = self.machine.json();
        json["curves"] = self.plots.iter().map(curves::Plot::json).collect();
        json["guest"] = self.in_guest.unwrap_or_default();
        json
    }

    fn text(&self) -> String {
        let in_guest = self.in_guest.as_ref().map(guest::markdown);
        let in_guest = in_guest.map(|markdown| format!("\n{markdown}"));
        table::text(&self.comparisons, &self.found) + &in_guest.unwrap_or_default()
    }
}

/// Measures what is nonic's with another build as well, and tells how they compare.
fn compare_builds(
    before: &Bench<'_>,
    now: &Bench<'_>,
    comparisons: &[Comparison],
    options: &Options,
    until: Instant,
) {
    let mut builds = Builds::new(comparisons);
    let rounds = repeat(options.rounds(), until, |round| {
        builds.measure_round(before, now, round);
    });
    if options.json {
        println!("{:#}", builds.json(rounds));
    } else {
        print!("{}", builds.text());
    }
}

/// Where programs run, as the user who runs this: what we measure needs no rights, but which processes may be traced
/// depends on the user.
fn as_ourselves(pair: &VethPair) -> [Topology<'_>; topology::TOPOLOGIES] {
    topology::all(pair).map(|mut topology| {
        topology.server.as_nobody = false;
        topology.client.as_nobody = false;
        topology
    })
}

/// What the folder was built from.
pub(crate) fn commit() -> Option<String> {
    let asked = std::process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .current_dir(dist::workspace())
        .output();
    let answer = String::from_utf8_lossy(&asked.ok()?.stdout).trim().to_owned();
    (!answer.is_empty()).then_some(answer)
}

/// The comparisons with the rows that mention a pattern.
fn chosen(pattern: &str) -> Vec<Comparison> {
    let mut comparisons = rows::all();
    for comparison in &mut comparisons {
        comparison.rows.retain(|row| row.mentions(pattern));
    }
    comparisons.retain(|comparison| !comparison.rows.is_empty());
    comparisons
}

/// Runs rounds as long as there is time for another as long as the last, but one at least; how many there were.
fn repeat(most: u32, until: Instant, mut round: impl FnMut(usize)) -> u32 {
    for done in 0..most {
        let began = Instant::now();
        round(done as usize);
        let now = Instant::now();
        if now + (now - began) > until {
            return done + 1;
        }
    }
    most
}

/// Measures everything once; within a comparison each round begins with another subject.
fn measure_round(bench: &Bench<'_>, comparisons: &[Comparison], round: usize, found: &mut Found) {
    let began = Instant::now();
    for comparison in comparisons {
        let mut probes = comparison.probes();
        let first = round % probes.len();
        probes.rotate_left(first);
        eprintln!("round {}: {}", round + 1, comparison.title);
        for probe in probes {
            let figure = bench.measure(&probe);
            let said = match &figure {
                Ok(figure) => probe.quantity.show(figure.value),
                Err(Absence::NotInstalled(package)) => format!("not installed ({package})"),
                Err(Absence::NeedsRoot) => "needs root".to_owned(),
                Err(Absence::Failed(complaint)) => format!("failed: {complaint}"),
            };
            eprintln!("  {:<50} {said}", probe.name());
            found.add(probe, figure);
        }
    }
    eprintln!("round {} took {:.0} s", round + 1, began.elapsed().as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_round_however_little_time_there_is_and_never_more_than_wanted() {
        let mut seen = Vec::new();
        assert_eq!(repeat(5, Instant::now(), |round| seen.push(round)), 1);
        assert_eq!(seen, [0]);
        let later = Instant::now() + Duration::from_secs(3600);
        assert_eq!(repeat(3, later, |_| ()), 3);
    }
}
