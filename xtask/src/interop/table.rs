//! The table, for people and for programs.

use super::row::{COLUMNS, Cell, Row};
use serde_json::{Value, json};

/// Over the rows on the terminal. nonic is the client, then the server, over IPv4, then IPv6.
pub(super) const HEADER: &str =
    "MTU  program                                                    cl4  cl6  se4  se6";

/// One word for the terminal.
pub(super) fn mark(cell: &Cell) -> &'static str {
    match cell {
        Cell::Passed | Cell::PassedAgain(_) | Cell::PassedButForTheEnd => "pass",
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
                    Cell::PassedAgain(_) => "passed when run again",
                    Cell::PassedButForTheEnd => "passed, but siw took its very last SEND for failed",
                    Cell::Failed(_) => "failed",
                    Cell::Empty => "does not apply",
                },
                "complaint": match cell {
                    Cell::Failed(complaint) | Cell::PassedAgain(complaint) => Some(complaint),
                    _ => None,
                },
            })
        })
    });
    Value::Array(cells.collect())
}

/// How many cells passed, and how many failed.
pub(super) fn totals(rows: &[Row]) -> (usize, usize) {
    let cells = rows.iter().flat_map(|row| &row.cells);
    cells.fold((0, 0), |(passed, failed), cell| match cell {
        Cell::Passed | Cell::PassedAgain(_) | Cell::PassedButForTheEnd => (passed + 1, failed),
        Cell::Failed(_) => (passed, failed + 1),
        Cell::Empty => (passed, failed),
    })
}

/// How many cells passed only when they were run again.
pub(super) fn again(rows: &[Row]) -> usize {
    let cells = rows.iter().flat_map(|row| &row.cells);
    cells.filter(|cell| matches!(cell, Cell::PassedAgain(_))).count()
}
