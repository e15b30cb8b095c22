//! A plot of a scenario as SVG: goodput above, the longest queue below, both over time.
//!
//! It has its own background, light or dark as the reader's system is, so it is readable on any page.

use super::scenarios::Outcome;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 640.0;
/// Top and bottom of the two panels.
const GOODPUT: (f64, f64) = (66.0, 246.0);
const QUEUE: (f64, f64) = (296.0, 466.0);
/// Points in a line, at most.
const POINTS: usize = 160;
/// From one name to the next.
const NAME_HEIGHT: f64 = 20.0;

const STYLE: &str = "
    svg { font: 13px system-ui, sans-serif }
    .paper { fill: #ffffff } text { fill: #24292f } .grid { stroke: #d8dee4 } .axis { stroke: #6e7781; fill: none }
    .title { font-size: 16px; font-weight: 600 } .line { fill: none; stroke-width: 1.6; stroke-linejoin: round }
    .s0 { stroke: #cf222e } .s0.line { stroke-width: 2.4 } .s1 { stroke: #0969da } .s2 { stroke: #8250df } .s3 { stroke: #6e7781 }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117 } text { fill: #e6edf3 } .grid { stroke: #30363d } .axis { stroke: #8b949e }
      .s0 { stroke: #ff7b72 } .s1 { stroke: #58a6ff } .s2 { stroke: #bc8cff } .s3 { stroke: #9da7b1 }
    }
";

type Series<'a> = &'a [(f64, f64)];

/// A linear axis.
struct Axis {
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn position(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * (value / self.most).clamp(0.0, 1.0)
    }

    /// Round numbers, at most six of them.
    fn ticks(&self) -> Vec<f64> {
        let rough = self.most / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|part| part * power);
        let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let count = (self.most / step + 1e-9).floor() as usize;
        (0..=count).map(|index| index as f64 * step).collect()
    }
}

/// The whole file.
pub(super) fn svg(outcome: &Outcome) -> String {
    let mut svg = String::new();
    let title = escape(outcome.scenario.title);
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\" aria-label=\"{title}\">\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"24\">{title}</text>"
    );
    let goodput: Vec<Series<'_>> = outcome.runs.iter().map(|run| &run.goodput_series[..]).collect();
    let queue: Vec<Series<'_>> = outcome.runs.iter().map(|run| &run.queue_series[..]).collect();
    let end = goodput
        .iter()
        .filter_map(|series| series.last())
        .map(|(at, _)| *at);
    let across = Axis {
        most: end.fold(1e-6, f64::max) * 1e3,
        from: LEFT,
        to: RIGHT,
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    panel(
        &mut svg,
        "goodput, of the bottleneck",
        &goodput,
        &across,
        GOODPUT,
        1.0,
        mean,
    );
    panel(&mut svg, "longest queue, KB", &queue, &across, QUEUE, 0.0, most);
    for tick in across.ticks() {
        let x = across.position(tick);
        let _ = write!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            QUEUE.1 + 20.0,
            number(tick)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">ms</text>",
        f64::midpoint(LEFT, RIGHT),
        QUEUE.1 + 42.0
    );
    for (index, run) in outcome.runs.iter().enumerate() {
        let y = GOODPUT.0 + 12.0 + index as f64 * NAME_HEIGHT;
        let _ = writeln!(
            svg,
            "<path class=\"line s{}\" d=\"M{:.1} {:.1}h22\"/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            index.min(3),
            RIGHT + 14.0,
            y - 4.5,
            RIGHT + 42.0,
            escape(&run.law)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(
    svg: &mut String,
    name: &str,
    lines: &[Series<'_>],
    across: &Axis,
    (top, bottom): (f64, f64),
    least_most: f64,
    merge: impl Fn(&[f64]) -> f64,
) {
    let thinned: Vec<Vec<(f64, f64)>> = lines.iter().map(|series| thin(series, &merge)).collect();
    let values = thinned.iter().flatten().map(|(_, value)| *value);
    let up = Axis {
        most: values.fold(least_most.max(1e-3), f64::max) * 1.05,
        from: bottom,
        to: top,
    };
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.1}\">{name}</text>", top - 10.0);
    for tick in up.ticks() {
        let y = up.position(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.5,
            number(tick)
        );
    }
    let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {top}V{bottom}H{RIGHT}\"/>");
    // The first is drawn last, over the others.
    for (index, series) in thinned.iter().enumerate().rev() {
        let places = series
            .iter()
            .map(|(at, value)| format!("{:.1} {:.1}", across.position(at * 1e3), up.position(*value)));
        let path = places.collect::<Vec<_>>().join("L");
        if !path.is_empty() {
            let _ = writeln!(svg, "<path class=\"line s{}\" d=\"M{path}\"/>", index.min(3));
        }
    }
}

/// Fewer points, each for several.
fn thin(series: Series<'_>, merge: &impl Fn(&[f64]) -> f64) -> Vec<(f64, f64)> {
    let each = series.len().div_ceil(POINTS).max(1);
    let groups = series.chunks(each);
    groups
        .map(|group| {
            let values: Vec<f64> = group.iter().map(|(_, value)| *value).collect();
            (group[group.len() - 1].0, merge(&values))
        })
        .collect()
}

/// `0.25`, `40` or `2500`.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for (most, expected) in [
            (1.05, "0 0.5 1"),
            (0.8, "0 0.2 0.4 0.6 0.8"),
            (8389.0, "0 2000 4000 6000 8000"),
        ] {
            let axis = Axis {
                most,
                from: 0.0,
                to: 1.0,
            };
            let ticks: Vec<String> = axis.ticks().into_iter().map(number).collect();
            assert_eq!(ticks.join(" "), expected);
        }
    }

    #[test]
    fn a_series_is_thinned_to_what_can_be_seen() {
        let series: Vec<(f64, f64)> = (0..1000)
            .map(|index| (f64::from(index), f64::from(index % 2)))
            .collect();
        let most = thin(&series, &|values: &[f64]| {
            values.iter().copied().fold(0.0, f64::max)
        });
        assert!(most.len() <= POINTS && most.iter().all(|(_, value)| *value == 1.0));
        assert_eq!(most.last().map(|(at, _)| *at), Some(999.0));
    }
}
