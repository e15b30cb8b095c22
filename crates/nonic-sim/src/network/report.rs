//! The report of the scenarios: what was done, what must hold, what was measured, and a plot of each.

use super::metrics::Metrics;
use super::plot;
use super::scenarios::Outcome;
use std::fmt::Write;

const OPENING: &str = "\
# Networks, simulated

Written by `nonic sim --network --report`; what it means is in the code (`crates/nonic-sim/src/network`). Everything is in virtual time and
the same on every machine.

Flows are light models of both ends of a reliable connection. How much each may have under way is decided by nonic's own code, the same
that runs in the device (`nonic_core::Congestion`); loss is recovered from as the device does. \"Devices\" are whole devices. Switches have a
buffer of 16 MB that all their queues share (a queue may be as long as what is free) and mark between 100 and 400 KB unless it is said
otherwise. Goodput counts each byte once, headers included. DCQCN and TIMELY have the constants of their papers and the same loss
recovery as nonic, and are held to a window, because nothing here is lossless: they were not made for that, and what they come to here is
no judgement of what they do at home. First it is shown that they behave here as published.

Not simulated: processors and schedulers, which decide most on short paths, and priority flow control.

";

/// A file of the report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Where it belongs, beside the document.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// The document, and a plot of each scenario.
pub fn report(outcomes: &[Outcome]) -> Vec<File> {
    let mut text = OPENING.to_owned();
    let mut files = Vec::new();
    for outcome in outcomes {
        let plot = format!("plots/network-{}.svg", outcome.scenario.name);
        section(&mut text, outcome, &plot);
        files.push(File {
            path: plot,
            text: plot::svg(outcome),
        });
    }
    files.insert(
        0,
        File {
            path: "networks-simulated.md".to_owned(),
            text,
        },
    );
    files
}

fn section(text: &mut String, outcome: &Outcome, plot: &str) {
    let scenario = &outcome.scenario;
    let _ = writeln!(
        text,
        "## {}\n\n`--scenario {}`. {}\n",
        scenario.title, scenario.name, scenario.about
    );
    text.push_str("| | goodput | Jain | queue P50 / P99, KB | completion P50 / P99 / P99.9, ms | sent again | timeouts |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    for run in &outcome.runs {
        row(text, run);
    }
    text.push_str("\n| must hold | | bound |\n|---|---|---|\n");
    for check in &outcome.checks {
        let sign = if check.at_least { "≥" } else { "≤" };
        let failed = if check.holds() { "" } else { " **does not hold**" };
        let _ = writeln!(
            text,
            "| {} | {} | {sign} {}{failed} |",
            check.what,
            figure(check.value),
            check.bound
        );
    }
    let _ = writeln!(text, "\n![{}]({plot})\n", scenario.title);
}

fn row(text: &mut String, run: &Metrics) {
    let completion = if run.finished == 0 {
        "–".to_owned()
    } else {
        run.completion.map(|seconds| figure(seconds * 1e3)).join(" / ")
    };
    let again = 100.0 * run.repeated as f64 / run.sent.max(1) as f64;
    let _ = writeln!(
        text,
        "| {} | {:.3} | {:.3} | {} / {} | {completion} | {again:.1} % | {} |",
        run.law,
        run.goodput,
        run.fairness,
        run.queue[0] / 1000,
        run.queue[1] / 1000,
        run.timeouts
    );
}

/// Three digits that matter.
fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        0.0..10.0 => format!("{value:.3}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
