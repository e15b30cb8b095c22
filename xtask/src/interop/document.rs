//! `docs/interop.md`: the table of each MTU, between two lines of its own. The rest of the document is left alone.
//!
//! The matrix is long, so it need not be run in one go: a row that was not run stays as the document has it, and
//! `--missing` runs what the document does not show as passed.

use super::case::{Case, Opposite};
use super::cases;
use super::row::{COLUMNS, Cell, Row};
use crate::dist;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::path::PathBuf;
use testbed::page::Part;
use testbed::table as markdown;

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
    /// Where it is on the page.
    fn part(self) -> Part {
        let name = match self.opposite {
            Opposite::Rxe => self.mtu.to_string(),
            Opposite::Siw => format!("siw at {}", self.mtu),
        };
        Part {
            page: "interop.md",
            begin: format!("<!-- {name}: written by `cargo xtask interop --write` -->"),
            end: format!("<!-- end of {name} -->"),
        }
    }
}

/// The rows of one table as the document shows them: the cells of each, by its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    lines: HashMap<String, Vec<String>>,
}

impl Shown {
    /// Reads a table.
    pub(super) fn read(table: Table) -> Result<Self> {
        let part = table.part();
        let text = std::fs::read_to_string(docs().join(part.page)).context("cannot read docs/interop.md")?;
        Ok(Self::parse(part.read(&text)?))
    }

    fn parse(table: &str) -> Self {
        let row = |line: &str| {
            let (name, cells) = line.strip_prefix("| `")?.split_once("` |")?;
            let cells = cells.trim_end().strip_suffix('|')?.split('|');
            let cells: Vec<String> = cells.map(|cell| cell.trim().to_owned()).collect();
            (cells.len() == COLUMNS.len()).then(|| (name.to_owned(), cells))
        };
        Self {
            lines: table.lines().filter_map(row).collect(),
        }
    }

    /// Whether the row ran, and all of it passed.
    pub(super) fn has_passed(&self, case: &Case) -> bool {
        let line = self.lines.get(&case.name());
        line.is_some_and(|cells| count(cells, PASSED) > 0 && count(cells, FAILED) == 0)
    }

    /// Takes over what was found, and writes the table.
    pub(super) fn write(&mut self, table: Table, rows: &[Row]) -> Result<()> {
        for row in rows.iter().filter(|row| row.mtu == table.mtu) {
            let cells = row.cells.iter().map(|cell| sign(cell).to_owned());
            self.lines.insert(row.case.name(), cells.collect());
        }
        table.part().write(&docs(), &self.markdown(table.opposite))
    }

    fn markdown(&self, opposite: Opposite) -> String {
        let mut table = markdown::Table::new([
            "program",
            "client, IPv4",
            "client, IPv6",
            "server, IPv4",
            "server, IPv6",
        ]);
        let (mut group, mut passed, mut failed) = ("", 0, 0);
        for case in cases::with(opposite) {
            let Some(cells) = self.lines.get(&case.name()) else {
                continue;
            };
            if case.group != group {
                group = case.group;
                table.add_title(format!("**{group}**"));
            }
            let name = format!("`{}`", case.name());
            table.add(std::iter::once(&name).chain(cells));
            passed += count(cells, PASSED);
            failed += count(cells, FAILED);
        }
        format!(
            "{}\ninterop: {passed} passed, {failed} failed\n",
            table.markdown()
        )
    }
}

fn docs() -> PathBuf {
    dist::workspace().join("docs")
}

/// How many cells have this sign in them.
fn count(cells: &[String], sign: &str) -> usize {
    cells.iter().filter(|cell| cell.contains(sign)).count()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::row::mtus;

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let case = cases::with(Opposite::Rxe).swap_remove(0);
        let row = |cells: [&str; 4]| Shown {
            lines: HashMap::from([(case.name(), cells.map(str::to_owned).to_vec())]),
        };
        for (cells, passed, end) in [
            ([PASSED, EMPTY, PASSED, EMPTY], true, "2 passed, 0 failed\n"),
            ([PASSED, FAILED, PASSED, PASSED], false, "3 passed, 1 failed\n"),
        ] {
            let text = row(cells).markdown(Opposite::Rxe);
            assert!(text.ends_with(end), "{text}");
            assert_eq!(Shown::parse(&text).lines[&case.name()], cells);
            assert_eq!(Shown::parse(&text).has_passed(&case), passed);
        }
        assert!(!Shown::default().has_passed(&case));
    }

    #[test]
    fn the_document_has_a_place_for_each_and_would_be_written_as_it_is() {
        let page = std::fs::read_to_string(docs().join("interop.md")).expect("there is a page");
        for opposite in [Opposite::Rxe, Opposite::Siw] {
            for mtu in mtus(opposite) {
                let table = Table { opposite, mtu: *mtu };
                let shown = Shown::read(table).expect("it has a place");
                let written = table.part().replaced(&page, &shown.markdown(opposite));
                assert!(written.is_ok_and(|written| written == page), "{table:?}");
            }
        }
    }
}
