//! `nonic sim --network`: scenarios of networks at size, and whether what must hold does.

use crate::output;
use anyhow::{Context, Result, bail};
use nonic_sim::network::{Metrics, Outcome, Scenario, report, scenarios};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

/// Which scenarios, and how.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) scenario: Option<&'a str>,
    pub(super) quick: bool,
    /// The folder that the report goes to.
    pub(super) report: Option<&'a Path>,
    pub(super) threads: usize,
    pub(super) json: bool,
}

pub(super) fn main(request: &Request<'_>) -> Result<()> {
    let chosen = choose(request.scenario)?;
    let start = Instant::now();
    let mut outcomes = Vec::new();
    run(&chosen, request, |outcome| {
        if !request.json {
            print(&outcome)?;
        }
        outcomes.push(outcome);
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    if let Some(folder) = request.report {
        write_report(folder, &outcomes)?;
    }
    if request.json {
        let scenarios: Vec<Value> = outcomes.iter().map(as_json).collect();
        output::json(&json!({ "seconds": seconds, "quick": request.quick, "scenarios": scenarios }))?;
    }
    let failed: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| !outcome.holds())
        .map(|outcome| outcome.scenario.name)
        .collect();
    if !failed.is_empty() {
        bail!("something did not hold in: {}", failed.join(", "));
    }
    if !request.json {
        let checks: usize = outcomes.iter().map(|outcome| outcome.checks.len()).sum();
        output::line(format_args!(
            "{} scenarios in {seconds:.1} s, {checks} checks held",
            outcomes.len()
        ))?;
    }
    Ok(())
}

fn write_report(folder: &Path, outcomes: &[Outcome]) -> Result<()> {
    for file in report(outcomes) {
        let path = folder.join(&file.path);
        let parent = path.parent().context("a file of the report has a folder")?;
        std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        std::fs::write(&path, file.text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn choose(name: Option<&str>) -> Result<Vec<&'static Scenario>> {
    let all = scenarios();
    let Some(name) = name else {
        return Ok(all.iter().collect());
    };
    let found = all.iter().find(|scenario| scenario.name == name);
    let names = || {
        all.iter()
            .map(|scenario| scenario.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let found = found.with_context(|| format!("there is no scenario {name:?}; there are {}", names()))?;
    Ok(vec![found])
}

/// Runs scenarios on several threads and hands out their results, in order.
fn run(
    chosen: &[&Scenario],
    request: &Request<'_>,
    mut done: impl FnMut(Outcome) -> Result<()>,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..request.threads.min(chosen.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some(scenario) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver is gone if the output was closed.
                    if sender.send(scenario.run(request.quick)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut early: Vec<Outcome> = Vec::new();
        for scenario in chosen {
            let outcome = loop {
                if let Some(at) = early
                    .iter()
                    .position(|outcome| outcome.scenario.name == scenario.name)
                {
                    break early.swap_remove(at);
                }
                early.push(receiver.recv().context("a scenario ended in a panic")?);
            };
            done(outcome)?;
        }
        Ok(())
    })
}

fn print(outcome: &Outcome) -> Result<()> {
    output::line(format_args!(
        "{} ({})",
        outcome.scenario.title, outcome.scenario.name
    ))?;
    let header = [
        "",
        "goodput",
        "Jain",
        "queue P99",
        "completion P50",
        "P99",
        "P99.9",
        "again",
        "timeouts",
    ];
    let mut table = output::table(header);
    for run in &outcome.runs {
        let [half, most, nearly_all] = run.completion.map(|seconds| match seconds {
            0.0 => "-".to_owned(),
            seconds => format!("{:.2} ms", seconds * 1e3),
        });
        table.add_row([
            format!("  {}", run.law),
            format!("{:.3}", run.goodput),
            format!("{:.3}", run.fairness),
            format!("{} KB", run.queue[1] / 1000),
            half,
            most,
            nearly_all,
            format!("{:.1} %", 100.0 * run.repeated as f64 / run.sent.max(1) as f64),
            run.timeouts.to_string(),
        ]);
    }
    output::print_table(&table)?;
    for check in &outcome.checks {
        output::line(format_args!("  {check}"))?;
    }
    Ok(())
}

fn as_json(outcome: &Outcome) -> Value {
    let checks: Vec<Value> = outcome
        .checks
        .iter()
        .map(|check| {
            json!({
                "what": check.what,
                "value": check.value,
                if check.at_least { "at_least" } else { "at_most" }: check.bound,
                "holds": check.holds(),
            })
        })
        .collect();
    json!({
        "name": outcome.scenario.name,
        "holds": outcome.holds(),
        "checks": checks,
        "runs": outcome.runs.iter().map(run_as_json).collect::<Vec<Value>>(),
    })
}

fn run_as_json(run: &Metrics) -> Value {
    json!({
        "law": run.law,
        "virtual_seconds": run.seconds,
        "goodput": run.goodput,
        "fairness": run.fairness,
        "queue_bytes": { "p50": run.queue[0], "p99": run.queue[1], "max": run.queue[2] },
        "completion_seconds": { "p50": run.completion[0], "p99": run.completion[1], "p999": run.completion[2] },
        "flows": run.flows,
        "finished": run.finished,
        "packets": run.sent,
        "repeated": run.repeated,
        "dropped": run.dropped,
        "marked": run.marked,
        "silences": run.silences,
        "timeouts": run.timeouts,
        "events": run.events,
    })
}
