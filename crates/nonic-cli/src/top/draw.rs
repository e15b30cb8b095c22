//! The screen: devices above, queue pairs below, or all of one queue pair.

use super::model::{DeviceRow, Mode, Model, Rates, Row};
use crate::inspect::show::cell;
use crate::output;
use crate::units;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Table, Wrap};

/// What is shown instead of no rows.
const NO_PROCESSES: &str = "No process of yours in this network namespace has a device open. Start one, such as `nonic run -- COMMAND` or \
                            `nonic perf --loopback --duration 60s`; it appears here by itself. NONIC_INSPECT=off hides one.";

/// Devices that are shown at most: queue pairs need the room.
const MAX_DEVICES: usize = 8;

/// A column: its name and width, and how soon it gives way to others where there is no room for all; the last ones first.
type Column = (&'static str, u16, u8);

const DEVICE_COLUMNS: [Column; 10] = [
    ("PID", 7, 0),
    ("COMMAND", 15, 3),
    ("DEVICE", 12, 2),
    ("QPS", 7, 4),
    ("MRS", 6, 7),
    ("CQS", 6, 8),
    ("CONNS", 6, 6),
    ("TX", 9, 1),
    ("RX", 9, 1),
    ("AGAIN", 8, 5),
];

const COLUMNS: [Column; 14] = [
    ("PID", 7, 3),
    ("DEVICE", 10, 6),
    ("QPN", 8, 0),
    ("TYPE", 4, 7),
    ("STATE", 5, 2),
    ("ROAD", 6, 2),
    ("PEER", 22, 4),
    ("PEER QPN", 8, 11),
    ("SENDS", 6, 9),
    ("FLIGHT", 7, 8),
    ("TX", 9, 1),
    ("RX", 9, 1),
    ("AGAIN", 7, 5),
    ("RNR", 5, 10),
];

pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model) {
    let devices = model.devices.len().min(MAX_DEVICES) as u16;
    let notes = u16::from(!model.silent.is_empty() || model.others > 0);
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(devices + 1),
        Constraint::Length(notes),
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(1),
    ]);
    let [head, above, note, _, below, foot] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(headline(model)).style(bold()), head);
    draw_devices(frame, model, above);
    frame.render_widget(Paragraph::new(notes_of(model)), note);
    match model.mode {
        Mode::Details => draw_details(frame, model, below),
        Mode::Table | Mode::Filter if model.sampled && model.devices.is_empty() => {
            frame.render_widget(Paragraph::new(NO_PROCESSES).wrap(Wrap { trim: false }), below);
        }
        Mode::Table | Mode::Filter => draw_rows(frame, model, below),
    }
    frame.render_widget(Paragraph::new(footline(model)), foot);
}

fn bold() -> Style {
    Style::default().add_modifier(Modifier::BOLD)
}

fn headline(model: &Model) -> String {
    if !model.sampled {
        return "nonic top: asking the processes".to_owned();
    }
    let (all, shown) = model.counts();
    let mut pids: Vec<u32> = model.devices.iter().map(|device| device.pid).collect();
    pids.dedup();
    let arrow = if model.reversed { " reversed" } else { "" };
    let mut text = format!(
        "nonic top: {} {}, {all} queue pairs, by {}{arrow}",
        pids.len(),
        if pids.len() == 1 { "process" } else { "processes" },
        model.sort.name()
    );
    if !model.filter.is_empty() {
        text.push_str(&format!(", {shown} with `{}`", model.filter));
    }
    text
}

fn notes_of(model: &Model) -> String {
    let others = match model.others {
        0 => None,
        others => Some(format!("{others} processes of other users are not shown")),
    };
    let notes: Vec<String> = model.silent.iter().cloned().chain(others).collect();
    notes.join("; ")
}

fn footline(model: &Model) -> String {
    match model.mode {
        Mode::Filter => format!("filter: {}_  (Enter keeps it, Esc drops it)", model.filter),
        Mode::Details => "Enter or Esc back, q quit".to_owned(),
        Mode::Table => "arrows move, Enter details, s sort, r reverse, / filter, q quit".to_owned(),
    }
}

