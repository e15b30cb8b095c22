//! The table, for people and for programs.

use super::counters::Tally;
use super::{COLUMNS, Cell, Row};
use crate::dist;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fmt::Write;

/// Between these lines the document is ours to write.
const BEGIN: &str = "<!-- table: written by `cargo xtask interop --write` -->";
const END: &str = "<!-- end of table -->";

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

/// Writes the table into docs/interop.md, and leaves the rest of it alone.
pub(super) fn document(rows: &[Row], tallies: &[Tally]) -> Result<()> {
    let path = dist::workspace().join("docs/interop.md");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let parts = text
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.context("docs/interop.md has no place for the table")?;
    let tallies: String = tallies.iter().map(Tally::text).collect();
    let counted = format!("What both counted (values that are not 0):\n\n```text\n{tallies}```\n\n");
    let text = format!("{before}{BEGIN}\n{}{counted}{END}{after}", markdown(rows));
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn markdown(rows: &[Row]) -> String {
    let mut mtus: Vec<u32> = rows.iter().map(|row| row.mtu).collect();
    mtus.dedup();
    let mut text = String::from("\n| program |");
    for mtu in &mtus {
        for column in ["client, IPv4", "client, IPv6", "server, IPv4", "server, IPv6"] {
            let _ = write!(text, " {mtu}: {column} |");
        }
    }
    let _ = write!(text, "\n|---|{}\n", "---|".repeat(4 * mtus.len()));
    let mut group = "";
    for row in rows.iter().filter(|row| Some(&row.mtu) == mtus.first()) {
        if row.case.group != group {
            group = row.case.group;
            let _ = writeln!(text, "| **{group}** |{}", " |".repeat(4 * mtus.len()));
        }
        let _ = write!(text, "| `{}` |", row.case.name());
        for mtu in &mtus {
            let same = rows
                .iter()
                .find(|other| other.mtu == *mtu && other.case.name() == row.case.name());
            for cell in same.iter().flat_map(|row| &row.cells) {
                let word = match cell {
                    Cell::Passed => "✓",
                    Cell::Failed(_) => "**fails**",
                    Cell::Empty => "–",
                };
                let _ = write!(text, " {word} |");
            }
        }
        text.push('\n');
    }
    let failures = rows
        .iter()
        .flat_map(|row| row.cells.iter().map(move |cell| (row, cell)));
    let failed = failures
        .filter(|(_, cell)| matches!(cell, Cell::Failed(_)))
        .count();
    let passed = rows
        .iter()
        .flat_map(|row| &row.cells)
        .filter(|cell| matches!(cell, Cell::Passed))
        .count();
    let _ = writeln!(text, "\ninterop: {passed} passed, {failed} failed\n");
    text
}
