//! Half a round trip against the size of a message, as `message_bench` says it in a table, as a chart.

use crate::bench::svg::{Across, Chart, Series, Style};
use anyhow::{Context, Result, ensure};

/// What was said before the table, and its rows.
pub(super) fn split(said: &str) -> (String, Vec<&str>) {
    let (rows, figures): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.starts_with('|'));
    (figures.join("\n"), rows)
}

pub(super) fn chart(path: &str, said: &str) -> Result<Chart> {
    let (_, rows) = split(said);
    ensure!(rows.len() > 2, "there is no table of sizes in: {said}");
    let names = [
        ("TCP", Style::Bare),
        ("SEND", Style::Ucx),
        ("messages", Style::Nonic),
    ];
    let mut series = names.map(|(name, style)| Series {
        name: name.to_owned(),
        style,
        points: Vec::new(),
    });
    let mut sizes = Vec::new();
    // The first two rows are its head.
    for row in &rows[2..] {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [size, times @ ..] = cells.as_slice() else {
            continue;
        };
        ensure!(times.len() == series.len(), "a row of another table: {row}");
        let size = size.parse().with_context(|| format!("no size: {row}"))?;
        sizes.push(size);
        for (series, time) in series.iter_mut().zip(times) {
            let time = time.parse().with_context(|| format!("no time: {row}"))?;
            series.points.push((size, time));
        }
    }
    Ok(Chart {
        title: path.to_owned(),
        y_label: "half a round trip, µs".to_owned(),
        across: Across::Sizes,
        sizes,
        series: series.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_becomes_three_lines() {
        let said = "roce_lo\n| bytes | TCP µs | SEND µs | message µs |\n|---|---|---|---|\n| 64 | 9.1 | 2 | 3.5 |\n| 256 | 10 | 3 | 4 |\nend";
        let chart = chart("One host", said).expect("a table");
        assert_eq!(chart.sizes, [64, 256]);
        assert_eq!(chart.series[2].points, [(64, 3.5), (256, 4.0)]);
        assert_eq!(split(said).0, "roce_lo\nend");
        assert!(super::chart("One host", "nothing").is_err());
    }
}
