//! `nonic show`: what is in your processes, once, as a table or as JSON.

use super::{Gathered, as_json, gather};
use crate::output;
use anyhow::Result;
use nonic::inspect::{Record, Request};
use serde_json::{Map, Value};
use std::time::Duration;

/// How long one process may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Show what is in your processes: queue pairs, memory keys, completion queues, connections or devices
///
/// With --json, every field; docs/inspect.md says what each means.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to show
    #[arg(value_enum)]
    what: What,
    /// Of this process only
    #[arg(long)]
    pid: Option<u32>,
    /// With the numbers of memory keys, which let whoever knows them reach the memory
    #[arg(long)]
    keys: bool,
}

/// What can be shown.
#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum)]
enum What {
    /// Queue pairs
    Qp,
    /// Memory keys
    Mr,
    /// Completion queues
    Cq,
    /// Connections and listeners
    Connection,
    /// Devices
    Device,
}

impl What {
    fn request(self) -> Request {
        match self {
            What::Qp => Request::QueuePairs,
            What::Mr => Request::MemoryKeys,
            What::Cq => Request::CompletionQueues,
            What::Connection => Request::Connections,
            What::Device => Request::Devices,
        }
    }

    /// The kinds of records that are shown, with their columns: what stands above each and the field it is.
    fn tables(self) -> &'static [(&'static str, &'static [(&'static str, &'static str)])] {
        match self {
            What::Qp => &[("qp", QP)],
            What::Mr => &[("mr", MR)],
            What::Cq => &[("cq", CQ)],
            What::Connection => &[("connection", CONNECTION), ("listener", LISTENER)],
            What::Device => &[("device", DEVICE)],
        }
    }
}

const QP: &[(&str, &str)] = &[
    ("DEVICE", "device"),
    ("QPN", "qpn"),
    ("TYPE", "service"),
    ("STATE", "state"),
    ("ROAD", "road"),
    ("PEER", "peer"),
    ("PEER QPN", "peer_qpn"),
    ("NEXT PSN", "next_psn"),
    ("UNA", "una_psn"),
    ("EXPECTED", "expected_psn"),
    ("SENDS", "send_requests"),
    ("RECVS", "receives"),
    ("IN FLIGHT", "in_flight_bytes"),
    ("TX BYTES", "tx_bytes"),
    ("RX BYTES", "rx_bytes"),
    ("DIRECT", "direct_bytes"),
    ("AGAIN", "retransmitted_packets"),
    ("TIMEOUTS", "timeouts"),
    ("RNRS", "rnr_naks_received"),
];
const MR: &[(&str, &str)] = &[
    ("DEVICE", "device"),
    ("KEY", "key"),
    ("KIND", "kind"),
    ("PD", "pd"),
    ("ADDRESS", "address"),
    ("LENGTH", "length"),
    ("WINDOWS", "windows"),
    ("ACCESS", "access"),
];
const CQ: &[(&str, &str)] = &[
    ("DEVICE", "device"),
    ("CQ", "cq"),
    ("ENTRIES", "entries"),
    ("CAPACITY", "capacity"),
    ("ARMED", "armed"),
    ("OVERFLOWED", "overflowed"),
];
const CONNECTION: &[(&str, &str)] = &[
    ("DEVICE", "device"),
    ("ID", "id"),
    ("STATE", "state"),
    ("ROLE", "role"),
    ("TYPE", "type"),
    ("SERVICE", "service"),
    ("LOCAL", "local"),
    ("PEER", "peer"),
    ("QPN", "qpn"),
    ("PEER QPN", "peer_qpn"),
];
const LISTENER: &[(&str, &str)] = &[
    ("DEVICE", "device"),
    ("LISTENS ON", "service"),
    ("LOCAL", "local"),
    ("PENDING", "pending"),
    ("BACKLOG", "backlog"),
];
const DEVICE: &[(&str, &str)] = &[
    ("DEVICE", "device"),
    ("WIRE", "wire"),
    ("ADDRESSES", "addresses"),
    ("PATH MTU", "path_mtu"),
    ("SHARDS", "shards"),
    ("FAILED", "failed"),
    ("PORT TAKEN", "port_taken"),
    ("QPS", "queue_pairs"),
    ("MRS", "memory_keys"),
    ("CQS", "completion_queues"),
    ("CONNECTIONS", "connections"),
    ("LISTENERS", "listeners"),
];

