//! `nonic show`: what is in your processes, once, as a table or as JSON.

use super::{Gathered, as_json, gather};
use crate::output;
use crate::units;
use anyhow::Result;
use nonic::inspect::{Answer, Record, Request, Value as InspectedValue};
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
    /// Show as many columns as fit into so many characters; 0 is all [default: the terminal's width, all in a pipe]
    #[arg(long, value_name = "CHARACTERS")]
    width: Option<usize>,
}

/// What can be shown.
#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum)]
enum What {
    /// Queue pairs
    #[value(alias = "qps")]
    Qp,
    /// Memory keys
    #[value(alias = "mrs")]
    Mr,
    /// Completion queues
    #[value(alias = "cqs")]
    Cq,
    /// Connections and listeners
    #[value(aliases = ["connections", "listener", "listeners"])]
    Connection,
    /// Devices
    #[value(alias = "devices")]
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

    /// The kinds of records that are shown, with their columns.
    fn tables(self) -> &'static [(&'static str, &'static [Column])] {
        match self {
            What::Qp => &[("qp", QP)],
            What::Mr => &[("mr", MR)],
            What::Cq => &[("cq", CQ)],
            What::Connection => &[("connection", CONNECTION), ("listener", LISTENER)],
            What::Device => &[("device", DEVICE)],
        }
    }
}

/// What stands above a column, the field it is, and its rank: where there is no room for all, those of the highest ranks are left out.
type Column = (&'static str, &'static str, u8);

/// The process that a row belongs to.
const OWNER: [Column; 2] = [("PID", "pid", 0), ("COMMAND", "command", 3)];

const QP: &[Column] = &[
    ("DEVICE", "device", 6),
    ("QPN", "qpn", 0),
    ("TYPE", "service", 8),
    ("STATE", "state", 1),
    ("ROAD", "road", 4),
    ("PEER", "peer", 2),
    ("PEER QPN", "peer_qpn", 9),
    ("NEXT PSN", "next_psn", 15),
    ("UNA", "una_psn", 16),
    ("EXPECTED", "expected_psn", 17),
    ("SENDS", "send_requests", 10),
    ("RECVS", "receives", 11),
    ("IN FLIGHT", "in_flight_bytes", 12),
    ("TX BYTES", "tx_bytes", 5),
    ("RX BYTES", "rx_bytes", 5),
    ("DIRECT", "direct_bytes", 13),
    ("AGAIN", "retransmitted_packets", 7),
    ("TIMEOUTS", "timeouts", 14),
    ("RNRS", "rnr_naks_received", 14),
];
const MR: &[Column] = &[
    ("DEVICE", "device", 4),
    ("KEY", "key", 0),
    ("KIND", "kind", 5),
    ("PD", "pd", 7),
    ("ADDRESS", "address", 2),
    ("LENGTH", "length", 1),
    ("WINDOWS", "windows", 8),
    ("ACCESS", "access", 3),
];
const CQ: &[Column] = &[
    ("DEVICE", "device", 3),
    ("CQ", "cq", 0),
    ("ENTRIES", "entries", 1),
    ("CAPACITY", "capacity", 1),
    ("ARMED", "armed", 2),
    ("OVERFLOWED", "overflowed", 2),
];
const CONNECTION: &[Column] = &[
    ("DEVICE", "device", 5),
    ("ID", "id", 7),
    ("STATE", "state", 1),
    ("ROLE", "role", 4),
    ("TYPE", "type", 8),
    ("SERVICE", "service", 6),
    ("LOCAL", "local", 2),
    ("PEER", "peer", 1),
    ("QPN", "qpn", 2),
    ("PEER QPN", "peer_qpn", 6),
];
const LISTENER: &[Column] = &[
    ("DEVICE", "device", 3),
    ("LISTENS ON", "service", 0),
    ("LOCAL", "local", 1),
    ("PENDING", "pending", 2),
    ("BACKLOG", "backlog", 4),
];
const DEVICE: &[Column] = &[
    ("DEVICE", "device", 0),
    ("WIRE", "wire", 5),
    ("ADDRESSES", "addresses", 2),
    ("PATH MTU", "path_mtu", 6),
    ("SHARDS", "shards", 8),
    ("FAILED", "failed", 1),
    ("PORT TAKEN", "port_taken", 1),
    ("QPS", "queue_pairs", 3),
    ("MRS", "memory_keys", 4),
    ("CQS", "completion_queues", 7),
    ("CONNECTIONS", "connections", 4),
    ("LISTENERS", "listeners", 4),
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
    let width = arguments.width.or_else(output::terminal_width);
    let width = width.filter(|width| *width > 0);
    let tables = arguments.what.tables().iter();
    let tables = tables.filter_map(|(kind, columns)| Table::of(&gathered, kind, columns));
    let tables: Vec<Table> = tables.collect();
    for (index, table) in tables.iter().enumerate() {
        if index > 0 {
            output::line("")?;
        }
        table.print(width)?;
    }
    if tables.is_empty() {
        output::line("none")?;
    }
    Ok(())
}

