//! The second part of `docs/programs.md`: a run of which nothing was unexpected.

use super::case::{Case, Place};
use crate::tools::document::SECOND_PART;
use std::fmt::Write;

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
            "\n## {} {}\n\n| command | one host | two hosts | one host, IPv6 | two hosts, IPv6 |\n|---|---|---|---|---|\n",
            program.name, program.version
        );
        for case in group {
            let _ = write!(text, "| `{}` |", case.line);
            for place in Place::ALL {
                let mark = match (case.places.contains(&place), case.is_known_to_fail(place)) {
                    (false, _) => "",
                    (true, false) => "✓",
                    (true, true) => "–",
                };
                let _ = write!(text, " {mark} |");
            }
            text.push('\n');
        }
        for case in group {
            if let Some(known) = &case.known_failure {
                let _ = write!(text, "\n`{}` does not run: {}.\n", case.line, known.why);
            }
        }
    }
    text
}
