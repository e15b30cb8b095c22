//! The table, for people and for programs.

use super::counters::Tally;
use super::{COLUMNS, Cell, Row};
use crate::dist;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fmt::Write;

/// Over the rows on the terminal. nonic is the client, then the server, over IPv4, then IPv6.
pub(super) const HEADER: &str =
    "MTU  program                                                    cl4  cl6  se4  se6";

/// One word for the terminal.
pub(super) fn mark(cell: &Cell) -> &'static str {
    match cell {
        Cell::Passed => "pass",
        Cell::Failed(_) => "FAIL",
        Cell::Empty => "   -",
    }
}

/// Everything that was found.
pub(super) fn json(rows: &[Row]) -> Value {
    let cells = rows.iter().flat_map(|row| {
        row.cells.iter().zip(COLUMNS).map(|(cell, (direction, family))| {
            json!({
                "group": row.case.group,
                "name": row.case.name(),
                "mtu": row.mtu,
                "direction": format!("{direction:?}"),
                "family": format!("{family:?}"),
                "outcome": match cell {
                    Cell::Passed => "passed",
                    Cell::Failed(_) => "failed",
                    Cell::Empty => "does not apply",
                },
                "complaint": match cell {
                    Cell::Failed(complaint) => Some(complaint),
                    _ => None,
                },
            })
        })
    });
    Value::Array(cells.collect())
}

/// Writes the table of one MTU into docs/interop.md, between two lines of its own, and leaves the rest alone.
pub(super) fn document(mtu: u32, rows: &[Row], tallies: &[Tally]) -> Result<()> {
    let path = dist::workspace().join("docs/interop.md");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let begin = format!("<!-- {mtu}: written by `cargo xtask interop --write` -->");
    let end = format!("<!-- end of {mtu} -->");
    let parts = text
        .split_once(&begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = parts.with_context(|| format!("docs/interop.md has no place for {mtu}"))?;
    let rows: Vec<&Row> = rows.iter().filter(|row| row.mtu == mtu).collect();
    let tallies: String = tallies
        .iter()
        .filter(|tally| tally.mtu() == mtu)
        .map(Tally::text)
        .collect();
    let text = format!(
        "{before}{begin}\n\n{}\nWhat both counted:\n\n```text\n{tallies}```\n\n{end}{after}",
        markdown(&rows)
    );
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// How many cells passed, and how many failed.
pub(super) fn totals<'a>(rows: impl IntoIterator<Item = &'a Row>) -> (usize, usize) {
    let cells = rows.into_iter().flat_map(|row| &row.cells);
    cells.fold((0, 0), |(passed, failed), cell| match cell {
        Cell::Passed => (passed + 1, failed),
        Cell::Failed(_) => (passed, failed + 1),
        Cell::Empty => (passed, failed),
    })
}

fn markdown(rows: &[&Row]) -> String {
    let mut text = String::from("| program | client, IPv4 | client, IPv6 | server, IPv4 | server, IPv6 |\n");
    text.push_str("|---|---|---|---|---|\n");
    let mut group = "";
    for row in rows {
        if row.case.group != group {
            group = row.case.group;
            let _ = writeln!(text, "| **{group}** | | | | |");
        }
        let _ = write!(text, "| `{}` |", row.case.name());
        for cell in &row.cells {
            let word = match cell {
                Cell::Passed => "✓",
                Cell::Failed(_) => "**fails**",
                Cell::Empty => "–",
            };
            let _ = write!(text, " {word} |");
        }
        text.push('\n');
    }
    let (passed, failed) = totals(rows.iter().copied());
    let _ = writeln!(text, "\ninterop: {passed} passed, {failed} failed");
    text
}