/// A process that knows a key and reaches this one can use the memory, and people paste what they see.
fn hide_keys(gathered: &mut Gathered) {
    let records = gathered.answers.iter_mut().flat_map(|answer| &mut answer.records);
    for record in records.filter(|record| record.kind() == "mr") {
        record.remove("key");
    }
}

/// The records of a kind.
struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// None if there are no such records.
    fn of(gathered: &Gathered, kind: &str, columns: &[Column]) -> Option<Self> {
        // A field that no record has, such as a key that is not to be shown, needs no column.
        let is_told = |name: &str| {
            gathered
                .records(kind)
                .any(|(_, _, record)| record.get(name).is_some())
        };
        let columns: Vec<Column> = columns
            .iter()
            .copied()
            .filter(|(_, name, _)| is_told(name))
            .collect();
        let row = |(of, command, record): (&Answer, &str, &Record)| {
            let fields = columns.iter().map(|(_, name, _)| cell(record, name));
            [of.pid.to_string(), output::cell(command)]
                .into_iter()
                .chain(fields)
                .collect()
        };
        let rows: Vec<Vec<String>> = gathered.records(kind).map(row).collect();
        let columns = OWNER.into_iter().chain(columns).collect();
        (!rows.is_empty()).then_some(Table { columns, rows })
    }

    /// Prints as many columns as fit, and says which do not.
    fn print(&self, width: Option<usize>) -> Result<()> {
        let shown = self.fitting(width);
        let mut table = output::table(shown.iter().map(|place| self.columns[*place].0));
        for row in &self.rows {
            table.add_row(shown.iter().map(|place| &row[*place]));
        }
        output::print_table(&table)?;
        let left_out = (0..self.columns.len()).filter(|place| !shown.contains(place));
        let left_out: Vec<&str> = left_out.map(|place| self.columns[place].0).collect();
        if left_out.is_empty() {
            return Ok(());
        }
        let note = format!(
            "no room for {}: --width 0 shows all, --json too",
            left_out.join(", ")
        );
        wrap(&note, width.unwrap_or(usize::MAX))
            .iter()
            .try_for_each(output::line)
    }

    fn fitting(&self, width: Option<usize>) -> Vec<usize> {
        let Some(width) = width else {
            return (0..self.columns.len()).collect();
        };
        let columns = self.columns.iter().enumerate().map(|(place, (header, _, rank))| {
            let cells = self.rows.iter().map(|row| row[place].chars().count());
            (cells.max().unwrap_or(0).max(header.len()), *rank)
        });
        // A blank is in front of the first one.
        output::fitting(
            &columns.collect::<Vec<_>>(),
            output::COLUMN_GAP,
            width.saturating_sub(1),
        )
    }
}

/// Lines of at most so many characters, broken between words.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A field as people read it.
pub(crate) fn cell(record: &Record, name: &str) -> String {
    let value = record.get(name).map(|value| match value {
        InspectedValue::Number(number) if matches!(name, "qpn" | "peer_qpn") => {
            units::queue_pair_number(*number)
        }
        value => value.to_string(),
    });
    match value.filter(|text| !text.is_empty()) {
        Some(text) => output::cell(&text),
        None => "-".to_owned(),
    }
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

    fn gathered(lines: &[&str]) -> Gathered {
        let records = lines
            .iter()
            .map(|line| Record::parse(line.as_bytes()).expect("a record"));
        let answer = Answer {
            pid: 7,
            uid: 0,
            nonce: 0,
            records: records.collect(),
            cut: false,
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
    fn columns_of_low_rank_give_way_and_queue_pairs_are_hexadecimal() {
        let gathered = gathered(&[
            "process pid=7 command=\"ib_write_bw\"",
            "qp device=\"roce_eth0\" qpn=17 service=\"rc\" state=\"RTS\" road=\"udp\" peer=\"10.0.0.2\" peer_qpn=7373310 next_psn=5 \
             una_psn=5 expected_psn=9 send_requests=1 receives=2 in_flight_bytes=0 tx_bytes=123456789012 rx_bytes=1 direct_bytes=0 \
             retransmitted_packets=0 timeouts=0 rnr_naks_received=0",
        ]);
        let table = Table::of(&gathered, "qp", QP).expect("a row");
        let headers = |width| -> Vec<&str> {
            let shown = table.fitting(width).into_iter();
            shown.map(|place| table.columns[place].0).collect()
        };
        assert_eq!(headers(None).len(), QP.len() + 2);
        let narrow = headers(Some(80));
        for header in ["PID", "QPN", "STATE", "PEER", "TX BYTES", "RX BYTES"] {
            assert!(narrow.contains(&header), "{narrow:?}");
        }
        assert!(!narrow.contains(&"UNA"), "{narrow:?}");
        assert!(table.rows[0].contains(&"0x000011".to_owned()), "{:?}", table.rows);
        assert!(table.rows[0].contains(&"0x7081fe".to_owned()), "{:?}", table.rows);
        let told = document(What::Qp, &gathered);
        assert_eq!(told["qp"][0]["qpn"], 17, "scripts get numbers");
        assert!(headers(Some(1)).is_empty());
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
