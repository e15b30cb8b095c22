//! Runs a row, cell by cell, and says how it went.
//!
//! A guest whose kernel broke down is replaced, and the cell in which it did is run once more: what the kernel does to itself is no
//! verdict on nonic, unless it does it again. What fails while the guest is well has failed, and is never run again.

use super::case::{Case, Direction, Family};
use super::counters::{Counters, Seen, Tally};
use super::pair::{Bench, Outcome};
use super::row::{COLUMNS, Cell, Row};
use super::table;
use anyhow::{Result, ensure};
use std::io::Write;
use std::time::Instant;
use testbed::lab::Breakdown;

/// A guest that breaks down more often than that in one run is not worth another.
const MOST_BREAKDOWNS: u32 = 4;

/// Runs a row.
pub(super) fn one_row(bench: &mut Bench<'_>, case: Case, quiet: bool) -> Result<Row> {
    let mut before = Counters::read(bench.guest, bench.opposite)?;
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
            let breakdowns = bench.breakdowns;
            *cell = one_cell(bench, &row.case, direction, family)?;
            if bench.breakdowns == breakdowns {
                seen.add(&bench.counters_file());
            } else {
                // What the guest before had counted went with it, and ours is nothing without theirs.
                before = Counters::read(bench.guest, bench.opposite)?;
                seen = Seen::default();
                let _ = std::fs::remove_file(bench.counters_file());
            }
        }
        if !quiet {
            write!(out, " {}", table::mark(cell))?;
            out.flush()?;
        }
    }
    row.tally = Tally::new(&before, &Counters::read(bench.guest, bench.opposite)?, seen);
    if !quiet {
        writeln!(out, "  {:.1} s", began.elapsed().as_secs_f32())?;
        explain(&row, &mut out)?;
    }
    Ok(row)
}

/// What is to be said below a row.
fn explain(row: &Row, out: &mut impl Write) -> Result<()> {
    for (cell, (direction, family)) in row.cells.iter().zip(COLUMNS) {
        match cell {
            Cell::Failed(complaint) => writeln!(out, "    {direction:?}, {family:?}: {complaint}")?,
            Cell::PassedAgain(breakdown) => {
                writeln!(
                    out,
                    "    {direction:?}, {family:?}: {breakdown}, run again: passed"
                )?;
            }
            Cell::PassedButForTheEnd => {
                writeln!(
                    out,
                    "    {direction:?}, {family:?}: siw took its very last SEND for failed"
                )?;
            }
            Cell::Passed | Cell::Empty => {}
        }
    }
    let wire = row.case.wire();
    let counted = [row.tally.complaint(wire), row.tally.remark(wire)];
    for what in counted.iter().flatten() {
        writeln!(out, "    counted: {what}")?;
    }
    Ok(())
}

/// Runs a cell, and once more if the guest broke down in it.
fn one_cell(bench: &mut Bench<'_>, case: &Case, direction: Direction, family: Family) -> Result<Cell> {
    let mut breakdowns = Vec::new();
    loop {
        let outcome = attempt(bench, case, direction, family);
        if let Err(breakdown) = &outcome {
            eprintln!("\n{breakdown}");
            for line in breakdown.lines() {
                eprintln!("    {line}");
            }
            bench.breakdowns += 1;
            ensure!(
                bench.breakdowns <= MOST_BREAKDOWNS,
                "the guest broke down {MOST_BREAKDOWNS} times before: {breakdown}"
            );
            // What nonic counted there was about a peer that had gone.
            let _ = std::fs::remove_file(bench.counters_file());
            bench.replace_guest()?;
        }
        if let Some(cell) = verdict(&mut breakdowns, outcome) {
            return Ok(cell);
        }
    }
}

/// Runs a cell: its result, unless the guest broke down.
fn attempt(
    bench: &mut Bench<'_>,
    case: &Case,
    direction: Direction,
    family: Family,
) -> Result<Result<Outcome>, Breakdown> {
    let outcome = bench.run(case, direction, family);
    match outcome {
        Ok(_) => bench.guest.check()?,
        Err(_) => bench.guest.prove()?,
    }
    Ok(outcome)
}

/// Judges the last of a cell's runs; nothing, if it is to be run again.
fn verdict(breakdowns: &mut Vec<String>, outcome: Result<Result<Outcome>, Breakdown>) -> Option<Cell> {
    let before = breakdowns.first().cloned();
    match (outcome, before) {
        (Ok(Ok(Outcome::Good)), None) => Some(Cell::Passed),
        (Ok(Ok(Outcome::SiwErredAtTheEnd)), None) => Some(Cell::PassedButForTheEnd),
        (Ok(Ok(_)), Some(before)) => Some(Cell::PassedAgain(before)),
        (Ok(Err(error)), None) => Some(Cell::Failed(format!("{error:#}"))),
        (Ok(Err(error)), Some(before)) => Some(Cell::Failed(format!("{error:#}; before that: {before}"))),
        (Err(breakdown), None) => {
            breakdowns.push(breakdown.to_string());
            None
        }
        (Err(breakdown), Some(before)) => Some(Cell::Failed(format!(
            "the guest broke down twice: {before}; {breakdown}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    fn cell(runs: Vec<Result<Result<Outcome>, Breakdown>>) -> (usize, Option<Cell>) {
        let mut breakdowns = Vec::new();
        let mut count = 0;
        for run in runs {
            count += 1;
            if let Some(cell) = verdict(&mut breakdowns, run) {
                return (count, Some(cell));
            }
        }
        (count, None)
    }

    fn broke() -> Result<Result<Outcome>, Breakdown> {
        Err(Breakdown::Silent)
    }

    #[test]
    fn a_failure_of_ours_is_never_run_again() {
        let (runs, cell) = cell(vec![Ok(Err(anyhow!("wrong data"))), Ok(Ok(Outcome::Good))]);
        assert_eq!(runs, 1);
        assert!(matches!(cell, Some(Cell::Failed(_))));
    }

    #[test]
    fn a_breakdown_is_run_again_once() {
        let (runs, cell) = cell(vec![broke(), Ok(Ok(Outcome::Good))]);
        assert_eq!(runs, 2);
        assert!(matches!(cell, Some(Cell::PassedAgain(_))));
    }

    #[test]
    fn a_second_breakdown_fails() {
        let (runs, cell) = cell(vec![broke(), broke(), Ok(Ok(Outcome::Good))]);
        assert_eq!(runs, 2);
        assert!(matches!(cell, Some(Cell::Failed(_))));
    }

    #[test]
    fn a_failure_after_a_breakdown_fails() {
        let (runs, cell) = cell(vec![
            broke(),
            Ok(Err(anyhow!("wrong data"))),
            Ok(Ok(Outcome::Good)),
        ]);
        assert_eq!(runs, 2);
        let Some(Cell::Failed(complaint)) = cell else {
            panic!("{cell:?}");
        };
        assert!(complaint.starts_with("wrong data; before that: "));
    }
}
