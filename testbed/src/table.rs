//! Tables: for a page, as Markdown, and for a terminal, as columns.
//!
//! It does not decide what a cell says: each chore has words of its own for good and bad. Nor does it make JSON: that has what a table
//! leaves out, such as every round of a median, so each chore makes it from its results and not from their table.

use std::fmt::Write;

/// Headings, and rows with as many cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Row {
    Cells(Vec<String>),
    Title(String),
}

impl Table {
    /// One without rows. A heading may be empty.
    pub fn new(headings: impl IntoIterator<Item: Into<String>>) -> Self {
        Self {
            headings: headings.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    ///
    /// If it has not as many cells as there are headings.
    pub fn add(&mut self, cells: impl IntoIterator<Item: Into<String>>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(
            cells.len(),
            self.headings.len(),
            "a cell for each heading: {cells:?}"
        );
        self.rows.push(Row::Cells(cells));
    }

    /// Adds a row that has a text and no cells, such as the title of those below.
    pub fn add_title(&mut self, text: impl Into<String>) {
        self.rows.push(Row::Title(text.into()));
    }

    /// For a page.
    pub fn markdown(&self) -> String {
        let mut text = String::from("|");
        for heading in &self.headings {
            match heading.as_str() {
                "" => text.push_str(" |"),
                heading => push_cell(&mut text, heading),
            }
        }
        text.push_str("\n|");
        text.push_str(&"---|".repeat(self.headings.len()));
        text.push('\n');
        for row in &self.rows {
            text.push('|');
            match row {
                Row::Cells(cells) => cells.iter().for_each(|cell| push_cell(&mut text, cell)),
                Row::Title(title) => {
                    push_cell(&mut text, title);
                    text.push_str(&" |".repeat(self.headings.len().saturating_sub(1)));
                }
            }
            text.push('\n');
        }
        text
    }

    /// For a terminal: columns under each other, without Markdown's marks.
    pub fn columns(&self) -> String {
        let mut lines = vec![self.headings.clone()];
        for row in &self.rows {
            let mut cells = match row {
                Row::Cells(cells) => cells.clone(),
                Row::Title(title) => vec![title.clone()],
            };
            for cell in &mut cells {
                *cell = cell.replace(['`', '*'], "");
            }
            lines.push(cells);
        }
        let width = |column: usize| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let mut text = String::new();
        for line in &lines {
            let padded = line
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"));
            let joined = padded.collect::<Vec<_>>().join("  ");
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", joined.trim_end());
        }
        text
    }
}

fn push_cell(text: &mut String, cell: &str) {
    let _ = write!(text, " {cell} |");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(["", "nonic", "met"]);
        table.add_title("**latency**");
        table.add(["`ib_send_lat`", "2.0 µs", "**no**"]);
        table.add(["ping", "", "yes"]);
        table
    }

    #[test]
    fn a_page_gets_markdown() {
        let wanted = "| | nonic | met |\n\
                      |---|---|---|\n\
                      | **latency** | | |\n\
                      | `ib_send_lat` | 2.0 µs | **no** |\n\
                      | ping |  | yes |\n";
        assert_eq!(sample().markdown(), wanted);
    }

    #[test]
    fn a_terminal_gets_columns() {
        let wanted = "             nonic   met\n\
                      latency\n\
                      ib_send_lat  2.0 µs  no\n\
                      ping                 yes\n";
        assert_eq!(sample().columns(), wanted);
    }

    #[test]
    #[should_panic(expected = "a cell for each heading")]
    fn a_row_has_a_cell_for_each_heading() {
        Table::new(["one", "two"]).add(["1"]);
    }
}
