//! Output: everything printed goes through here, so that a reader that has gone away (`nonic … | head -1`) ends the
//! program quietly instead of in a panic.

use anyhow::Result;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use std::fmt;
use std::io::{self, IsTerminal, Write};

/// Our output has no reader any more. Not a failure.
#[derive(Debug)]
pub(crate) struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads the output")
    }
}

impl std::error::Error for OutputClosed {}

/// Prints a line and makes it visible at once, also in a pipe.
pub(crate) fn line(text: impl fmt::Display) -> Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        Err(error) => Err(error.into()),
    }
}

/// Prints a value as one JSON document on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string(value)?)
}

/// What stands between two columns of a [`table`].
pub(crate) const COLUMN_GAP: usize = 2;

/// A table in the house style: no colours, no boxes that a pipe would garble.
pub(crate) fn table<T: fmt::Display>(header: impl IntoIterator<Item = T>) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.into_iter().map(|name| name.to_string()));
    table
}

/// A text for a table. A long one is cut: every row is as wide as the widest, and any process may have written the text.
pub(crate) fn cell(text: &str) -> String {
    const WIDEST: usize = 128;
    match text.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Prints a table without the blanks that pad its last column.
pub(crate) fn print_table(table: &Table) -> Result<()> {
    table.to_string().lines().try_for_each(|row| line(row.trim_end()))
}

/// Which columns there is room for, from left to right. Each has a width and a rank: those of the lowest ranks are shown first. `gap` is what
/// stands between two.
pub(crate) fn fitting(columns: &[(usize, u8)], gap: usize, width: usize) -> Vec<usize> {
    let mut by_rank: Vec<usize> = (0..columns.len()).collect();
    by_rank.sort_by_key(|place| columns[*place].1);
    let mut left = width + gap;
    by_rank.retain(|place| {
        let needed = columns[*place].0 + gap;
        let fits = needed <= left;
        left -= if fits { needed } else { 0 };
        fits
    });
    by_rank.sort_unstable();
    by_rank
}

/// How many columns the terminal has; none if people do not look at what is printed.
pub(crate) fn terminal_width() -> Option<usize> {
    let (columns, _) = is_terminal().then(ratatui::crossterm::terminal::size)?.ok()?;
    // A terminal that does not know says zero.
    Some(usize::from(columns)).filter(|columns| *columns > 0)
}

/// Whether what is printed may have colours: on a terminal, unless its user wants none (<https://no-color.org>).
pub(crate) fn colours_are_welcome() -> bool {
    is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether people look at what is printed.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether progress bars make sense.
pub(crate) fn progress_is_welcome() -> bool {
    io::stderr().is_terminal()
}
