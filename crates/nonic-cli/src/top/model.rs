//! The content of the screen, without a terminal: rows with rates, in order, filtered, and which one is selected.

use crate::inspect::{Gathered, command_of};
use crate::units;
use nonic::inspect::{Answer, Record};
use std::collections::HashMap;
use std::time::Instant;

/// What processes said at a moment.
#[derive(Debug)]
pub(super) struct Sample {
    /// When devices were asked for, and what they said.
    pub(super) devices_at: Instant,
    pub(super) devices: Gathered,
    /// The same for queue pairs.
    pub(super) at: Instant,
    pub(super) queue_pairs: Vec<Answer>,
}

/// A queue pair among all processes.
type Key = (u64, String, u64);

/// A queue pair.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) pid: u32,
    /// What tells its process from another with the same number.
    nonce: u64,
    pub(super) command: String,
    pub(super) record: Record,
    pub(super) rates: Rates,
}

/// What a queue pair or a device did in a second.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(super) struct Rates {
    /// Bytes sent, those moved without packets among them, and received.
    pub(super) tx_bytes: f64,
    pub(super) rx_bytes: f64,
    pub(super) packets: f64,
    pub(super) retransmitted: f64,
}

/// A device of a process.
#[derive(Clone, Debug)]
pub(super) struct DeviceRow {
    pub(super) pid: u32,
    pub(super) command: String,
    pub(super) record: Record,
    pub(super) rates: Rates,
}

/// What rows are sorted by: at first by what does not change, so that no row moves while a person looks at it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Sort {
    #[default]
    Pid,
    Rate,
    Outstanding,
    InFlight,
    Retransmitted,
    Qpn,
    State,
    Peer,
}

impl Sort {
    const ALL: [Sort; 8] = [
        Sort::Pid,
        Sort::Rate,
        Sort::Outstanding,
        Sort::InFlight,
        Sort::Retransmitted,
        Sort::Qpn,
        Sort::State,
        Sort::Peer,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Rate => "rate",
            Sort::Outstanding => "outstanding",
            Sort::InFlight => "in flight",
            Sort::Retransmitted => "sent again",
            Sort::Pid => "pid",
            Sort::Qpn => "qpn",
            Sort::State => "state",
            Sort::Peer => "peer",
        }
    }

    fn next(self) -> Self {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }

    /// Large numbers are of interest first, names from the beginning of the alphabet.
    fn order(self, left: &Row, right: &Row) -> std::cmp::Ordering {
        let number = |name| right.record.number(name).cmp(&left.record.number(name));
        match self {
            Sort::Rate => right.rates.bytes().total_cmp(&left.rates.bytes()),
            Sort::Outstanding => number("send_requests"),
            Sort::InFlight => number("in_flight_bytes"),
            Sort::Retransmitted => number("retransmitted_packets"),
            Sort::Pid => left.pid.cmp(&right.pid),
            Sort::Qpn => left.record.number("qpn").cmp(&right.record.number("qpn")),
            Sort::State => left.record.text("state").cmp(right.record.text("state")),
            Sort::Peer => left.record.text("peer").cmp(right.record.text("peer")),
        }
    }
}

impl Rates {
    pub(super) fn bytes(&self) -> f64 {
        self.tx_bytes + self.rx_bytes
    }

    /// What was counted between two records, so many seconds apart.
    fn between(before: &Record, after: &Record, seconds: f64) -> Self {
        // A queue pair that was connected anew, or has the number of another, counts from zero.
        let per_second = |name| {
            let more = after.number(name).saturating_sub(before.number(name));
            more as f64 / seconds
        };
        Rates {
            tx_bytes: per_second("tx_bytes") + per_second("direct_bytes"),
            rx_bytes: per_second("rx_bytes"),
            packets: per_second("tx_packets") + per_second("rx_packets"),
            retransmitted: per_second("retransmitted_packets"),
        }
    }
}

/// What a key asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// So many rows down.
    Move(isize),
    /// So many screens down.
    MovePage(isize),
    /// All of the selected queue pair; or the filter is typed.
    Enter,
    /// Back to the table, or without a filter; at last, out.
    Back,
    NextSort,
    Reverse,
    /// A filter is typed from now on.
    Filter,
    Type(char),
    Erase,
    Quit,
}

/// What is shown.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Mode {
    #[default]
    Table,
    Filter,
    Details,
}

