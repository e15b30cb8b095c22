//! The report: results as tables, and `docs/networks.md`, in which they stand between two marks.

use super::cells::{self, Group};
use super::many::{self, Found, Mix};
use super::row::{Row, of_group};
use super::subject::Subject;
use crate::bench::commit;
use crate::bench::machine::Machine;
use crate::bench::svg::{Across, Chart, Series, Style};
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use testbed::page::Part;
use testbed::table::Table;

/// The part of the page that a run writes.
fn part() -> Part {
    Part::found_by("networks.md", "net table --report")
}

/// A run.
pub(super) struct Report<'a> {
    pub(super) rows: &'a [Row],
    pub(super) crowds: &'a [Found],
    pub(super) rounds: u32,
    pub(super) seconds: f64,
    pub(super) took: Duration,
}

impl Report<'_> {
    pub(super) fn tables(&self) -> String {
        let mut text = String::new();
        for group in Group::ALL {
            let rows = of_group(self.rows, group);
            if !rows.is_empty() {
                let _ = writeln!(text, "### {}\n\n{}", group.title(), table(&rows));
            }
        }
        if !self.crowds.is_empty() {
            let _ = writeln!(text, "### {}\n\n{}", crowd_title(), crowd_table(self.crowds));
        }
        let judged: Vec<bool> = self.rows.iter().filter_map(Row::is_met).collect();
        let met = judged.iter().filter(|met| **met).count();
        let _ = writeln!(text, "Met: {met} of {}.", judged.len());
        text
    }

    fn markdown(&self, root: &Path) -> String {
        let machine = Machine::with_dist(root, commit());
        format!(
            "Medians of {} rounds of {} s each, measured in {:.0} s on this machine:\n\n{}\n{}",
            self.rounds,
            self.seconds,
            self.took.as_secs_f64(),
            machine.markdown(),
            self.tables() + &self.plots().iter().map(Plot::markdown).collect::<String>()
        )
    }

    /// The first table as charts, one for each loss.
    fn plots(&self) -> Vec<Plot> {
        let rows = of_group(self.rows, Group::Loss);
        cells::LOSSES
            .into_iter()
            .map(|loss| Plot::new(loss, &rows))
            .collect()
    }
}

/// What arrives against the round trip.
struct Plot {
    file: String,
    chart: Chart,
}

impl Plot {
    fn new(loss: &str, rows: &[&Row]) -> Self {
        let subjects = [
            (Subject::Roce, Style::Nonic),
            (Subject::Tcp("bbr"), Style::Ucx),
            (Subject::Tcp("cubic"), Style::Bare),
        ];
        // Nought has no place on a logarithmic axis.
        let trips = cells::TRIPS.map(|(name, _)| {
            name.trim_end_matches(" ms")
                .parse()
                .map_or(200, |ms: usize| ms * 1000)
        });
        let points = |subject| -> Vec<(usize, f64)> {
            let found = cells::TRIPS.iter().zip(trips).filter_map(|((name, _), trip)| {
                let wanted = format!("{name}, {loss}");
                let row = rows.iter().find(|row| row.cell.name == wanted)?;
                Some((trip, row.median(subject)?)).filter(|(_, rate)| *rate > 0.0)
            });
            found.collect()
        };
        let series = subjects.map(|(subject, style)| Series {
            name: subject.name(),
            style,
            points: points(subject),
        });
        Self {
            file: format!("networks-loss-{}", loss.trim_end_matches('%').replace('.', "-")),
            chart: Chart {
                title: match loss {
                    "0" => "Nothing gets lost".to_owned(),
                    loss => format!("{} % of what is sent gets lost", loss.trim_end_matches('%')),
                },
                y_label: "Mbit/s".to_owned(),
                across: Across::RoundTrips,
                sizes: trips.to_vec(),
                series: series.to_vec(),
            },
        }
    }

    fn markdown(&self) -> String {
        format!("\n![{}](plots/{}.svg)\n", self.chart.title, self.file)
    }
}

/// A row as it is told while others are still measured.
pub(super) fn line(row: &Row) -> String {
    let subjects = std::iter::once(row.cell.ours).chain(row.cell.rivals.iter().copied());
    let rates: Vec<String> = subjects
        .map(|subject| format!("{} {}", subject.name(), rate(row.median(subject))))
        .collect();
    let ratios: Vec<String> = row
        .cell
        .rivals
        .iter()
        .map(|rival| ratio(row.ratio(*rival)))
        .collect();
    format!(
        "{}: {}; {}{}",
        row.cell.name,
        rates.join(", "),
        ratios.join(", "),
        match row.is_met() {
            Some(false) => "  BELOW",
            _ => "",
        }
    )
}