fn draw_devices(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let rows = model.devices.iter().take(MAX_DEVICES);
    let rows = rows.map(|row| (device_cells(row), Style::default()));
    frame.render_widget(table(rows, &DEVICE_COLUMNS, area.width), area);
}

fn device_cells(row: &DeviceRow) -> Vec<Cell<'static>> {
    let count = |name| Cell::from(row.record.number(name).to_string());
    let device = match row.record.flag("failed") {
        true => format!("{} FAILED", row.record.text("device")),
        false => row.record.text("device").to_owned(),
    };
    vec![
        Cell::from(row.pid.to_string()),
        Cell::from(row.command.clone()),
        Cell::from(device),
        count("queue_pairs"),
        count("memory_keys"),
        count("completion_queues"),
        count("connections"),
        Cell::from(amount(row.rates.tx_bytes, "B/s")),
        Cell::from(amount(row.rates.rx_bytes, "B/s")),
        Cell::from(amount(row.rates.retransmitted, "/s")),
    ]
}

fn draw_rows(frame: &mut Frame<'_>, model: &mut Model, area: Rect) {
    // One line is the header.
    let height = usize::from(area.height.saturating_sub(1));
    let (rows, selected) = model.window(height);
    let rows: Vec<_> = rows
        .enumerate()
        .map(|(place, row)| {
            let style = match place == selected {
                true => Style::default().add_modifier(Modifier::REVERSED),
                false => Style::default(),
            };
            (cells(row), style)
        })
        .collect();
    frame.render_widget(table(rows, &COLUMNS, area.width), area);
}

fn cells(row: &Row) -> Vec<Cell<'static>> {
    let field = |name: &str| Cell::from(cell(&row.record, name));
    vec![
        Cell::from(row.pid.to_string()),
        field("device"),
        field("qpn"),
        field("service"),
        field("state"),
        field("road"),
        field("peer"),
        field("peer_qpn"),
        field("send_requests"),
        Cell::from(amount(row.record.number("in_flight_bytes") as f64, "B")),
        Cell::from(amount(row.rates.tx_bytes, "B/s")),
        Cell::from(amount(row.rates.rx_bytes, "B/s")),
        field("retransmitted_packets"),
        field("rnr_naks_received"),
    ]
}

/// A table with as many of the columns as there is room for. A number is never cut: half of one is another one.
fn table<'a>(
    rows: impl IntoIterator<Item = (Vec<Cell<'a>>, Style)>,
    columns: &[Column],
    width: u16,
) -> Table<'a> {
    let ranked = columns
        .iter()
        .map(|(_, width, rank)| (usize::from(*width), *rank));
    let shown = output::fitting(&ranked.collect::<Vec<_>>(), 1, usize::from(width));
    let widths = shown.iter().map(|place| Constraint::Length(columns[*place].1));
    let header = shown.iter().map(|place| Cell::from(columns[*place].0));
    let rows = rows.into_iter().map(|(mut cells, style)| {
        let cells = shown.iter().map(|place| std::mem::take(&mut cells[*place]));
        ratatui::widgets::Row::new(cells.collect::<Vec<_>>()).style(style)
    });
    Table::new(rows.collect::<Vec<_>>(), widths.collect::<Vec<_>>())
        .header(ratatui::widgets::Row::new(header.collect::<Vec<_>>()).style(bold()))
        .column_spacing(1)
}

fn draw_details(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let Some(row) = model.selected_row() else {
        frame.render_widget(Paragraph::new("it is gone"), area);
        return;
    };
    let title = format!(
        "queue pair {} of {} ({})",
        units::queue_pair_number(row.record.number("qpn")),
        row.pid,
        row.command
    );
    let Rates {
        tx_bytes,
        rx_bytes,
        packets,
        retransmitted,
    } = row.rates;
    let rates = [
        ("tx_bytes_per_second", tx_bytes, "B/s"),
        ("rx_bytes_per_second", rx_bytes, "B/s"),
        ("packets_per_second", packets, "/s"),
        ("sent_again_per_second", retransmitted, "/s"),
    ];
    let rates = rates.map(|(name, rate, unit)| (name.to_owned(), amount(rate, unit)));
    let fields = row.record.fields();
    let fields = fields.map(|(name, _)| (name.to_owned(), cell(&row.record, name)));
    let fields: Vec<_> = fields.chain(rates).collect();
    // As many columns as the screen needs for all of them, each as wide as it must be.
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let columns: Vec<_> = fields.chunks(height).map(DetailsColumn::new).collect();
    let mut lines = vec![Line::styled(title, bold())];
    for line in 0..height.min(fields.len()) {
        let cells = columns.iter().filter_map(|column| column.line(line));
        lines.push(Line::from(cells.collect::<Vec<_>>().join("  ")));
    }
    frame.render_widget(Paragraph::new(Text::from(lines)), area);
}

