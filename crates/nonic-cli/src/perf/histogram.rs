//! Histograms of latencies, as bars on a terminal and as a plot.
//!
//! Both have bins that grow by the same factor, because a distribution of latencies has most of its samples together
//! and a few far out.

use super::latencies::{Bin, Latencies};
use nonic_plot::{Anchor, Axis, Drawing, Frame, Hue, LineStyle, LinearAxis, LogarithmicAxis, number};

/// Rows of bars.
const ROWS: usize = 14;
/// The widest bar.
const BAR_WIDTH: usize = 42;
/// Steps of a plot.
const STEPS: usize = 60;

/// The bars, one line each, no wider than 80 columns.
pub(crate) fn lines(latencies: &Latencies) -> Vec<String> {
    let bins = latencies.bins(ROWS);
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1);
    let total = latencies.samples().max(1);
    let line = |bin: &Bin| {
        let share = bin.count as f64 / total as f64 * 100.0;
        let bar = bar(bin.count as f64 / most as f64);
        let (from, to) = (significant(bin.from_ns / 1e3), significant(bin.to_ns / 1e3));
        let line = format!("{from:>8} – {to:>8} µs {bar:BAR_WIDTH$} {share:>6.2} %");
        line
    };
    bins.iter().map(line).collect()
}

/// A bar in eighths of a column; what is not empty shows.
fn bar(part: f64) -> String {
    const PARTIAL: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (part.clamp(0.0, 1.0) * (BAR_WIDTH * 8) as f64).round() as usize;
    let eighths = if part > 0.0 { eighths.max(1) } else { 0 };
    "█".repeat(eighths / 8) + PARTIAL[eighths % 8]
}

/// A number with as many digits as latencies have: four.
pub(crate) fn significant(value: f64) -> String {
    match value {
        value if value < 100.0 => format!("{value:.2}"),
        value if value < 1000.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

const FRAME: Frame = Frame {
    left: 64.0,
    right: 780.0,
    top: 70.0,
    bottom: 400.0,
};

const STYLES: [LineStyle; 2] = [
    LineStyle::new("samples", Hue::BLUE, 2.0),
    LineStyle::new("percentile", Hue::RED, 1.2),
];

/// The plot, as the text of an SVG file: the share of samples by latency, and where the percentiles are.
pub(crate) fn plot(title: &str, latencies: &Latencies) -> String {
    let bins = latencies.bins(STEPS);
    let total = latencies.samples().max(1) as f64;
    let share = |bin: &Bin| bin.count as f64 / total * 100.0;
    let most = bins.iter().map(share).fold(0.0, f64::max).max(0.1);
    let edges = bins.iter().flat_map(|bin| [bin.from_ns / 1e3, bin.to_ns / 1e3]);
    let across = LogarithmicAxis::around(edges, FRAME.across());
    let up = LinearAxis::new(most, FRAME.up());
    let mut drawing = Drawing::new(title, (900.0, 460.0), 16.0, &STYLES);
    FRAME.draw_ticks_up(&mut drawing, &up, number);
    for tick in across.ticks() {
        let x = across.position(tick);
        drawing.grid_line((x, FRAME.top), (x, FRAME.bottom));
        FRAME.name_tick_across(&mut drawing, x, &number(tick));
    }
    FRAME.draw_axes(&mut drawing);
    drawing.text((16.0, 52.0), Anchor::Start, "% of samples");
    FRAME.name_across(&mut drawing, 44.0, "latency in µs");
    let mut outline = Vec::new();
    for bin in &bins {
        let y = up.position(share(bin));
        outline.push((across.position(bin.from_ns / 1e3), y));
        outline.push((across.position(bin.to_ns / 1e3), y));
    }
    if let (Some(first), Some(last)) = (outline.first().copied(), outline.last().copied()) {
        outline.insert(0, (first.0, FRAME.bottom));
        outline.push((last.0, FRAME.bottom));
    }
    drawing.line("samples", outline);
    let marked = ["p50", "p99", "p99_9", "max"];
    for (index, (name, ns)) in latencies
        .summary()
        .into_iter()
        .filter(|(name, _)| marked.contains(name))
        .enumerate()
    {
        let Some(ns) = ns else { continue };
        let (x, y) = (across.position(ns as f64 / 1e3), FRAME.top + 16.0 * index as f64);
        drawing.line("percentile", [(x, y), (x, FRAME.bottom)]);
        let label = format!(
            "{} {} µs",
            name.replace('_', ".").to_uppercase(),
            significant(ns as f64 / 1e3)
        );
        drawing.label("percentile", (x + 4.0, y + 4.0), Anchor::Start, &label);
    }
    drawing.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sample() -> Latencies {
        let mut latencies = Latencies::new();
        for index in 0..2000 {
            latencies.record(Duration::from_nanos(2_000 + index % 400));
        }
        latencies.record(Duration::from_secs(3));
        latencies
    }

    #[test]
    fn bars_fit_eighty_columns_and_a_lone_sample_shows() {
        let lines = lines(&sample());
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        assert!(
            lines
                .first()
                .is_some_and(|line| line.contains(&"█".repeat(BAR_WIDTH)))
        );
        assert!(lines.last().is_some_and(|line| line.contains('▏')), "{lines:#?}");
        assert!(super::lines(&Latencies::new()).is_empty());
    }

    #[test]
    fn numbers_have_digits_that_mean_something() {
        let numbers = [1.234, 12.345, 123.45, 1234.5, 123_456.7].map(significant);
        assert_eq!(numbers, ["1.23", "12.35", "123.5", "1234", "123457"]);
    }

    #[test]
    fn the_plot_has_the_percentiles_that_can_be_told() {
        let svg = plot("rc write", &sample());
        assert!(
            svg.contains("P50 2.2") && svg.contains("P99.9") && svg.contains("MAX 3000000 µs"),
            "{svg}"
        );
        let mut few = Latencies::new();
        few.record(Duration::from_micros(5));
        let svg = plot("one", &few);
        assert!(!svg.contains("P50") && svg.contains("MAX") && !svg.contains("NaN"));
        assert!(!plot("none", &Latencies::new()).contains("NaN"));
    }
}