/// Everything the screen shows.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) mode: Mode,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) filter: String,
    pub(super) devices: Vec<DeviceRow>,
    /// Processes that did not answer.
    pub(super) silent: Vec<String>,
    pub(super) others: usize,
    rows: Vec<Row>,
    /// Rows that pass the filter, in order: places in `rows`.
    visible: Vec<usize>,
    /// Place in `visible`.
    selected: usize,
    /// The first that is drawn, and how many were drawn.
    first: usize,
    height: usize,
    /// Whether processes have answered at all.
    pub(super) sampled: bool,
    before: Before,
}

/// What was said the last time, for rates.
#[derive(Debug, Default)]
struct Before {
    at: Option<Instant>,
    devices_at: Option<Instant>,
    queue_pairs: HashMap<Key, Record>,
    counters: HashMap<(u64, String), Record>,
}

fn seconds_between(before: Option<Instant>, after: Instant) -> Option<f64> {
    let seconds = after.duration_since(before?).as_secs_f64();
    (seconds > 0.0).then_some(seconds)
}

impl Model {
    /// Takes what processes said.
    pub(super) fn update(&mut self, sample: Sample) {
        let selected = self.selected_row().map(Row::key);
        let seconds = seconds_between(self.before.at, sample.at);
        let for_devices = seconds_between(self.before.devices_at, sample.devices_at);
        self.update_devices(&sample.devices, for_devices);
        self.before.devices_at = Some(sample.devices_at);
        let mut known = std::mem::take(&mut self.before.queue_pairs);
        self.rows.clear();
        for answer in sample.queue_pairs {
            let command = command_of(&answer).to_owned();
            for record in answer.records.into_iter().filter(|record| record.kind() == "qp") {
                let mut row = Row {
                    pid: answer.pid,
                    nonce: answer.nonce,
                    command: command.clone(),
                    record,
                    rates: Rates::default(),
                };
                if let (Some(seconds), Some(before)) = (seconds, known.remove(&row.key())) {
                    row.rates = Rates::between(&before, &row.record, seconds);
                }
                self.before.queue_pairs.insert(row.key(), row.record.clone());
                self.rows.push(row);
            }
        }
        self.before.at = Some(sample.at);
        self.sampled = true;
        self.arrange();
        // The selected row stays selected, wherever it is now.
        if let Some(selected) = selected {
            let rows = &self.rows;
            let found = self
                .visible
                .iter()
                .position(|place| rows[*place].key() == selected);
            self.selected = found.unwrap_or(self.selected);
        }
    }

    fn update_devices(&mut self, gathered: &Gathered, seconds: Option<f64>) {
        let mut known = std::mem::take(&mut self.before.counters);
        for (of, _, record) in gathered.records("counters") {
            let key = (of.nonce, record.text("device").to_owned());
            self.before.counters.insert(key, record.clone());
        }
        let rows = gathered.records("device").map(|(of, command, record)| {
            let key = (of.nonce, record.text("device").to_owned());
            let counted = (known.remove(&key), self.before.counters.get(&key), seconds);
            let rates = match counted {
                (Some(before), Some(after), Some(seconds)) => Rates::between(&before, after, seconds),
                _ => Rates::default(),
            };
            DeviceRow {
                pid: of.pid,
                command: command.to_owned(),
                record: record.clone(),
                rates,
            }
        });
        self.devices = rows.collect();
        self.silent = gathered.silent.iter().map(ToString::to_string).collect();
        self.others = gathered.others;
    }

    /// Filters and sorts. Done when something changed, not when something is drawn.
    fn arrange(&mut self) {
        let filter = self.filter.to_lowercase();
        let rows = &self.rows;
        let passes = |place: &usize| filter.is_empty() || rows[*place].matches(&filter);
        self.visible = (0..rows.len()).filter(passes).collect();
        let (sort, reversed) = (self.sort, self.reversed);
        self.visible.sort_by(|left, right| {
            let (left, right) = (&rows[*left], &rows[*right]);
            let order = match reversed {
                false => sort.order(left, right),
                true => sort.order(right, left),
            };
            // Rows that are equal keep their places from one sample to the next.
            let name = |row: &Row| (row.pid, row.record.number("qpn"));
            order.then_with(|| name(left).cmp(&name(right)))
        });
        self.selected = self.selected.min(self.visible.len().saturating_sub(1));
    }

