//! Ways in which a C program goes wrong (`c/explained.c`): what `NONIC_LOG` says of each names the cause and the next step.
//!
//! The table is `docs/errors.md`: every row with something in its column for C is a case of the program, and what the row quotes must be said.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use support::{HEADER, Library, missing, succeeded};

/// A row of the table.
struct Row {
    case: String,
    in_c: String,
    quotes: Vec<String>,
}

fn rows() -> Vec<Row> {
    let page = include_str!("../../../docs/errors.md");
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [case, _, in_c, _, says, steps] = cells[..] else {
            return None;
        };
        let case = case.strip_prefix('`')?.strip_suffix('`')?.to_owned();
        let quotes = |cell: &str| -> Vec<String> {
            let parts = cell.split('“').skip(1);
            let whole = |part: &str| part.split_once('”').map(|(quote, _)| quote.to_owned());
            parts.filter_map(whole).collect()
        };
        let quotes = [quotes(says), quotes(steps)].concat();
        let in_c = in_c.to_owned();
        Some(Row { case, in_c, quotes })
    };
    page.lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(row)
        .filter(|row| row.in_c != "—")
        .collect()
}

/// What is wrong with a row, if anything.
fn complaint(library: &Library, program: &Path, row: &Row) -> Option<String> {
    let mut command = library.command(program);
    command.arg(&row.case).env("NONIC_LOG", "warn");
    if row.case == "everything_lost" {
        command.env("NONIC_FAULTS", "loss=100%");
    }
    let output = command.output().expect("it starts");
    let (printed, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if !output.status.success() {
        return Some(format!("{}: {printed}{said}", row.case));
    }
    let last = printed.lines().last().unwrap_or_default();
    if last != row.in_c {
        return Some(format!(
            "{}: the program sees {last:?}, not {:?}",
            row.case, row.in_c
        ));
    }
    let missing = row.quotes.iter().find(|quote| !said.contains(*quote));
    missing.map(|quote| format!("{}: {quote:?} is missing in: {said}", row.case))
}

#[test]
fn what_is_said_of_each_mistake_names_the_cause_and_the_next_step() {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("explained", &["-libverbs"]);
    let listed = succeeded(
        &library.command(&program).output().expect("it starts"),
        "the list",
    );
    let rows = rows();
    let cases: BTreeSet<&str> = rows.iter().map(|row| &*row.case).collect();
    assert_eq!(cases, listed.lines().collect(), "docs/errors.md and the program");
    assert!(rows.len() >= 25 && rows.iter().all(|row| row.quotes.len() >= 2));
    let complaints: Vec<String> = rows
        .iter()
        .filter_map(|row| complaint(&library, &program, row))
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn without_the_variable_nothing_is_said_and_a_wrong_one_is_refused() {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("explained", &["-libverbs"]);
    let run = |log: Option<&str>| {
        let mut command = library.command(&program);
        command.arg("wrong_key");
        if let Some(log) = log {
            command.env("NONIC_LOG", log);
        }
        let output = command.output().expect("it starts");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert_eq!(run(None), (true, String::new()));
    assert_eq!(
        run(Some("cm=debug")),
        (true, String::new()),
        "of queue pairs nothing was asked"
    );
    let (_, said) = run(Some("qp=debug"));
    assert!(
        said.contains("debug qp: queue pair") && said.contains("went to RTS"),
        "{said}"
    );
    let (succeeded, said) = run(Some("loud"));
    assert!(
        !succeeded && said.contains("NONIC_LOG=loud: must be off, error, warn"),
        "{said}"
    );
}
