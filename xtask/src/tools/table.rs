//! `docs/programs.md`, made from what was found.

use super::Outcome;
use super::cases::Case;
use std::fmt::Write;

/// The whole document.
pub(super) fn markdown(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "# Programs that run on nonic\n\n\
         Made by `cargo xtask tools --write` from a run of each line, and checked by CI: unchanged binaries of Debian 12\n\
         (`ibverbs-utils`, `perftest`, `qperf`), as an unprivileged user, on loopback and between two network namespaces.\n\n\
         | program | service | options | loopback | two hosts |\n|---|---|---|---|---|\n",
    );
    let mut rest = outcomes;
    while let Some(first) = rest.first() {
        let same = |outcome: &&Outcome| row(&outcome.case) == row(&first.case);
        let length = rest.iter().take_while(same).count();
        let (group, others) = rest.split_at(length);
        rest = others;
        let good: Vec<&Outcome> = group
            .iter()
            .filter(|outcome| outcome.case.excuse.is_none())
            .collect();
        if good.is_empty() {
            continue;
        }
        let options: Vec<String> = good.iter().map(|outcome| shown(&outcome.case)).collect();
        let (program, service) = row(&first.case);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| `{program}` | {service} | {} | {} | {} |",
            options.join(", "),
            verdict(&good, 0),
            verdict(&good, 1)
        );
    }
    let excused: Vec<&Outcome> = outcomes
        .iter()
        .filter(|outcome| outcome.case.excuse.is_some())
        .collect();
    if !excused.is_empty() {
        text += "\n## What does not run\n\n| command | why |\n|---|---|\n";
        for outcome in excused {
            let excuse = outcome.case.excuse.unwrap_or_default();
            let _ = writeln!(text, "| `{}` | {excuse} |", outcome.case.line());
        }
    }
    text
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

fn verdict(outcomes: &[&Outcome], site: usize) -> &'static str {
    let failed = outcomes
        .iter()
        .filter(|outcome| outcome.complaints[site].is_some())
        .count();
    if failed == 0 { "✓" } else { "✗" }
}
