//! `docs/interop.md`: the table of each MTU, between two lines of its own. The rest of the document is left alone.
//!
//! The matrix is long, so it need not be run in one go: a row that was not run stays as the document has it, and
//! `--missing` runs what the document does not show as passed.

use super::case::Case;
use super::cases;
use super::row::{Cell, Row};
use crate::dist;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;

const PASSED: &str = "\u{2713}";
const FAILED: &str = "**fails**";
const EMPTY: &str = "\u{2013}";

/// The rows of one MTU as the document shows them: the cells of each, by its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    lines: HashMap<String, String>,
}

impl Shown {
    /// Reads the table of an MTU.
    pub(super) fn read(mtu: u32) -> Result<Self> {
        let text = std::fs::read_to_string(path()).context("cannot read docs/interop.md")?;
        let [_, table, _] =
            parts(&text, mtu).with_context(|| format!("docs/interop.md has no place for {mtu}"))?;
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
    pub(super) fn write(&mut self, mtu: u32, rows: &[Row]) -> Result<()> {
        for row in rows.iter().filter(|row| row.mtu == mtu) {
            let cells: String = row
                .cells
                .iter()
                .map(|cell| format!(" {} |", sign(cell)))
                .collect();
            self.lines.insert(row.case.name(), cells);
        }
        let text = std::fs::read_to_string(path()).context("cannot read docs/interop.md")?;
        let [before, _, after] =
            parts(&text, mtu).with_context(|| format!("docs/interop.md has no place for {mtu}"))?;
        std::fs::write(path(), format!("{before}\n\n{}\n{after}", self.markdown()))
            .context("cannot write docs/interop.md")
    }

    fn markdown(&self) -> String {
        let mut text =
            String::from("| program | client, IPv4 | client, IPv6 | server, IPv4 | server, IPv6 |\n");
        text.push_str("|---|---|---|---|---|\n");
        let (mut group, mut passed, mut failed) = ("", 0, 0);
        for case in cases::all() {
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
        Cell::Failed(_) => FAILED,
        Cell::Empty => EMPTY,
    }
}

/// What is before the table of an MTU, with the line that begins it; the table; and the rest.
fn parts(text: &str, mtu: u32) -> Option<[&str; 3]> {
    let begin = format!("<!-- {mtu}: written by `cargo xtask interop --write` -->");
    let start = text.find(&begin)? + begin.len();
    let end = start + text[start..].find(&format!("<!-- end of {mtu} -->"))?;
    Some([&text[..start], &text[start..end], &text[end..]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::row::MTUS;

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let case = cases::all().swap_remove(0);
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
            let text = row(cells).markdown();
            assert!(text.ends_with(end), "{text}");
            assert_eq!(Shown::parse(&text).lines[&case.name()], cells);
            assert_eq!(Shown::parse(&text).has_passed(&case), passed);
        }
        assert!(!Shown::default().has_passed(&case));
    }

    #[test]
    fn the_document_has_a_place_for_both() {
        for mtu in MTUS {
            assert!(Shown::read(mtu).is_ok());
        }
    }
}
