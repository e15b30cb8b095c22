//! The result of a run, for people and for scripts.
//!
//! The JSON form is `{"runs": [RUN, …], "link": {…}}`; `link` has what the client's sockets saw: `sends`, `receives`,
//! `handed_in` and `handed_over` (batches that the kernel gave to the wrong process of this host at port 4791, and that
//! came from it, or went from us to the right one), `send_errors`. Every `RUN` has `test`, `service`, `op`, `size`,
//! `queue_depth`, `qps`, `mtu`, `events`, `verified`. Bandwidth and rate runs add `sent`, `messages`, `bytes`,
//! `seconds`, `gigabytes_per_second`, `gigabits_per_second`, `messages_per_second`, `lost` and `loss_ratio`. Latency
//! runs add `samples`, `lost`, `half_round_trip` and `latency_ns` with `min`, `p50`, `p90`, `p99`, `p99_9`, `max` and
//! `mean`; a percentile is null if there were too few samples for it.

use super::bandwidth::Tally;
use super::histogram::{self, significant};
use super::latencies::Latencies;
use super::run::{Run, name};
use crate::output;
use crate::units::Size;
use anyhow::Result;
use comfy_table::{CellAlignment, Table};
use nonic::LinkCounters;
use serde_json::{Value, json};

/// One run and what it found.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) run: Run,
    pub(crate) found: Found,
}

#[derive(Clone, Debug)]
pub(crate) enum Found {
    Bandwidth(Tally),
    Latency(Latencies),
}

impl Tally {
    fn bytes_per_second(&self, run: &Run) -> f64 {
        self.messages_per_second() * f64::from(run.size)
    }

    fn messages_per_second(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.messages)
    }

    fn loss_ratio(&self) -> f64 {
        self.lost() as f64 / (self.sent as f64).max(1.0)
    }
}

pub(crate) fn print(reports: &[Report], link: &LinkCounters, json: bool) -> Result<()> {
    if json {
        let runs: Vec<Value> = reports.iter().map(Report::as_json).collect();
        let link = json!({
            "sends": link.sends,
            "receives": link.receives,
            "handed_in": link.handed_in,
            "handed_over": link.handed_over,
            "send_errors": link.send_errors,
        });
        return output::json(&json!({ "runs": runs, "link": link }));
    }
    let Some(first) = reports.first() else {
        return Ok(());
    };
    let mut table = match first.found {
        Found::Bandwidth(_) => output::table([
            "SERVICE", "OP", "SIZE", "DEPTH", "QPS", "MESSAGES", "GB/s", "Gb/s", "MSG/s", "LOST",
        ]),
        Found::Latency(_) => return print_latencies(reports),
    };
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for report in reports {
        report.add_row(&mut table);
    }
    output::print_table(&table)
}

/// Latencies have one unit, said once, and so a row fits a terminal.
fn print_latencies(reports: &[Report]) -> Result<()> {
    let (Some(first), some_lost) = (reports.first(), reports.iter().any(|report| report.lost() > 0)) else {
        return Ok(());
    };
    let run = &first.run;
    let way = match half_round_trip(run) {
        true => "half of the round trip",
        false => "the whole round trip",
    };
    output::line(format_args!(
        "{} {}, {way}, in µs",
        name(run.service),
        name(run.op)
    ))?;
    let mut header = vec![
        "SIZE", "SAMPLES", "MIN", "P50", "P90", "P99", "P99.9", "MAX", "MEAN",
    ];
    if some_lost {
        header.push("LOST");
    }
    let mut table = output::table(header);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for report in reports {
        let Found::Latency(latencies) = &report.found else {
            continue;
        };
        let mut row = vec![
            Size(report.run.size.into()).to_string(),
            latencies.samples().to_string(),
        ];
        let told = |ns: Option<u64>| ns.map_or("–".to_owned(), |ns| significant(ns as f64 / 1e3));
        row.extend(latencies.summary().map(|(_, ns)| told(ns)));
        if some_lost {
            row.push(latencies.lost.to_string());
        }
        table.add_row(row);
    }
    output::print_table(&table)?;
    if let (Found::Latency(latencies), [_], true) = (&first.found, reports, output::is_terminal()) {
        output::line("")?;
        histogram::lines(latencies).iter().try_for_each(output::line)?;
    }
    Ok(())
}

/// Whether latencies are reported for one way.
pub(crate) fn half_round_trip(run: &Run) -> bool {
    !run.op.fetches()
}

impl Report {
    fn lost(&self) -> u64 {
        match &self.found {
            Found::Bandwidth(tally) => tally.lost(),
            Found::Latency(latencies) => latencies.lost,
        }
    }

    fn add_row(&self, table: &mut Table) {
        let run = &self.run;
        let mut row = vec![name(run.service), name(run.op), Size(run.size.into()).to_string()];
        match &self.found {
            Found::Bandwidth(tally) => {
                let bytes_per_second = tally.bytes_per_second(run);
                row.extend([
                    run.depth.to_string(),
                    run.qps.to_string(),
                    tally.messages.to_string(),
                    format!("{:.3}", bytes_per_second / 1e9),
                    format!("{:.2}", bytes_per_second * 8.0 / 1e9),
                    format!("{:.0}", tally.messages_per_second()),
                    format!("{:.2}%", tally.loss_ratio() * 100.0),
                ]);
            }
            // Those have a table of their own.
            Found::Latency(_) => return,
        }
        table.add_row(row);
    }

    fn as_json(&self) -> Value {
        let run = &self.run;
        let mut value = json!({
            "test": run.test,
            "service": run.service,
            "op": run.op,
            "size": run.size,
            "queue_depth": run.depth,
            "qps": run.qps,
            "mtu": run.mtu.bytes(),
            "events": run.events,
            "verified": run.verify,
        });
        let found = match &self.found {
            Found::Bandwidth(tally) => json!({
                "sent": tally.sent,
                "messages": tally.messages,
                "bytes": tally.messages * u64::from(run.size),
                "seconds": tally.elapsed.as_secs_f64(),
                "gigabytes_per_second": tally.bytes_per_second(run) / 1e9,
                "gigabits_per_second": tally.bytes_per_second(run) * 8.0 / 1e9,
                "messages_per_second": tally.messages_per_second(),
                "lost": tally.lost(),
                "loss_ratio": tally.loss_ratio(),
            }),
            Found::Latency(latencies) => json!({
                "samples": latencies.samples(),
                "lost": latencies.lost,
                "half_round_trip": half_round_trip(run),
                "latency_ns": latencies.as_json(),
            }),
        };
        if let (Value::Object(value), Value::Object(found)) = (&mut value, found) {
            value.extend(found);
        }
        value
    }
}
