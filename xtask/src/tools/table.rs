//! `docs/programs.md`, made from what was found.

use super::case::{Case, Outcome, Place, Shape, Wire};
use std::fmt::Write;
use testbed::case::Case as _;
use testbed::table::Table;

/// The whole document.
pub(super) fn markdown(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "# Programs that run on nonic\n\n\
         Made by `cargo xtask tools --write` from a run of each line, and checked by CI: unchanged binaries of Debian 12\n\
         (`ibverbs-utils`, `rdmacm-utils`, `perftest`, `qperf`, `fio`), as an unprivileged user, on loopback and between two\n\
         network namespaces.\n\n",
    );
    let (iwarp, roce): (Vec<&Outcome>, Vec<&Outcome>) = outcomes
        .iter()
        .partition(|outcome| outcome.case.wire == Wire::Iwarp);
    let (connected, paired): (Vec<&Outcome>, Vec<&Outcome>) = roce
        .into_iter()
        .partition(|outcome| matches!(outcome.case.shape, Shape::Connected(_)));
    text += "## By TCP\n\n";
    text += &groups(&paired).markdown();
    text += "\n## By the connection manager\n\n";
    text += &lines(&connected).markdown();
    text += "\n## On iWARP\n\n\
             With `nonic run --wire iwarp`, or `NONIC_WIRE=iwarp`, by the connection manager: there is no other way on that wire.\n\n";
    text += &lines(&iwarp).markdown();
    text += "\n## On a network with faults\n\n\
             With `NONIC_FAULTS` at both ends: packets lost, duplicated, reordered, damaged and delayed. Data is verified by the\n\
             programs that can, and the counters must show that all of it happened and was repaired.\n\n";
    for line in super::faulty::lines() {
        let _ = writeln!(text, "- `{line}`");
    }
    text += "\n## What does not run\n\n";
    text += &known_failures(outcomes).markdown();
    text
}

/// A line per program and service: many differ in options only.
fn groups(outcomes: &[&Outcome]) -> Table {
    let headings = ["program", "service", "options"];
    let mut table = Table::new(headings.into_iter().chain(Place::IPV4.map(name)));
    let mut rest = outcomes;
    while let Some(first) = rest.first() {
        let same = |outcome: &&&Outcome| row(&outcome.case) == row(&first.case);
        let length = rest.iter().take_while(same).count();
        let (group, others) = rest.split_at(length);
        rest = others;
        let options: Vec<String> = group.iter().map(|outcome| shown(&outcome.case)).collect();
        let verdict = |place| group.iter().all(|outcome| outcome.is_good_at(place));
        let (program, service) = row(&first.case);
        let command = [format!("`{program}`"), service.to_owned(), options.join(", ")];
        let marks = Place::IPV4.map(|place| mark(verdict(place)).to_owned());
        table.add(command.into_iter().chain(marks));
    }
    table
}

/// A line per case.
fn lines(outcomes: &[&Outcome]) -> Table {
    let mut table = Table::new(["program", "options"].into_iter().chain(Place::ALL.map(name)));
    for outcome in outcomes {
        let case = &outcome.case;
        let known = case.known_failure.as_ref();
        if known.is_some_and(|known| known.places == Place::ALL) {
            continue;
        }
        let verdicts = Place::ALL.map(|place| match outcome.is_good_at(place) {
            false if case.is_known_to_fail(place) => "–".to_owned(),
            good => mark(good).to_owned(),
        });
        let command = [format!("`{}`", case.program), shown(case)];
        table.add(command.into_iter().chain(verdicts));
    }
    table
}

fn known_failures(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(["command", "where", "why"]);
    // Whatever does not run on iWARP does not on RoCE, for the same reason, if it is there at all.
    let told = |case: &&Case| {
        let same = |other: &Outcome| {
            let other = &other.case;
            other.wire == Wire::Roce && (other.program, &other.options) == (case.program, &case.options)
        };
        case.wire == Wire::Roce || !outcomes.iter().any(same)
    };
    for case in outcomes.iter().map(|outcome| &outcome.case).filter(told) {
        if let Some(known) = &case.known_failure {
            table.add([
                format!("`{}`", case.line()),
                names(&known.places),
                known.why.to_owned(),
            ]);
        }
    }
    table
}

/// As the tables call a place: on one host these programs use loopback.
fn name(place: Place) -> &'static str {
    match place {
        Place::OneHost => "loopback",
        Place::OneHostIpv6 => "loopback, IPv6",
        Place::TwoHosts | Place::TwoHostsIpv6 => place.name(),
    }
}

fn names(places: &[Place]) -> String {
    if places == Place::ALL {
        "everywhere".to_owned()
    } else if places == Place::IPV6 {
        "IPv6".to_owned()
    } else {
        let names: Vec<&str> = places.iter().map(|place| name(*place)).collect();
        names.join("; ")
    }
}

fn mark(good: bool) -> &'static str {
    if good { "✓" } else { "✗" }
}

fn row(case: &Case) -> (&'static str, &'static str) {
    (case.program, case.service)
}

fn shown(case: &Case) -> String {
    if case.options.is_empty() {
        "plain".to_owned()
    } else {
        format!("`{}`", case.options.join(" "))
    }
}