fn table(rows: &[&Row]) -> String {
    let cell = &rows[0].cell;
    let mut headings = vec![String::new(), cell.ours.name()];
    headings.extend(cell.rivals.iter().map(|rival| rival.name()));
    headings.extend(cell.rivals.iter().map(|rival| format!("to {}", rival.name())));
    headings.extend(["must show", "met"].map(str::to_owned));
    let mut table = Table::new(headings);
    for row in rows {
        let cell = &row.cell;
        let mut cells = vec![cell.name.clone(), rate(row.median(cell.ours))];
        cells.extend(cell.rivals.iter().map(|rival| rate(row.median(*rival))));
        cells.extend(cell.rivals.iter().map(|rival| ratio(row.ratio(*rival))));
        cells.push(
            cell.must_show
                .map_or("–".to_owned(), |least| format!("≥ {least} ×")),
        );
        let met = match row.is_met() {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "–",
        };
        cells.push(met.to_owned());
        table.add(cells);
    }
    table.markdown()
}

fn crowd_title() -> String {
    format!(
        "{} senders through one bottleneck of {} Mbit/s (`{}`)",
        many::SENDERS,
        many::RATE_MBIT,
        many::LINK
    )
}

fn crowd_table(crowds: &[Found]) -> String {
    let mut table = Table::new([
        "",
        "use of the link",
        "payload",
        "Jain's index",
        "queue, mean (longest)",
        "marked",
        "dropped",
    ]);
    for found in crowds {
        let (mean, longest) = found.queue_ms();
        let part = |count: u64| {
            format!(
                "{:.1} %",
                100.0 * count as f64 / found.steady.link.packets.max(1) as f64
            )
        };
        table.add([
            found.mix.name(),
            format!("{:.3}", found.use_of_link()),
            format!("{:.3}", found.goodput()),
            format!("{:.3}{}", many::jain(&found.rates), shares(found)),
            format!("{mean:.1} ms ({longest:.1} ms)"),
            part(found.steady.link.marked),
            part(found.steady.link.dropped_early + found.steady.link.overflowed),
        ]);
    }
    table.markdown()
}

/// What each half has of all payload.
fn shares(found: &Found) -> String {
    match found.mix {
        Mix::All(_) => String::new(),
        Mix::Halves(one, other) => {
            let told = |subject: Subject| format!("{} {:.2}", subject.name(), found.share(subject));
            format!(" ({}, {})", told(one), told(other))
        }
    }
}

/// Megabits per second with three digits that count.
fn rate(mbit: Option<f64>) -> String {
    match mbit {
        None => "–".to_owned(),
        Some(mbit) if mbit < 10.0 => format!("{mbit:.2}"),
        Some(mbit) if mbit < 100.0 => format!("{mbit:.1}"),
        Some(mbit) => format!("{mbit:.0}"),
    }
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2} ×"))
}

/// Writes the page and its plots.
pub(super) fn write(docs: &Path, report: &Report<'_>, root: &Path) -> Result<()> {
    for plot in report.plots() {
        let path = docs.join("plots").join(format!("{}.svg", plot.file));
        std::fs::write(&path, plot.chart.svg())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    part().write(docs, &report.markdown(root))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist;
    use std::collections::BTreeMap;

    fn row(ours: f64, bbr: f64, must_show: f64) -> Row {
        let mut cell = cells::all().swap_remove(0);
        cell.must_show = Some(must_show);
        let rates = BTreeMap::from([
            (cell.ours, vec![Some(ours), None, Some(ours)]),
            (cell.rivals[0], vec![Some(bbr); 3]),
        ]);
        Row { cell, rates }
    }

    #[test]
    fn a_row_tells_medians_and_ratios_and_what_is_below() {
        let line = line(&row(50.0, 100.0, 0.7));
        assert!(line.contains("nonic 50.0, TCP bbr 100, TCP cubic –"), "{line}");
        assert!(line.contains("0.50 ×") && line.ends_with("BELOW"), "{line}");
        assert_eq!(row(70.0, 100.0, 0.7).is_met(), Some(true));
        assert_eq!(row(0.0, 100.0, 0.7).is_met(), Some(false));
    }

    #[test]
    fn a_table_has_as_many_columns_in_each_line() {
        let rows = [row(50.0, 100.0, 0.7), row(80.0, 100.0, 0.7)];
        let table = table(&rows.iter().collect::<Vec<_>>());
        let columns: Vec<usize> = table.lines().map(|line| line.matches('|').count()).collect();
        assert_eq!(columns, [columns[0]; 4], "{table}");
    }

    #[test]
    fn a_table_is_written_as_the_page_has_it() {
        let mut row = row(50.0, 100.0, 0.7);
        row.cell.name = "1 ms, 0.1%".to_owned();
        let wanted = "| | nonic | TCP bbr | TCP cubic | to TCP bbr | to TCP cubic | must show | met |\n\
                      |---|---|---|---|---|---|---|---|\n\
                      | 1 ms, 0.1% | 50.0 | 100 | – | 0.50 × | – | ≥ 0.7 × | **no** |\n";
        assert_eq!(table(&[&row]), wanted);
    }

    #[test]
    fn our_page_has_its_marks() {
        let page = dist::workspace().join("docs").join(part().page);
        let page = std::fs::read_to_string(page).expect("there is a page");
        assert!(part().replaced(&page, "two").is_ok());
    }
}
