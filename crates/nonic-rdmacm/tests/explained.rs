//! Ways in which connections of a C program go wrong (`c/explained.c`): what `NONIC_LOG` says of each names the cause and the next step.
//!
//! The table is `docs/errors.md`: every row of its sections about connections and iWARP with something in its column for C is a case of the
//! program, and what the row quotes must be said.

use crate::errors_page;
use crate::support::pair::port;
use crate::support::{Libraries, missing, succeeded};
use std::collections::BTreeSet;

#[test]
fn what_is_said_of_each_mistake_names_the_cause_and_the_next_step() {
    if missing("/usr/include/rdma/rdma_cma.h") {
        return;
    }
    let libraries = [("Connections", "roce"), ("iWARP", "iwarp")]
        .map(|(section, wire)| (section, Libraries::for_wire(wire)));
    let program = libraries[0].1.compile("explained", &["-lrdmacm", "-libverbs"]);
    let program = program.to_str().expect("a name");
    let listed = libraries[0].1.command(program).output().expect("it starts");
    let listed = succeeded(&listed, "the list");
    let rows = errors_page::rows();
    let mut cases = BTreeSet::new();
    let mut complaints = Vec::new();
    for (section, libraries) in &libraries {
        for row in rows.iter().filter(|row| row.section == *section) {
            assert!(row.quotes.len() >= 2, "{} quotes a cause and a step", row.case);
            let mut command = libraries.command(program);
            command
                .args([&row.case, &port(56 + cases.len() as u32)])
                .env("NONIC_LOG", "warn");
            complaints.extend(row.complaint(&mut command));
            cases.insert(&*row.case);
        }
    }
    assert_eq!(cases, listed.lines().collect(), "docs/errors.md and the program");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
