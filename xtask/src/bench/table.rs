//! The tables: for a terminal, for the documentation, for scripts.

use super::probe::Probe;
use super::rows::{Comparison, Part, Row};
use super::verdict::{Found, Verdict};
use serde_json::{Value, json};
use std::fmt::Write;
use testbed::table::Table;

const HEADINGS: [&str; 6] = ["", "nonic", "beside", "ratio (least–most)", "must show", "met"];

/// As much of what a program said as helps.
const LONGEST_COMPLAINT: usize = 300;

/// The rows of a part, in the order of the comparisons.
fn rows_of(part: Part, comparisons: &[Comparison]) -> Vec<&Row> {
    let rows = comparisons.iter().flat_map(|comparison| &comparison.rows);
    rows.filter(|row| row.part == part).collect()
}

fn table(rows: &[&Row], found: &Found) -> Table {
    let mut table = Table::new(HEADINGS);
    for row in rows {
        let figures = Verdict::of(row, found).cells(row);
        table.add(std::iter::once(row.title.clone()).chain(figures));
    }
    table
}

/// Columns under each other.
pub(super) fn text(comparisons: &[Comparison], found: &Found) -> String {
    let mut text = String::new();
    for part in Part::ALL {
        let rows = rows_of(part, comparisons);
        if rows.is_empty() {
            continue;
        }
        let columns = table(&rows, found).columns();
        let _ = write!(text, "\n{}\n{columns}", part.title());
    }
    let _ = writeln!(text, "\n{}", tally(comparisons, found));
    text.push_str(&remarks(found));
    text
}

/// How many promises are kept.
fn tally(comparisons: &[Comparison], found: &Found) -> String {
    let rows = comparisons.iter().flat_map(|comparison| &comparison.rows);
    let judged: Vec<(Part, bool)> = rows
        .filter_map(|row| Some((row.part, Verdict::of(row, found).met?)))
        .collect();
    let count = |part: Option<Part>| {
        let of_part = judged
            .iter()
            .filter(|(row, _)| part.is_none_or(|part| part == *row));
        let met = of_part.clone().filter(|(_, met)| *met).count();
        format!("{met} of {}", of_part.count())
    };
    format!(
        "Met: {} of what must show, {} of everything that is judged.",
        count(Some(Part::MustShow)),
        count(None)
    )
}

/// For documentation.
pub(super) fn markdown(comparisons: &[Comparison], found: &Found) -> String {
    let mut text = format!("{}\n\n", tally(comparisons, found));
    for part in Part::ALL {
        let rows = rows_of(part, comparisons);
        if rows.is_empty() {
            continue;
        }
        let table = table(&rows, found).markdown();
        let _ = writeln!(text, "## {}\n\n{table}", part.title());
    }
    text.push_str(&remarks(found));
    text
}

/// What is missing, and what went wrong.
fn remarks(found: &Found) -> String {
    let mut text = String::new();
    let missing = found.missing_packages();
    if !missing.is_empty() {
        let _ = writeln!(text, "\nNot installed: `apt install {}`.", missing.join(" "));
    }
    for (probe, times, complaint) in found.failures() {
        let complaint: String = complaint.chars().take(LONGEST_COMPLAINT).collect();
        let _ = writeln!(text, "\nFailed {times} ×: {}: {complaint}", probe.name());
    }
    text
}

/// For scripts: every figure of every round, and what is made of them.
pub(super) fn json(comparisons: &[Comparison], found: &Found, rounds: u32) -> Value {
    let row = |row: &Row| {
        let verdict = Verdict::of(row, found);
        json!({
            "title": row.title,
            "part": row.part.title(),
            "nonic": side(&row.ours, found),
            "beside": row.against.map(|probe| side(&probe, found)),
            "ratio": verdict.ratio.map(|ratio| json!({
                "median": ratio.median, "least": ratio.least, "most": ratio.most,
            })),
            "must_show": verdict.cells(row)[3],
            "met": verdict.met,
        })
    };
    let parts = Part::ALL.iter().flat_map(|part| rows_of(*part, comparisons));
    json!({ "rounds": rounds, "rows": parts.map(row).collect::<Vec<_>>() })
}

fn side(probe: &Probe, found: &Found) -> Value {
    json!({
        "name": probe.name(),
        "unit": probe.quantity.unit(),
        "median": found.summary(probe).map(|summary| summary.median),
        "rounds": found.values(probe),
    })
}