/// Fields below each other.
struct DetailsColumn<'a> {
    fields: &'a [(String, String)],
    name: usize,
    value: usize,
}

impl<'a> DetailsColumn<'a> {
    fn new(fields: &'a [(String, String)]) -> Self {
        let longest = |length: fn(&(String, String)) -> usize| fields.iter().map(length).max().unwrap_or(0);
        DetailsColumn {
            fields,
            name: longest(|(name, _)| name.len()),
            value: longest(|(_, value)| value.len()),
        }
    }

    fn line(&self, line: usize) -> Option<String> {
        let (name, value) = self.fields.get(line)?;
        let DetailsColumn {
            name: name_width,
            value: value_width,
            ..
        } = self;
        Some(format!("{name:<name_width$} {value:<value_width$}"))
    }
}

/// A number with three digits or so, a letter for its size and its unit: powers of ten, as network rates are given.
fn amount(number: f64, unit: &str) -> String {
    let (scaled, letter) = match number {
        // The bounds are those of what is shown: 999.96 k would be 1000.0 k.
        ..999.5 => return format!("{number:.0}{unit}"),
        ..999.95e3 => (number / 1e3, 'k'),
        ..999.95e6 => (number / 1e6, 'M'),
        _ => (number / 1e9, 'G'),
    };
    format!("{scaled:.1}{letter}{unit}")
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{line, sample};
    use super::super::model::{Action, Model};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::{Duration, Instant};

    /// What is on a screen of this size, line by line, without blanks at their ends.
    fn screen(model: &mut Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
        terminal.draw(|frame| draw(frame, model)).expect("memory");
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(usize::from(width));
        let text =
            |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect::<String>();
        lines.map(|cells| text(cells).trim_end().to_owned()).collect()
    }

    #[test]
    fn the_screen_shows_devices_queue_pairs_and_keys() {
        let mut model = Model::default();
        assert_eq!(screen(&mut model, 80, 10)[0], "nonic top: asking the processes");
        let began = Instant::now();
        model.update(sample(began, 7, &[line(17, "RTS", 0), line(18, "ERR", 0)]));
        let later = began + Duration::from_secs(1);
        model.update(sample(
            later,
            7,
            &[line(17, "RTS", 2_500_000), line(18, "ERR", 0)],
        ));
        let expected = [
            "nonic top: 1 process, 2 queue pairs, by pid",
            "PID     COMMAND         DEVICE       QPS     MRS    CQS    CONNS  TX        RX        AGAIN",
            "7       ib_write_bw     roce_lo      2       3      0      0      0B/s      0B/s      0/s",
            "",
            "PID     DEVICE     QPN      TYPE STATE ROAD   PEER                   PEER QPN SENDS  FLIGHT  TX        RX        AGAIN   RNR",
            "7       roce_lo    0x000011 rc   RTS   lane   127.0.0.1              0x000012 3      4.1kB   2.5MB/s   0B/s      2       1",
            "7       roce_lo    0x000012 rc   ERR   lane   127.0.0.1              0x000013 4      4.1kB   0B/s      0B/s      2       1",
            "",
            "arrows move, Enter details, s sort, r reverse, / filter, q quit",
        ];
        assert_eq!(screen(&mut model, 140, 9), expected);
        // Where there is less room there are fewer columns, and none is cut.
        let narrow = [
            "nonic top: 1 process, 2 queue pairs, by pid",
            "PID     COMMAND         DEVICE       QPS     CONNS  TX        RX        AGAIN",
            "7       ib_write_bw     roce_lo      2       0      0B/s      0B/s      0/s",
            "",
            "PID     QPN      STATE ROAD   PEER                   TX        RX        AGAIN",
            "7       0x000011 RTS   lane   127.0.0.1              2.5MB/s   0B/s      2",
            "7       0x000012 ERR   lane   127.0.0.1              0B/s      0B/s      2",
            "",
            "arrows move, Enter details, s sort, r reverse, / filter, q quit",
        ];
        assert_eq!(screen(&mut model, 80, 9), narrow);
    }

    #[test]
    fn details_are_every_field_of_one_queue_pair() {
        let mut model = Model::default();
        model.update(sample(Instant::now(), 7, &[line(17, "RTS", 0)]));
        model.act(Action::Enter);
        let screen = screen(&mut model, 140, 24).join("\n");
        for expected in [
            "queue pair 0x000011 of 7 (ib_write_bw)",
            "peer_qpn ",
            "rnr_naks_received ",
            "Esc back",
        ] {
            assert!(screen.contains(expected), "{expected} in\n{screen}");
        }
    }

    #[test]
    fn without_processes_there_is_a_hint() {
        let mut model = Model::default();
        let mut empty = sample(Instant::now(), 7, &[]);
        empty.devices.answers.clear();
        empty.queue_pairs.clear();
        model.update(empty);
        let screen = screen(&mut model, 80, 10).join("\n");
        assert!(screen.contains("nonic run -- COMMAND"), "{screen}");
    }

    #[test]
    fn rates_fit_their_columns_with_their_units() {
        for rate in [0.0, 999.6, 999_960.0, 999_960_000.0, 99_940_000_000.0] {
            assert!(amount(rate, "B/s").len() <= 9, "{}", amount(rate, "B/s"));
        }
        assert_eq!(amount(929_100_000.0, "B/s"), "929.1MB/s");
    }

    #[test]
    fn who_does_not_answer_is_named() {
        let mut model = Model::default();
        let mut sample = sample(Instant::now(), 7, &[]);
        sample.devices.others = 2;
        let silent = nonic::inspect::InspectError::Silent { pid: 99 };
        sample.devices.silent.push(silent);
        model.update(sample);
        let screen = screen(&mut model, 200, 10).join("\n");
        assert!(screen.contains("process 99 does not answer"), "{screen}");
        assert!(screen.contains("2 processes of other users"), "{screen}");
    }

    #[test]
    fn screens_of_any_size_are_drawn() {
        let mut model = Model::default();
        let lines: Vec<String> = (0..50).map(|qpn| line(qpn, "RTS", 0)).collect();
        model.update(sample(Instant::now(), 7, &lines));
        for (width, height) in [(1, 1), (3, 2), (10, 4), (500, 3), (80, 200)] {
            screen(&mut model, width, height);
            model.act(Action::Enter);
            screen(&mut model, width, height);
        }
    }

    /// A key is answered, and a sample taken up, while a person does not notice: unoptimised, on a busy machine.
    #[test]
    fn ten_thousand_queue_pairs_are_sorted_and_drawn_in_a_moment() {
        let mut model = Model::default();
        let lines: Vec<String> = (0..10_000).map(|qpn| line(qpn, "RTS", qpn * 31 % 997)).collect();
        let began = Instant::now();
        model.update(sample(began, 7, &lines));
        let next = sample(began + Duration::from_secs(1), 7, &lines);
        let timed = |name: &str, limit: Duration, work: &mut dyn FnMut()| {
            let began = Instant::now();
            work();
            let took = began.elapsed();
            println!("{name}: {took:?}");
            assert!(took < limit, "{name} took {took:?}");
        };
        let mut next = Some(next);
        timed("taking up a sample", Duration::from_secs(1), &mut || {
            next.take().into_iter().for_each(|sample| model.update(sample));
        });
        timed("sorting by another column", Duration::from_secs(1), &mut || {
            model.act(Action::NextSort);
        });
        timed("drawing", Duration::from_millis(250), &mut || {
            assert_eq!(screen(&mut model, 140, 50).len(), 50);
        });
    }

    #[test]
    fn amounts_are_short() {
        let amounts = [(0.0, "0B"), (999.0, "999B"), (1500.0, "1.5kB"), (2.5e9, "2.5GB")];
        for (number, text) in amounts {
            assert_eq!(amount(number, "B"), text);
        }
    }
}
