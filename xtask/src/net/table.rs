//! `net table`: nonic beside TCP on faulty wires, each subject in turn, reported as ratios.

use super::cells::{self, Cell};
use super::many::{self, Mix};
use super::report::{self, Report};
use super::row::Row;
use super::subject::{Figure, Meter, Subject};
use super::trial::describe;
use super::{Built, network::Network};
use crate::dist;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testbed::packages::is_root;

/// What to measure, and how long.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    dist: dist::Chosen,
    /// Rounds; each measures everybody once
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long everybody sends, in seconds
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// One round of a second each, to see that it works
    #[arg(long)]
    quick: bool,
    /// Only wires whose name or settings contain this
    #[arg(long, default_value = "", value_name = "PATTERN")]
    only: String,
    /// Every wire has this as well, in both directions, such as rate=500mbit: then processors do not decide
    #[arg(long, default_value = "", value_name = "SETTINGS")]
    also: String,
    /// Also tell what the wire and nonic counted
    #[arg(long)]
    counters: bool,
    /// Write docs/networks.md
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "docs", conflicts_with_all = ["only", "also"])]
    report: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(is_root(), "only root can make network namespaces");
    let began = Instant::now();
    let built = Built::new(&options.dist)?;
    let seconds = if options.quick { 1.0 } else { options.seconds };
    let meter = Meter {
        nonic: &built.nonic,
        duration: Duration::try_from_secs_f64(seconds)?,
        // As much as TCP's buffers hold.
        depth: 128,
    };
    let rounds = if options.quick { 1 } else { options.rounds };
    let mut cells = cells::all();
    cells.retain(|cell| cell.mentions(&options.only));
    for cell in &mut cells {
        cell.add(&options.also)?;
    }
    let mixes = mixes(&options.only);
    ensure!(!cells.is_empty() || !mixes.is_empty(), "no wire mentions that");
    let rows: Vec<Row> = cells
        .into_iter()
        .map(|cell| measure(&meter, cell, rounds, options.counters))
        .collect();
    let many_meter = Meter {
        duration: meter.duration * 3,
        // More than a sender's part of what the path holds, and little to wait for at the end.
        depth: 2,
        ..meter
    };
    let mut crowds = Vec::new();
    for mix in mixes {
        match many::measure(&many_meter, mix, 1) {
            Ok(found) => {
                eprintln!("{}: {:.1?} {}", mix.name(), found.rates, describe(&found.steady));
                crowds.push(found);
            }
            Err(error) => eprintln!("{}: {error:#}", mix.name()),
        }
    }
    let report = Report {
        rows: &rows,
        crowds: &crowds,
        rounds,
        seconds,
        took: began.elapsed(),
    };
    println!("{}", report.tables());
    if let Some(docs) = &options.report {
        report::write(docs, &report, &built.root)?;
    }
    Ok(())
}

/// The senders that share the bottleneck, if the pattern is about that.
fn mixes(pattern: &str) -> Vec<Mix> {
    let all = [
        Mix::All(Subject::Roce),
        Mix::All(Subject::Tcp("cubic")),
        Mix::Halves(Subject::Roce, Subject::Tcp("cubic")),
    ];
    let named = |mix: &Mix| format!("bottleneck: {}", mix.name()).contains(pattern);
    all.into_iter().filter(named).collect()
}

/// Measures every subject on one wire, round by round.
fn measure(meter: &Meter<'_>, cell: Cell, rounds: u32, counters: bool) -> Row {
    let mut rates: BTreeMap<Subject, Vec<Option<f64>>> = BTreeMap::new();
    for round in 0..rounds as usize {
        for subject in cell.subjects(round) {
            let found = subject
                .is_available()
                .then(|| measure_once(meter, &cell, subject, round, counters));
            let rate = found.map(|found| match found {
                Ok(figure) => figure.mbit,
                Err(error) => {
                    eprintln!("{}: {}: {error:#}", cell.name, subject.name());
                    // A subject that does not end moved nothing.
                    0.0
                }
            });
            rates.entry(subject).or_default().push(rate);
        }
    }
    let row = Row { cell, rates };
    eprintln!("{}", report::line(&row));
    row
}

fn measure_once(
    meter: &Meter<'_>,
    cell: &Cell,
    subject: Subject,
    round: usize,
    counters: bool,
) -> Result<Figure> {
    let network = Network::new(&cell.plan(1 + round as u64))?;
    let found = meter.measure(&network, subject);
    if counters {
        let [there, back] = network.wire.counters();
        eprintln!("  {} on {}", subject.name(), cell.name);
        eprintln!("    there: {}\n    back: {}", describe(&there), describe(&back));
        if let Ok(figure) = &found {
            eprintln!("    {:.0} Mbit/s", figure.mbit);
            let told = figure.counters.iter().filter(|(_, count)| **count > 0);
            let told: Vec<String> = told.map(|(name, count)| format!("{name} {count}")).collect();
            eprintln!("    {}", told.join(", "));
        }
    }
    found
}
