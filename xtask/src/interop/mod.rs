//! nonic and Linux's rxe, or siw, on one wire: the same programs on both sides, each way round.
//!
//! nonic runs here, rxe or siw in a guest of the [`testbed::lab`]; a tap device and a bridge are between them. What passes
//! is written in `docs/interop.md`, with rxe's counters before and after.
//!
//! It has a case and a runner of its own, unlike [`crate::tools`] and [`crate::programs`], which share [`testbed::case`]. A row here is
//! judged in four cells on one guest, which keeps its state from cell to cell: it is booted anew when its kernel breaks down, and
//! the cell is then run again. A row is also judged by what both sides counted in all four cells together. Nothing is known to
//! fail. So rows can neither run side by side nor be judged one cell at a time, which is all that the common runner does.
//!
//! Read first: [`case`] (what a row is) and [`cases`] (the rows), then [`runner`] (one row) and [`pair`] (one cell).

mod case;
mod cases;
mod commands;
mod comparison;
mod counters;
mod disturbed;
mod document;
mod gids;
mod pair;
mod row;
mod runner;
mod siw_cases;
mod table;

use crate::dist::{self, Dist};
use anyhow::{Context, Result, ensure};
use case::{Case, Opposite, Wire};
use counters::Tally;
use document::{Shown, Table};
use pair::Bench;
use row::{Row, mtus};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testbed::lab::{self, Lab, siw};
use testbed::packages::install;
use testbed::sysctl::Sysctl;

/// The core's cells take a few seconds each.
const CORE_PATIENCE: Duration = Duration::from_secs(30);

/// The core takes minutes. If many cells wait in vain, the rest is not run.
const CORE_LIMIT: Duration = Duration::from_secs(600);

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    dist: dist::Chosen,
    /// iWARP, with siw, instead of RoCE with rxe
    #[arg(long)]
    iwarp: bool,
    /// Only rows whose name or group contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Only the rows every change must pass, at the usual MTU
    #[arg(long)]
    core: bool,
    /// Only at this MTU of the wire [default: 1500, then 4200]
    #[arg(long)]
    mtu: Option<u32>,
    /// Run each row, or each cell of `--disturbed`, so often
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// Print what was found as JSON, instead of a table
    #[arg(long)]
    json: bool,
    /// Write what was found to docs/interop.md; rows that were not run stay as they are there
    #[arg(long, conflicts_with = "core")]
    write: bool,
    /// Only rows that docs/interop.md does not show as passed
    #[arg(long)]
    missing: bool,
    /// Write what is on the wire to this folder, a file per cell
    #[arg(long, value_name = "DIR")]
    captures: Option<PathBuf>,
    /// Compare the speed of both, in one guest, instead, and show where nonic's time goes
    #[arg(long)]
    beside: bool,
    /// Compare the goodput of nonic with rxe and of rxe with rxe instead, between two guests, on wires that delay and lose
    #[arg(long, conflicts_with_all = ["iwarp", "beside"])]
    disturbed: bool,
}

impl Options {
    fn takes(&self, case: &Case, shown: &Shown) -> bool {
        let named = case.name().contains(&self.only) || case.group.contains(&self.only);
        named && (case.core || !self.core) && !(self.missing && shown.has_passed(case))
    }

    fn mtus(&self) -> Vec<u32> {
        let all = mtus(self.opposite());
        match (self.mtu, self.core) {
            (Some(mtu), _) => vec![mtu],
            (None, true) => vec![all[0]],
            (None, false) => all.to_vec(),
        }
    }

