//! nonic and Linux's rxe on one wire: the same programs on both sides, each way round.
//!
//! nonic runs here, rxe in a guest of the [`crate::lab`]; a tap device and a bridge are between them. What passes
//! is written in `docs/interop.md`, with rxe's counters before and after.
//!
//! Read first: [`case`] (what a row is) and [`cases`] (the rows), then [`pair`] (one cell).

mod case;
mod cases;
mod commands;
mod comparison;
mod counters;
mod document;
mod gids;
mod pair;
mod row;
mod table;

use crate::dist::{self, Dist};
use crate::host::{Sysctl, install};
use crate::lab::{self, Lab};
use anyhow::{Context, Result, ensure};
use case::{Case, Wire};
use counters::{Counters, Seen, Tally};
use document::Shown;
use gids::Gids;
use pair::Bench;
use row::{COLUMNS, Cell, MTUS, Row};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    build: dist::Options,
    /// Only rows whose name or group contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Only the rows every change must pass, at the usual MTU
    #[arg(long)]
    core: bool,
    /// Only at this MTU of the wire [default: 1500, then 4200]
    #[arg(long)]
    mtu: Option<u32>,
    /// Print what was found as JSON, instead of a table
    #[arg(long)]
    json: bool,
    /// Write what was found to docs/interop.md; rows that were not run stay as they are there
    #[arg(long)]
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
    /// Do not build; use this folder, as made by `dist`
    #[arg(long = "dist", value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Options {
    fn takes(&self, case: &Case, shown: &Shown) -> bool {
        let named = case.name().contains(&self.only) || case.group.contains(&self.only);
        named && (case.core || !self.core) && !(self.missing && shown.has_passed(case))
    }

    fn mtus(&self) -> Vec<u32> {
        match (self.mtu, self.core) {
            (Some(mtu), _) => vec![mtu],
            (None, true) => vec![MTUS[0]],
            (None, false) => MTUS.to_vec(),
        }
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
            ("/usr/lib/python3/dist-packages/pyverbs", "python3-pyverbs"),
        ])?;
        if let Some(folder) = &options.captures {
            install(&[("/usr/bin/tcpdump", "tcpdump")])?;
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        if options.beside && !options.json {
            install(&[("/usr/bin/perf", "linux-perf")])?;
        }
        if options.folder.is_none() {
            Dist::build(&options.build)?;
        }
        return Err(lab::enter());
    }
    let dist = match &options.folder {
        Some(root) => Dist { root: root.clone() },
        None => Dist::built(&options.build)?,
    };
    if options.beside {
        return comparison::run(&dist, options.json);
    }
    let rows = matrix(options, &dist)?;
    if options.json {
        println!("{:#}", table::json(&rows));
    }
    let (passed, failed) = table::totals(&rows);
    println!("interop: {passed} passed, {failed} failed");
    ensure!(passed + failed > 0, "no row has that in its name");
    ensure!(
        failed == 0,
        "nonic and rxe do not understand each other everywhere"
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
    for folder in [lab.folder(), guest.folder()] {
        std::fs::write(folder.join("peer.py"), include_str!("peer.py"))?;
    }
    let mut rows = Vec::new();
    if !options.json {
        println!("{}", table::HEADER);
    }
    for mtu in mtus {
        lab.set_mtu(mtu, &[1])?;
        guest.run(&format!(
            "rdma link del rxe0 2>/dev/null; ip link set eth0 mtu {mtu} && rdma link add rxe0 type rxe netdev eth0"
        ))?;
        let bench = Bench {
            lab: &lab,
            gids: Gids::find(dist, &mut guest)?,
            guest: &mut guest,
            nonic: dist.nonic(),
            mtu,
            port: 20000,
            captures: options.captures.clone(),
        };
        at_one_mtu(options, bench, &mut rows)?;
    }
    Ok(rows)
}

/// First what leaves the wire alone, last what disturbs it: each is counted for itself.
fn at_one_mtu(options: &Options, mut bench: Bench<'_>, rows: &mut Vec<Row>) -> Result<()> {
    let mtu = bench.mtu;
    let mut shown = if options.write || options.missing {
        Shown::read(mtu)?
    } else {
        Shown::default()
    };
    for wire in Wire::ALL {
        let mut chosen = cases::all();
        chosen.retain(|case| options.takes(case, &shown) && case.wire() == wire);
        if chosen.is_empty() {
            continue;
        }
        let mut sum = Tally::default();
        for case in chosen {
            let row = one_row(&mut bench, case, options.json)?;
            sum.add(&row.tally);
            rows.push(row);
            if options.write {
                shown.write(mtu, rows)?;
            }
        }
        eprint!("MTU {mtu}, {wire:?}\n{}", sum.text());
    }
    Ok(())
}

/// Runs a row and says how it went, cell by cell.
fn one_row(bench: &mut Bench<'_>, case: Case, quiet: bool) -> Result<Row> {
    let before = Counters::read(bench.guest)?;
    let mut seen = Seen::default();
    let began = Instant::now();
    let mut out = std::io::stdout();
    let name = case.name();
    if !quiet {
        write!(out, "{} {name:<58}", bench.mtu)?;
    }
    let mut row = Row {
        case,
        mtu: bench.mtu,
        cells: [const { Cell::Empty }; 4],
        tally: Tally::default(),
    };
    for (cell, (direction, family)) in row.cells.iter_mut().zip(COLUMNS) {
        if row.case.families.contains(family) {
            *cell = match bench.run(&row.case, direction, family) {
                Ok(()) => Cell::Passed,
                Err(error) => Cell::Failed(format!("{error:#}")),
            };
            seen.add(&bench.lab.folder().join("counters"));
        }
        if !quiet {
            write!(out, " {}", table::mark(cell))?;
            out.flush()?;
        }
    }
    row.tally = Tally::new(&before, &Counters::read(bench.guest)?, seen);
    if !quiet {
        writeln!(out, "  {:.1} s", began.elapsed().as_secs_f32())?;
        for (cell, (direction, family)) in row.cells.iter().zip(COLUMNS) {
            if let Cell::Failed(complaint) = cell {
                writeln!(out, "    {direction:?}, {family:?}: {complaint}")?;
            }
        }
        let wire = row.case.wire();
        let counted = [row.tally.complaint(wire), row.tally.remark(wire)];
        for what in counted.iter().flatten() {
            writeln!(out, "    counted: {what}")?;
        }
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let mut names: Vec<String> = cases::all().iter().map(Case::name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