    /// Does what a key asks for. Whether to go on.
    pub(super) fn act(&mut self, action: Action) -> bool {
        match action {
            Action::Quit => return false,
            Action::Back if self.mode == Mode::Table && self.filter.is_empty() => return false,
            Action::Back => self.back(),
            Action::Enter if self.mode == Mode::Table && self.selected_row().is_some() => {
                self.mode = Mode::Details;
            }
            Action::Enter => self.mode = Mode::Table,
            Action::Move(rows) => self.select(rows),
            Action::MovePage(pages) => {
                let page = isize::try_from(self.height.max(1)).unwrap_or(isize::MAX);
                self.select(pages.saturating_mul(page));
            }
            Action::NextSort => {
                self.sort = self.sort.next();
                self.arrange();
            }
            Action::Reverse => {
                self.reversed = !self.reversed;
                self.arrange();
            }
            Action::Filter => self.mode = Mode::Filter,
            Action::Type(letter) => {
                self.filter.push(letter);
                self.arrange();
            }
            Action::Erase => {
                self.filter.pop();
                self.arrange();
            }
        }
        true
    }

    fn back(&mut self) {
        if self.mode != Mode::Details {
            self.filter.clear();
            self.arrange();
        }
        self.mode = Mode::Table;
    }

    fn select(&mut self, rows: isize) {
        let last = self.visible.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(rows).min(last);
    }

    pub(super) fn is_filtering(&self) -> bool {
        self.mode == Mode::Filter
    }

    pub(super) fn selected_row(&self) -> Option<&Row> {
        self.visible.get(self.selected).map(|place| &self.rows[*place])
    }

    /// All rows, whatever is filtered.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    /// How many rows there are, and how many pass the filter.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.rows.len(), self.visible.len())
    }

    /// The rows for a screen of this height, the selected one among them; and where that is.
    pub(super) fn window(&mut self, height: usize) -> (impl Iterator<Item = &Row>, usize) {
        // On a screen without room nothing is shown, and the selected row is where it is all the same.
        let height = height.max(1);
        self.height = height;
        let last_first = self.visible.len().saturating_sub(height);
        self.first = self.first.min(last_first).min(self.selected);
        if self.selected >= self.first + height {
            self.first = self.selected + 1 - height;
        }
        let rows = &self.rows;
        let shown = self.visible.iter().skip(self.first).take(height);
        (shown.map(|place| &rows[*place]), self.selected - self.first)
    }
}

impl Row {
    fn key(&self) -> Key {
        let device = self.record.text("device").to_owned();
        (self.nonce, device, self.record.number("qpn"))
    }

