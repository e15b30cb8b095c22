//! The report: results as tables, and `docs/networks.md`, in which they stand between two marks.

use super::cells::{self, Group};
use super::many::{self, Found, Mix};
use super::row::{Row, of_group};
use super::subject::Subject;
use crate::bench::commit;
use crate::bench::machine::Machine;
use crate::bench::report::replace_between;
use crate::bench::svg::{Across, Chart, Series, Style};
use crate::dist;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

const PAGE: &str = "networks.md";
const BEGIN: &str =
    "<!-- what `cargo xtask net table --report` found; it writes everything down to the end mark -->";
const END: &str = "<!-- end of what was found -->";

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
    let mut text = format!("| | {} |", cell.ours.name());
    for rival in &cell.rivals {
        let _ = write!(text, " {} |", rival.name());
    }
    for rival in &cell.rivals {
        let _ = write!(text, " to {} |", rival.name());
    }
    text.push_str(" must show | met |\n|---|---|");
    text.push_str(&"---|".repeat(2 * cell.rivals.len() + 2));
    text.push('\n');
    for row in rows {
        let _ = write!(
            text,
            "| {} | {} |",
            row.cell.name,
            rate(row.median(row.cell.ours))
        );
        for rival in &row.cell.rivals {
            let _ = write!(text, " {} |", rate(row.median(*rival)));
        }
        for rival in &row.cell.rivals {
            let _ = write!(text, " {} |", ratio(row.ratio(*rival)));
        }
        let must = row
            .cell
            .must_show
            .map_or("–".to_owned(), |least| format!("≥ {least} ×"));
        let met = match row.is_met() {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "–",
        };
        let _ = writeln!(text, " {must} | {met} |");
    }
    text
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
    let mut text =
        "| | use of the link | payload | Jain's index | queue, mean (longest) | marked | dropped |\n"
            .to_owned();
    text.push_str("|---|---|---|---|---|---|---|\n");
    for found in crowds {
        let (mean, longest) = found.queue_ms();
        let part = |count: u64| {
            format!(
                "{:.1} %",
                100.0 * count as f64 / found.steady.packets.max(1) as f64
            )
        };
        let _ = writeln!(
            text,
            "| {} | {:.3} | {:.3} | {:.3}{} | {mean:.1} ms ({longest:.1} ms) | {} | {} |",
            found.mix.name(),
            found.use_of_link(),
            found.goodput(),
            many::jain(&found.rates),
            shares(found),
            part(found.steady.marked),
            part(found.steady.dropped_early + found.steady.overflowed),
        );
    }
    text
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

/// Writes the page.
pub(super) fn write(docs: &Path, report: &Report<'_>, root: &Path) -> Result<()> {
    let path = docs.join(PAGE);
    let ours = dist::workspace().join("docs").join(PAGE);
    let written = std::fs::read_to_string(&path).or_else(|_| std::fs::read_to_string(&ours));
    let written = written.with_context(|| format!("cannot read {}", ours.display()))?;
    let page = replace_between(&written, &report.markdown(root), BEGIN, END)?;
    for plot in report.plots() {
        let path = docs.join("plots").join(format!("{}.svg", plot.file));
        std::fs::write(&path, plot.chart.svg())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn our_page_has_its_marks() {
        let page = dist::workspace().join("docs").join(PAGE);
        let page = std::fs::read_to_string(page).expect("there is a page");
        assert!(replace_between(&page, "two", BEGIN, END).is_ok());
    }
}
