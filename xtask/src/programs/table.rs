//! The second part of `docs/programs.md`: a run of which nothing was unexpected.

use super::case::{Case, Place};
use crate::tools::document::SECOND_PART;
use std::fmt::Write;
use testbed::case::Case as _;
use testbed::table::Table;

/// The whole part.
pub(super) fn markdown(cases: &[Case]) -> String {
    let mut text = format!(
        "{SECOND_PART}\n\n\
         Made by `cargo xtask programs --write` from a run of each line: unchanged binaries from Debian 12 or PyPI, as an\n\
         unprivileged user, started by `nonic run` on one host and on two network namespaces, with no setting or option that a\n\
         user of hardware would not give. That a run used nonic is proved by its counters. CI runs a part of it.\n"
    );
    let mut rest = cases;
    while let Some(first) = rest.first() {
        let program = first.program;
        let same = |case: &&Case| case.program.name == program.name;
        let length = rest.iter().take_while(same).count();
        let (group, others) = rest.split_at(length);
        rest = others;
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n## {} {}\n\n{}",
            program.name,
            program.version,
            table(group).markdown()
        );
        for case in group {
            if let Some(known) = &case.known_failure {
                let _ = write!(text, "\n`{}` does not run: {}.\n", case.line, known.why);
            }
        }
    }
    text
}

/// A row for each command, a column for each place.
fn table(cases: &[Case]) -> Table {
    let mut table = Table::new(["command"].into_iter().chain(Place::ALL.map(Place::name)));
    for case in cases {
        let mark = |place| match (case.places.contains(&place), case.is_known_to_fail(place)) {
            (false, _) => "",
            (true, false) => "✓",
            (true, true) => "–",
        };
        let marks = Place::ALL.map(|place| mark(place).to_owned());
        table.add(std::iter::once(format!("`{}`", case.line)).chain(marks));
    }
    table
}
