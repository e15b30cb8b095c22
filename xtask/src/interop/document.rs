//! `docs/interop.md`: the table of each MTU, between two lines of its own. The rest of the document is left alone.
//!
//! The matrix is long, so it need not be run in one go: a row that was not run stays as the document has it, and
//! `--missing` runs what the document does not show as passed.

use super::case::{Case, Opposite};
use super::cases;
use super::row::{Cell, Row};
use crate::dist;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;

const PASSED: &str = "\u{2713}";
const PASSED_AGAIN: &str = "\u{2713}, run again";
const PASSED_BUT_FOR_THE_END: &str = "\u{2713}\u{b9}";
const FAILED: &str = "**fails**";
const EMPTY: &str = "\u{2013}";

/// A table of the document.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) opposite: Opposite,
    pub(super) mtu: u32,
}

impl Table {
    /// What the lines around it call it.
    fn name(self) -> String {
        match self.opposite {
            Opposite::Rxe => self.mtu.to_string(),
            Opposite::Siw => format!("siw at {}", self.mtu),
        }
    }
}

/// The rows of one table as the document shows them: the cells of each, by its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    lines: HashMap<String, String>,
}

impl Shown {
    /// Reads a table.
    pub(super) fn read(table: Table) -> Result<Self> {
        let name = table.name();
        let text = std::fs::read_to_string(path()).context("cannot read docs/interop.md")?;
        let [_, table, _] =
            parts(&text, &name).with_context(|| format!("docs/interop.md has no place for {name}"))?;
        Ok(Self::parse(table))
    }

    fn parse(table: &str) -> Self {
        let row = |line: &str| {
            let (name, cells) = line.strip_prefix("| `")?.split_once("` |")?;
            Some((name.to_owned(), cells.to_owned()))
        };
        Self {
            lines: table.lines().filter_map(row).collect(),
        }
    }

    /// Whether the row ran, and all of it passed.
    pub(super) fn has_passed(&self, case: &Case) -> bool {
        let line = self.lines.get(&case.name());
        line.is_some_and(|cells| cells.contains(PASSED) && !cells.contains(FAILED))
    }

    /// Takes over what was found, and writes the table.
    pub(super) fn write(&mut self, table: Table, rows: &[Row]) -> Result<()> {
        for row in rows.iter().filter(|row| row.mtu == table.mtu) {
            let cells: String = row
                .cells
                .iter()
                .map(|cell| format!(" {} |", sign(cell)))
                .collect();
            self.lines.insert(row.case.name(), cells);
        }
        let text = std::fs::read_to_string(path()).context("cannot read docs/interop.md")?;
        let name = table.name();
        let [before, _, after] =
            parts(&text, &name).with_context(|| format!("docs/interop.md has no place for {name}"))?;
        let markdown = self.markdown(table.opposite);
        std::fs::write(path(), format!("{before}\n\n{markdown}\n{after}"))
            .context("cannot write docs/interop.md")
    }

    fn markdown(&self, opposite: Opposite) -> String {
        let mut text =
            String::from("| program | client, IPv4 | client, IPv6 | server, IPv4 | server, IPv6 |\n");
        text.push_str("|---|---|---|---|---|\n");
        let (mut group, mut passed, mut failed) = ("", 0, 0);
        for case in cases::with(opposite) {
            let Some(cells) = self.lines.get(&case.name()) else {
                continue;
            };
            if case.group != group {
                group = case.group;
                let _ = writeln!(text, "| **{group}** | | | | |");
            }
            let _ = writeln!(text, "| `{}` |{cells}", case.name());
            passed += cells.matches(PASSED).count();
            failed += cells.matches(FAILED).count();
        }
        let _ = writeln!(text, "\ninterop: {passed} passed, {failed} failed");
        text
    }
}

fn path() -> PathBuf {
    dist::workspace().join("docs/interop.md")
}

fn sign(cell: &Cell) -> &'static str {
    match cell {
        Cell::Passed => PASSED,
        Cell::PassedAgain(_) => PASSED_AGAIN,
        Cell::PassedButForTheEnd => PASSED_BUT_FOR_THE_END,
        Cell::Failed(_) => FAILED,
        Cell::Empty => EMPTY,
    }
}

/// What is before a table, with the line that begins it; the table; and the rest.
fn parts<'a>(text: &'a str, name: &str) -> Option<[&'a str; 3]> {
    let begin = format!("<!-- {name}: written by `cargo xtask interop --write` -->");
    let start = text.find(&begin)? + begin.len();
    let end = start + text[start..].find(&format!("<!-- end of {name} -->"))?;
    Some([&text[..start], &text[start..end], &text[end..]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::row::mtus;

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let case = cases::with(Opposite::Rxe).swap_remove(0);
        let row = |cells: &str| Shown {
            lines: HashMap::from([(case.name(), cells.to_owned())]),
        };
        for (cells, passed, end) in [
            (
                " \u{2713} | \u{2013} | \u{2713} | \u{2013} |",
                true,
                "2 passed, 0 failed\n",
            ),
            (
                " \u{2713} | **fails** | \u{2713} | \u{2713} |",
                false,
                "3 passed, 1 failed\n",
            ),
        ] {
            let text = row(cells).markdown(Opposite::Rxe);
            assert!(text.ends_with(end), "{text}");
            assert_eq!(Shown::parse(&text).lines[&case.name()], cells);
            assert_eq!(Shown::parse(&text).has_passed(&case), passed);
        }
        assert!(!Shown::default().has_passed(&case));
    }

    #[test]
    fn the_document_has_a_place_for_each() {
        for opposite in [Opposite::Rxe, Opposite::Siw] {
            for mtu in mtus(opposite) {
                assert!(Shown::read(Table { opposite, mtu: *mtu }).is_ok());
            }
        }
    }
}