    fn opposite(&self) -> Opposite {
        if self.iwarp { Opposite::Siw } else { Opposite::Rxe }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if !lab::is_inside() {
        lab::prepare()?;
        install(&[
            ("/usr/bin/ibv_devinfo", "ibverbs-utils"),
            (
                "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
                "ibverbs-providers",
            ),
            ("/usr/bin/ib_write_bw", "perftest"),
            ("/usr/bin/rping", "rdmacm-utils"),
            ("/usr/sbin/ethtool", "ethtool"),
            ("/usr/lib/python3/dist-packages/pyverbs", "python3-pyverbs"),
        ])?;
        if options.iwarp {
            install(&[("/usr/bin/fio", "fio")])?;
            siw::build()?;
        }
        if let Some(folder) = &options.captures {
            install(&[("/usr/bin/tcpdump", "tcpdump")])?;
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        if options.beside && !options.json {
            install(&[("/usr/bin/perf", "linux-perf")])?;
        }
        options.dist.get()?;
        return Err(lab::enter());
    }
    let dist = options.dist.existing()?;
    if options.beside {
        return comparison::run(&dist, options.opposite(), &options.only, options.json);
    }
    if options.disturbed {
        return disturbed::run(&dist, &options.only, options.repeat, options.json);
    }
    let rows = matrix(options, &dist)?;
    if options.json {
        println!("{:#}", table::json(&rows));
    }
    let (passed, failed) = table::totals(&rows);
    println!("interop: {passed} passed, {failed} failed");
    let again = table::again(&rows);
    if again > 0 {
        println!("of these, {again} passed when run again, after the guest's kernel had broken down");
    }
    ensure!(passed + failed > 0, "no row has that in its name");
    ensure!(
        failed == 0,
        "nonic and {} do not understand each other everywhere",
        options.opposite().driver()
    );
    let complaints: Vec<String> = rows.iter().filter_map(Row::complaint).collect();
    ensure!(
        complaints.is_empty(),
        "counted on a wire that nobody disturbed: {}",
        complaints.join("; ")
    );
    Ok(())
}

fn matrix(options: &Options, dist: &Dist) -> Result<Vec<Row>> {
    // UC and UD have no flow control: what the peer does not read in time must fit its socket buffer.
    let _buffers = Sysctl::at_least("/proc/sys/net/core/rmem_max", 4 << 20);
    let mtus = options.mtus();
    let mut lab = Lab::new(mtus[0])?;
    let began = Instant::now();
    let mut guest = lab.boot(1, 768, 1)?;
    eprintln!("guest up after {:.1} s", began.elapsed().as_secs_f32());
    let opposite = options.opposite();
    let mut rows = Vec::new();
    if !options.json {
        println!("{}", table::HEADER);
    }
    let mut breakdowns = 0;
    for mtu in mtus {
        lab.set_mtu(mtu, &[1])?;
        let mut bench = Bench::new(&lab, &mut guest, dist, opposite, mtu)?;
        bench.captures.clone_from(&options.captures);
        bench.breakdowns = breakdowns;
        if options.core {
            bench.patience = CORE_PATIENCE;
        }
        breakdowns = at_one_mtu(options, bench, began, &mut rows)?;
    }
    Ok(rows)
}

/// First what leaves the wire alone, last what disturbs it: each is counted for itself.
/// Answers how often the guest broke down until now.
fn at_one_mtu(options: &Options, mut bench: Bench<'_>, began: Instant, rows: &mut Vec<Row>) -> Result<u32> {
    let (mtu, opposite) = (bench.mtu, bench.opposite);
    let table = Table { opposite, mtu };
    let mut shown = if options.write || options.missing {
        Shown::read(table)?
    } else {
        Shown::default()
    };
    for wire in Wire::ALL {
        let mut chosen = cases::with(opposite);
        chosen.retain(|case| options.takes(case, &shown) && case.wire() == wire);
        if options.core {
            chosen.iter_mut().for_each(Case::shorten);
        }
        if chosen.is_empty() {
            continue;
        }
        let mut sum = Tally::default();
        let repeated = chosen
            .into_iter()
            .flat_map(|case| std::iter::repeat_n(case, options.repeat as usize));
        for case in repeated {
            ensure!(
                !options.core || options.repeat > 1 || began.elapsed() < CORE_LIMIT,
                "not done after {CORE_LIMIT:?}: {} rows were run",
                rows.len()
            );
            let row = runner::one_row(&mut bench, case, options.json)?;
            sum.add(&row.tally);
            rows.push(row);
            if options.write {
                shown.write(table, rows)?;
            }
        }
        eprint!("MTU {mtu}, {wire:?}\n{}", sum.text());
    }
    Ok(bench.breakdowns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        for opposite in [Opposite::Rxe, Opposite::Siw] {
            let mut names: Vec<String> = cases::with(opposite).iter().map(Case::name).collect();
            let all = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }
}
