//! Everything printed goes through here: a reader that has gone away (`nonic … | head -1`) ends the program
//! quietly instead of in a panic.

use anyhow::Result;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use std::fmt;
use std::io::{self, IsTerminal, Write};

/// Nobody reads our output any more. Not a failure.
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

/// A table in the house style: no colours, no boxes that a pipe would garble.
pub(crate) fn table<T: fmt::Display>(header: impl IntoIterator<Item = T>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.into_iter().map(|name| name.to_string()));
    table
}

/// Prints a table without the blanks that pad its last column.
pub(crate) fn print_table(table: &Table) -> Result<()> {
    table.to_string().lines().try_for_each(|row| line(row.trim_end()))
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
