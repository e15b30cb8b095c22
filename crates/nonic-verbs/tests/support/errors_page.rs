//! The table of `docs/errors.md`, and whether a C program that does what a row says is told what the row quotes.

use std::process::Command;

/// A row of the table.
pub(crate) struct Row {
    /// The heading it is under.
    pub(crate) section: String,
    pub(crate) case: String,
    pub(crate) in_c: String,
    pub(crate) quotes: Vec<String>,
}

/// Those that have something in their column for C.
pub(crate) fn rows() -> Vec<Row> {
    let page = include_str!("../../../../docs/errors.md");
    let mut section = "";
    let mut rows = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        }
        rows.extend(row(section, line).filter(|row| !row.in_c.starts_with('—')));
    }
    rows
}

fn row(section: &str, line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [case, _, in_c, _, says, steps] = cells[..] else {
        return None;
    };
    let case = case.strip_prefix('`')?.strip_suffix('`')?;
    let quotes = |cell: &str| -> Vec<String> {
        let parts = cell.split('“').skip(1);
        let whole = |part: &str| part.split_once('”').map(|(quote, _)| quote.to_owned());
        parts.filter_map(whole).collect()
    };
    Some(Row {
        section: section.to_owned(),
        case: case.to_owned(),
        in_c: in_c.to_owned(),
        quotes: [quotes(says), quotes(steps)].concat(),
    })
}

impl Row {
    /// What is wrong with the row, if anything. The command does what it says, prints what the program sees and logs.
    pub(crate) fn complaint(&self, command: &mut Command) -> Option<String> {
        let output = command.output().expect("it starts");
        let (printed, said) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        if !output.status.success() {
            return Some(format!("{}: {printed}{said}", self.case));
        }
        let last = printed.lines().last().unwrap_or_default();
        if last != self.in_c {
            return Some(format!(
                "{}: the program sees {last:?}, not {:?}",
                self.case, self.in_c
            ));
        }
        let missing = self.quotes.iter().find(|quote| !said.contains(*quote));
        missing.map(|quote| format!("{}: {quote:?} is missing in: {said}", self.case))
    }
}
