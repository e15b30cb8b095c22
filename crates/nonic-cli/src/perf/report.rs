//! What a run found, for people and for scripts.
//!
//! The JSON form is `{"runs": [RUN, …], "link": {…}}`; `link` has what the client's sockets saw: `sends`,
//! `receives`, `handed_in` and `handed_over` (batches that the kernel gave to the wrong process of this host at
//! port 4791, and that came from it, or went from us to the right one), `send_errors`. Every `RUN` has `test`, `service`, `op`, `size`, `queue_depth`,
//! `qps`, `mtu`, `events`, `verified`. Bandwidth and rate runs add `sent`, `messages`, `bytes`, `seconds`,
//! `gigabytes_per_second`, `gigabits_per_second`, `messages_per_second`, `lost` and `loss_ratio`. Latency
//! runs add `samples`, `lost`, `half_round_trip` and `latency_ns` with `min`, `p50`, `p90`, `p99`, `p99_9`,
//! `max` and `mean`.

use super::bandwidth::Tally;
use super::run::{Run, name};
use crate::output;
use crate::units::{Size, nanoseconds};
use anyhow::Result;
use comfy_table::{CellAlignment, Table};
use hdrhistogram::Histogram;
use nonic::LinkCounters;
use serde_json::{Value, json};
use std::time::Duration;

/// The longest latency told apart from longer ones.
const LONGEST_NS: u64 = 60_000_000_000;

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

/// Latencies and losses.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
    pub(crate) lost: u64,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Latencies {
            histogram: histogram.expect("the bounds are in order and three digits are allowed"),
            lost: 0,
        }
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        self.histogram.saturating_record(latency.as_nanos() as u64);
    }

    pub(crate) fn samples(&self) -> u64 {
        self.histogram.len()
    }

    /// Names and values in nanoseconds.
    pub(crate) fn summary(&self) -> [(&'static str, u64); 7] {
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        [
            ("min", self.histogram.min()),
            ("p50", at(0.5)),
            ("p90", at(0.9)),
            ("p99", at(0.99)),
            ("p99_9", at(0.999)),
            ("max", self.histogram.max()),
            ("mean", self.histogram.mean() as u64),
        ]
    }

    pub(crate) fn as_json(&self) -> Value {
        self.summary()
            .into_iter()
            .map(|(name, ns)| (name.to_owned(), Value::from(ns)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
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
        Found::Latency(_) => output::table([
            "SERVICE", "OP", "SIZE", "SAMPLES", "MIN", "P50", "P90", "P99", "P99.9", "MAX", "MEAN", "LOST",
        ]),
    };
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for report in reports {
        report.add_row(&mut table);
    }
    output::print_table(&table)?;
    if matches!(first.found, Found::Latency(_)) {
        output::line(match half_round_trip(&first.run) {
            true => "(half of the round trip)",
            false => "(the whole round trip)",
        })?;
    }
    Ok(())
}

/// Whether latencies are reported for one way.
pub(crate) fn half_round_trip(run: &Run) -> bool {
    !run.op.fetches()
}

impl Report {
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
            Found::Latency(latencies) => {
                row.push(latencies.samples().to_string());
                row.extend(latencies.summary().map(|(_, ns)| nanoseconds(ns)));
                row.push(latencies.lost.to_string());
            }
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