pub(crate) fn run(arguments: &Arguments, json: bool) -> Result<()> {
    let mut gathered = gather(arguments.what.request(), arguments.pid, PATIENCE)?;
    if !arguments.keys {
        hide_keys(&mut gathered);
    }
    gathered.complain();
    if json {
        return output::json(&document(arguments.what, &gathered));
    }
    let mut shown = 0;
    for (kind, columns) in arguments.what.tables() {
        if shown > 0 && gathered.records(kind).next().is_some() {
            output::line("")?;
        }
        shown += print_table(&gathered, kind, columns)?;
    }
    if shown == 0 {
        output::line("none")?;
    }
    Ok(())
}

/// Whoever knows a key and reaches the process can use the memory, and people paste what they see.
fn hide_keys(gathered: &mut Gathered) {
    let records = gathered.answers.iter_mut().flat_map(|answer| &mut answer.records);
    for record in records.filter(|record| record.kind() == "mr") {
        record.remove("key");
    }
}

/// Prints the records of a kind, if there are any; how many there were.
fn print_table(gathered: &Gathered, kind: &str, columns: &[(&str, &str)]) -> Result<usize> {
    // A field that no record has, such as a key that is not to be shown, needs no column.
    let is_told = |name: &str| {
        gathered
            .records(kind)
            .any(|(_, _, record)| record.get(name).is_some())
    };
    let columns: Vec<_> = columns.iter().filter(|(_, name)| is_told(name)).collect();
    let headers = columns.iter().map(|(header, _)| *header);
    let mut table = output::table(["PID", "COMMAND"].into_iter().chain(headers));
    let mut rows = 0;
    for (of, command, record) in gathered.records(kind) {
        let fields = columns.iter().map(|(_, name)| cell(record, name));
        table.add_row([of.pid.to_string(), command.to_owned()].into_iter().chain(fields));
        rows += 1;
    }
    if rows > 0 {
        output::print_table(&table)?;
    }
    Ok(rows)
}

fn cell(record: &Record, name: &str) -> String {
    let value = record.get(name).map(ToString::to_string);
    value
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| "-".to_owned())
}

fn document(what: What, gathered: &Gathered) -> Value {
    let mut document = Map::new();
    let mut kinds: Vec<&str> = what.tables().iter().map(|(kind, _)| *kind).collect();
    if what == What::Device {
        kinds.push("counters");
    }
    for kind in kinds {
        let records = gathered.records(kind);
        let records: Vec<Value> = records
            .map(|(of, command, record)| as_json(of, command, record))
            .collect();
        document.insert(kind.to_owned(), records.into());
    }
    Value::Object(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic::inspect::Answer;

    fn gathered(lines: &[&str]) -> Gathered {
        let records = lines
            .iter()
            .map(|line| Record::parse(line.as_bytes()).expect("a record"));
        let answer = Answer {
            pid: 7,
            uid: 0,
            nonce: 0,
            records: records.collect(),
        };
        Gathered {
            answers: vec![answer],
            ..Gathered::default()
        }
    }

    #[test]
    fn records_become_json_of_their_types() {
        let gathered = gathered(&[
            "process pid=7 command=\"ib_write_bw\"",
            "cq device=\"roce_lo\" cq=3 entries=0 armed=\"no\" overflowed=no",
        ]);
        let document = document(What::Cq, &gathered);
        let expected = serde_json::json!({ "cq": [{
            "pid": 7, "uid": 0, "command": "ib_write_bw", "device": "roce_lo", "cq": 3, "entries": 0, "armed": "no", "overflowed": false,
        }] });
        assert_eq!(document, expected);
    }

    #[test]
    fn keys_are_not_shown_unless_asked_for() {
        let mut gathered = gathered(&["mr device=\"roce_lo\" key=305419896 length=4096"]);
        assert!(document(What::Mr, &gathered).to_string().contains("305419896"));
        hide_keys(&mut gathered);
        let document = document(What::Mr, &gathered).to_string();
        assert!(
            !document.contains("305419896") && document.contains("4096"),
            "{document}"
        );
    }
}