    /// Whether a word is in what is shown of it.
    fn matches(&self, word: &str) -> bool {
        let texts = ["device", "service", "state", "road", "peer"].map(|name| self.record.text(name));
        let has = |text: &str| text.to_lowercase().contains(word);
        has(&self.command)
            || texts.into_iter().any(has)
            || has(&self.pid.to_string())
            || has(&units::queue_pair_number(self.record.number("qpn")))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::time::Duration;

    fn record(line: &str) -> Record {
        Record::parse(line.as_bytes()).expect("a record")
    }

    /// What a process with these queue pairs says.
    pub(in super::super) fn sample(at: Instant, pid: u32, lines: &[String]) -> Sample {
        let process = format!("process pid={pid} command=\"ib_write_bw\"");
        let answer = |lines: &[String]| Answer {
            pid,
            uid: 0,
            nonce: u64::from(pid),
            cut: false,
            records: std::iter::once(&process)
                .chain(lines)
                .map(|line| record(line))
                .collect(),
        };
        let device = [
            format!(
                "device device=\"roce_lo\" queue_pairs={} failed=no memory_keys=3",
                lines.len()
            ),
            "counters device=\"roce_lo\" tx_bytes=0".to_owned(),
        ];
        Sample {
            at,
            devices_at: at,
            devices: Gathered {
                answers: vec![answer(&device)],
                ..Gathered::default()
            },
            queue_pairs: vec![answer(lines)],
        }
    }

    /// A queue pair in a line.
    pub(in super::super) fn line(qpn: u64, state: &str, sent: u64) -> String {
        format!(
            "qp device=\"roce_lo\" qpn={qpn} service=\"rc\" state=\"{state}\" road=\"lane\" peer=\"127.0.0.1\" \
             peer_qpn={} send_requests={} in_flight_bytes=4096 tx_bytes={sent} rx_bytes=0 tx_packets=0 rx_packets=0 \
             direct_bytes=0 timeouts=0 retransmitted_packets=2 rnr_naks_received=1",
            qpn + 1,
            qpn % 7
        )
    }

    fn shown(model: &mut Model, height: usize) -> Vec<u64> {
        let (rows, _) = model.window(height);
        rows.map(|row| row.record.number("qpn")).collect()
    }

    #[test]
    fn rates_are_what_was_counted_between_two_samples() {
        let mut model = Model::default();
        let began = Instant::now();
        model.update(sample(began, 7, &[line(1, "RTS", 1000), line(2, "RTS", 0)]));
        assert_eq!(model.selected_row().map(|row| row.rates), Some(Rates::default()));
        model.sort = Sort::Rate;
        let later = began + Duration::from_secs(2);
        model.update(sample(later, 7, &[line(1, "RTS", 5000), line(2, "RTS", 8000)]));
        let (rows, _) = model.window(10);
        let rates: Vec<_> = rows
            .map(|row| (row.record.number("qpn"), row.rates.tx_bytes))
            .collect();
        assert_eq!(rates, [(2, 4000.0), (1, 2000.0)], "the busiest first");
        // A number that belongs to another queue pair now.
        model.update(sample(later + Duration::from_secs(1), 7, &[line(1, "RTS", 10)]));
        assert_eq!(model.selected_row().map(|row| row.rates.tx_bytes), Some(0.0));
    }

    #[test]
    fn the_selected_row_stays_selected_wherever_it_is_sorted_to() {
        let mut model = Model::default();
        let began = Instant::now();
        model.update(sample(began, 7, &[line(1, "RTS", 0), line(2, "RTS", 0)]));
        model.act(Action::Move(1));
        assert_eq!(model.selected_row().map(|row| row.record.number("qpn")), Some(2));
        model.act(Action::NextSort);
        let later = began + Duration::from_secs(1);
        model.update(sample(later, 7, &[line(1, "RTS", 0), line(2, "RTS", 99)]));
        assert_eq!(shown(&mut model, 10), [2, 1]);
        assert_eq!(model.selected_row().map(|row| row.record.number("qpn")), Some(2));
    }

    #[test]
    fn rows_keep_their_places_while_rates_change() {
        let mut model = Model::default();
        let began = Instant::now();
        for (second, sent) in [(0, [0, 0, 0]), (1, [1, 900, 50]), (2, [2000, 901, 51])] {
            let lines: Vec<String> = (1..)
                .zip(sent)
                .map(|(qpn, sent)| line(qpn, "RTS", sent))
                .collect();
            model.update(sample(began + Duration::from_secs(second), 7, &lines));
            assert_eq!(shown(&mut model, 10), [1, 2, 3]);
        }
        model.act(Action::NextSort);
        assert_eq!(shown(&mut model, 10), [1, 2, 3], "by rate: 1999, 1 and 1");
        assert_eq!(model.sort.name(), "rate");
    }

    #[test]
    fn queue_pairs_are_filtered_by_their_number_as_it_is_shown() {
        let mut model = Model::default();
        model.update(sample(
            Instant::now(),
            7,
            &[line(17, "RTS", 0), line(255, "RTS", 0)],
        ));
        model.act(Action::Filter);
        for letter in "0x0000ff".chars() {
            model.act(Action::Type(letter));
        }
        assert_eq!(shown(&mut model, 10), [255]);
    }

    #[test]
    fn filters_and_orders_are_chosen_by_keys() {
        let mut model = Model::default();
        let lines = [line(1, "RTS", 0), line(2, "ERR", 0), line(3, "RTS", 0)];
        model.update(sample(Instant::now(), 7, &lines));
        model.act(Action::Filter);
        for letter in "err".chars() {
            model.act(Action::Type(letter));
        }
        assert_eq!(shown(&mut model, 10), [2]);
        assert_eq!(model.counts(), (3, 1));
        assert!(model.act(Action::Back), "without the filter");
        assert_eq!(model.counts(), (3, 3));
        while model.sort != Sort::Qpn {
            model.act(Action::NextSort);
        }
        model.act(Action::Reverse);
        assert_eq!(shown(&mut model, 10), [3, 2, 1]);
        assert!(!model.act(Action::Back), "there is nothing left to go back from");
    }

    #[test]
    fn the_selected_row_is_always_on_the_screen() {
        let mut model = Model::default();
        let lines: Vec<String> = (0..100).map(|qpn| line(qpn, "RTS", 0)).collect();
        model.update(sample(Instant::now(), 7, &lines));
        for (action, first) in [
            (Action::Move(0), 0),
            (Action::MovePage(1), 1),
            (Action::Move(isize::MAX), 90),
            (Action::Move(-5), 90),
            (Action::Move(-5), 89),
            (Action::Move(isize::MIN), 0),
        ] {
            shown(&mut model, 10);
            model.act(action);
            assert_eq!(shown(&mut model, 10).first(), Some(&first), "{action:?}");
        }
        model.update(sample(Instant::now(), 7, &[]));
        assert!(shown(&mut model, 10).is_empty() && model.selected_row().is_none());
    }
}
