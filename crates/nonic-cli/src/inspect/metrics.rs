//! `nonic metrics`: what your processes count, in the text format that Prometheus reads.
//!
//! The counters are those of `NONIC_COUNTERS` and of the files in `counters` and `hw_counters` (docs/files.md): one source,
//! shown three ways.

use super::{Gathered, gather, short};
use crate::output;
use anyhow::{Result, ensure};
use nonic::inspect::{Answer, Record, Request, Value};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// How long one process may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a device holds, and what is said of it.
const GAUGES: [(&str, &str); 5] = [
    ("queue_pairs", "Queue pairs."),
    (
        "memory_keys",
        "Memory keys: registered regions and bound windows.",
    ),
    ("completion_queues", "Completion queues."),
    ("connections", "Connections in any state."),
    ("listeners", "Services that are listened on."),
];

/// Print what your processes count, for Prometheus
///
/// Counters and gauges of every device, with the labels pid, uid, command and device, of your processes, or of everybody's if you are
/// root. Serve it with node_exporter's textfile
/// collector, or with anything that runs a command.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Of this process only
    #[arg(long)]
    pid: Option<u32>,
}

pub(crate) fn run(arguments: &Arguments, json: bool) -> Result<()> {
    ensure!(
        !json,
        "`nonic metrics` prints what Prometheus reads; the same counters as JSON are in `nonic show device --json`"
    );
    let gathered = gather(Request::Devices, arguments.pid, PATIENCE)?;
    gathered.complain();
    let text = exposition(&gathered);
    text.lines().try_for_each(output::line)
}

fn exposition(gathered: &Gathered) -> String {
    let mut out = String::new();
    for (name, about) in GAUGES {
        let samples = gathered
            .records("device")
            .map(|(of, command, device)| (labels(gathered, of, command, device), device.number(name)));
        family(&mut out, &format!("nonic_{name}"), "gauge", about, samples);
    }
    let failed = gathered.records("device").map(|(of, command, device)| {
        (
            labels(gathered, of, command, device),
            device.flag("failed").into(),
        )
    });
    family(
        &mut out,
        "nonic_device_failed",
        "gauge",
        "Whether the device has failed.",
        failed,
    );
    for (name, samples) in counters(gathered) {
        let about = about(name);
        family(
            &mut out,
            &format!("nonic_{name}_total"),
            "counter",
            &about,
            samples.into_iter(),
        );
    }
    for (name, about, count) in [
        (
            "silent",
            "Processes that have a device open and did not answer.",
            gathered.silent.len(),
        ),
        (
            "other_users",
            "Processes of other users, who are not asked.",
            gathered.others,
        ),
    ] {
        let sample = [(String::new(), count as u64)];
        let name = format!("nonic_{name}_processes");
        family(&mut out, &name, "gauge", about, sample.into_iter());
    }
    let build = [(format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1)];
    let about = "The version of the command that asked.";
    family(&mut out, "nonic_build_info", "gauge", about, build.into_iter());
    out
}

type Samples = Vec<(String, u64)>;

/// The counters of all processes, by name.
fn counters(gathered: &Gathered) -> BTreeMap<&str, Samples> {
    let mut families: BTreeMap<&str, Samples> = BTreeMap::new();
    for (of, command, record) in gathered.records("counters") {
        for (name, value) in record.fields() {
            if let Value::Number(number) = value {
                let sample = (labels(gathered, of, command, record), *number);
                families.entry(name).or_default().push(sample);
            }
        }
    }
    families
}

/// What a counter counts; a process of another version may have one that is not known here.
fn about(name: &str) -> String {
    let mut known = nonic::Counters::descriptions().chain(nonic::LinkCounters::descriptions());
    match known.find(|(known, about)| *known == name && !about.is_empty()) {
        Some((_, about)) => about.to_owned(),
        None => format!("{}.", name.replace('_', " ")),
    }
}

fn family(
    out: &mut String,
    name: &str,
    kind: &str,
    about: &str,
    samples: impl Iterator<Item = (String, u64)>,
) {
    let about = about.replace('\\', "\\\\").replace('\n', " ");
    let mut samples = samples.peekable();
    if samples.peek().is_none() {
        return;
    }
    // Writing to a string does not fail.
    let _ = writeln!(out, "# HELP {name} {about}\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        let _ = writeln!(out, "{name}{labels} {value}");
    }
}

fn labels(gathered: &Gathered, of: &Answer, command: &str, record: &Record) -> String {
    let (command, device) = (escape(command), escape(short(record.text("device"))));
    let Answer { pid, uid, nonce, .. } = of;
    // Processes of PID namespaces that we do not see may have one number: no two samples may have the same labels.
    let is_other = |other: &&Answer| other.pid == *pid && other.nonce != *nonce;
    let process = match gathered.answers.iter().find(is_other) {
        Some(_) => format!(",process=\"{nonce:016x}\""),
        None => String::new(),
    };
    format!("{{pid=\"{pid}\",uid=\"{uid}\",command=\"{command}\",device=\"{device}\"{process}}}")
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_described_once_and_has_a_sample_for_each_process() {
        let answer = |pid, nonce, sent| Answer {
            pid,
            uid: 1000,
            nonce,
            cut: false,
            records: [
                "process command=\"a%22b\"".to_owned(),
                "device device=\"roce_lo\" queue_pairs=2 failed=no".to_owned(),
                format!("counters device=\"roce_lo\" tx_packets={sent} timeouts=1 of_tomorrow=1"),
            ]
            .map(|line| Record::parse(line.as_bytes()).expect("a record"))
            .into(),
        };
        let gathered = Gathered {
            answers: vec![
                answer(7, 1, 10),
                answer(8, 2, 20),
                answer(1, 0xa, 3),
                answer(1, 0xb, 4),
            ],
            ..Gathered::default()
        };
        let text = exposition(&gathered);
        let labels = |pid| format!("{{pid=\"{pid}\",uid=\"1000\",command=\"a\\\"b\",device=\"roce_lo\"}}");
        let twins = |nonce| labels(1).replace('}', &format!(",process=\"{nonce:016x}\"}}"));
        for line in [
            "# HELP nonic_timeouts_total Acknowledgement timeouts.".to_owned(),
            "# TYPE nonic_timeouts_total counter".to_owned(),
            "# HELP nonic_of_tomorrow_total of tomorrow.".to_owned(),
            format!("nonic_tx_packets_total{} 10", labels(7)),
            format!("nonic_tx_packets_total{} 20", labels(8)),
            format!("nonic_tx_packets_total{} 3", twins(0xa)),
            format!("nonic_tx_packets_total{} 4", twins(0xb)),
            format!("nonic_queue_pairs{} 2", labels(8)),
            format!("nonic_device_failed{} 0", labels(8)),
            "nonic_silent_processes 0".to_owned(),
        ] {
            let found = text.lines().filter(|found| *found == line).count();
            assert_eq!(found, 1, "{line}\n{text}");
        }
    }
}
