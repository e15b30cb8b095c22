//! Ways in which a C program goes wrong (`c/explained.c`): what `NONIC_LOG` says of each names the cause and the next step.
//!
//! The table is `docs/errors.md`: every row with something in its column for C is a case of the program, or of
//! the one of librdmacm, and what the row quotes must be said.

use crate::errors_page;
use crate::errors_page::Row;
use crate::support::{HEADER, Library, missing, succeeded};
use std::collections::BTreeSet;

/// Rows about connections are librdmacm's.
fn rows() -> Vec<Row> {
    let mut rows = errors_page::rows();
    rows.retain(|row| !["Connections", "iWARP"].contains(&&*row.section));
    rows
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
        .filter_map(|row| {
            let mut command = library.command(&program);
            command.arg(&row.case).env("NONIC_LOG", "warn");
            if row.case == "everything_lost" {
                command.env("NONIC_FAULTS", "loss=100%");
            }
            if row.case == "different_path_mtu" {
                // Within a host, requests go without packets.
                command.env("NONIC_LANE", "off");
            }
            row.complaint(&mut command)
        })
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
