//! A line chart as SVG: logarithmic axes, and every line named at its end.
//!
//! It has its own background, light or dark as the reader's system is, so it is readable on any page.

use super::axis::Axis;
use super::probe::{significant, size_name};
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 640.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 420.0;
/// From one name to the next.
const NAME_HEIGHT: f64 = 18.0;

/// What a line stands for decides how it looks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Nonic,
    Ucx,
    Libfabric,
    Bare,
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) style: Style,
    /// Sizes in bytes, rising, and what was measured.
    pub(crate) points: Vec<(usize, f64)>,
}

/// What the chart is against.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Across {
    /// The size of messages, in bytes.
    Sizes,
    /// The round trip, in microseconds.
    RoundTrips,
}

impl Across {
    fn label(self) -> &'static str {
        match self {
            Across::Sizes => "size of a message",
            Across::RoundTrips => "round trip",
        }
    }

    fn tick(self, at: usize) -> String {
        match self {
            Across::Sizes => size_name(at),
            Across::RoundTrips if at < 1000 => "~0".to_owned(),
            Across::RoundTrips => format!("{} ms", at / 1000),
        }
    }
}

/// A chart of something against the size of messages, or whatever else is counted.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) y_label: String,
    pub(crate) across: Across,
    pub(crate) sizes: Vec<usize>,
    pub(crate) series: Vec<Series>,
}

const STYLE: &str = "
    svg { font: 13px system-ui, sans-serif }
    .paper { fill: #ffffff } text { fill: #24292f } .grid { stroke: #d8dee4 } .axis { stroke: #6e7781 }
    .title { font-size: 16px; font-weight: 600 }
    .line { fill: none; stroke-width: 1.8; stroke-linejoin: round } .leader { stroke-width: 1; stroke-dasharray: 1 3 }
    .nonic { stroke: #cf222e } .nonic.line { stroke-width: 3 } .dot.nonic, .name.nonic { fill: #cf222e; stroke: none }
    .ucx { stroke: #0969da } .dot.ucx, .name.ucx { fill: #0969da; stroke: none }
    .libfabric { stroke: #8250df } .dot.libfabric, .name.libfabric { fill: #8250df; stroke: none }
    .bare { stroke: #6e7781 } .bare.line { stroke-width: 1.4 } .dot.bare, .name.bare { fill: #6e7781; stroke: none }
    .name.nonic { font-weight: 600 }
    .second { stroke-dasharray: 7 4 }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117 } text { fill: #e6edf3 } .grid { stroke: #30363d } .axis { stroke: #8b949e }
      .nonic { stroke: #ff7b72 } .dot.nonic, .name.nonic { fill: #ff7b72 }
      .ucx { stroke: #58a6ff } .dot.ucx, .name.ucx { fill: #58a6ff }
      .libfabric { stroke: #bc8cff } .dot.libfabric, .name.libfabric { fill: #bc8cff }
      .bare { stroke: #9da7b1 } .dot.bare, .name.bare { fill: #9da7b1 }
    }
";

impl Style {
    fn class(self) -> &'static str {
        match self {
            Style::Nonic => "nonic",
            Style::Ucx => "ucx",
            Style::Libfabric => "libfabric",
            Style::Bare => "bare",
        }
    }
}

impl Chart {
    /// The whole file.
    pub(crate) fn svg(&self) -> String {
        let mut svg = String::new();
        let title = escape(&self.title);
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n<style>{STYLE}</style>\n\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\"/>\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"24\">{title}</text>\n\
             <text x=\"{LEFT}\" y=\"42\">{}</text>",
            escape(&self.y_label)
        );
        let (across, up) = self.axes();
        self.draw_grid(&mut svg, &across, &up);
        self.draw_lines(&mut svg, &across, &up);
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self) -> (Axis, Axis) {
        let sizes = self.sizes.iter().map(|size| *size as f64);
        let (least, most) = (
            sizes.clone().fold(f64::INFINITY, f64::min),
            sizes.fold(0.0, f64::max),
        );
        let across = Axis::new(least, most, (LEFT, RIGHT));
        let values = self.series.iter().flat_map(|series| &series.points);
        let up = Axis::around(values.map(|(_, value)| *value), (BOTTOM, TOP));
        (across, up)
    }

    fn draw_grid(&self, svg: &mut String, across: &Axis, up: &Axis) {
        for tick in up.ticks() {
            let y = up.position(tick);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.5,
                tick_name(tick)
            );
        }
        for size in &self.sizes {
            let x = across.position(*size as f64);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{BOTTOM}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 20.0,
                self.across.tick(*size)
            );
        }
        let _ = writeln!(
            svg,
            "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, RIGHT),
            BOTTOM + 44.0,
            self.across.label()
        );
    }

    fn draw_lines(&self, svg: &mut String, across: &Axis, up: &Axis) {
        let drawn: Vec<&Series> = self
            .series
            .iter()
            .filter(|series| !series.points.is_empty())
            .collect();
        let end = |series: &&Series| {
            series
                .points
                .last()
                .map_or(BOTTOM, |(_, value)| up.position(*value))
        };
        let names = apart(&drawn.iter().map(end).collect::<Vec<_>>());
        // Those that matter are drawn last, over the others.
        let mut order: Vec<usize> = (0..drawn.len()).collect();
        order.sort_by_key(|index| drawn[*index].style == Style::Nonic);
        for index in order {
            let series = drawn[index];
            let class = series.style.class();
            let earlier = drawn[..index]
                .iter()
                .filter(|other| other.style == series.style)
                .count();
            let second = if earlier > 0 { " second" } else { "" };
            let places: Vec<(f64, f64)> = series
                .points
                .iter()
                .map(|(size, value)| (across.position(*size as f64), up.position(*value)))
                .collect();
            let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            let _ = writeln!(
                svg,
                "<path class=\"line {class}{second}\" d=\"M{}\"/>",
                path.join("L")
            );
            for (x, y) in &places {
                let _ = write!(
                    svg,
                    "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
                );
            }
            if let Some((x, y)) = places.last() {
                let name_y = names[index];
                let _ = writeln!(
                    svg,
                    "\n<path class=\"leader {class}\" fill=\"none\" d=\"M{:.1} {y:.1}L{:.1} {name_y:.1}\"/>\
                     <text class=\"name {class}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    x + 5.0,
                    RIGHT + 22.0,
                    RIGHT + 26.0,
                    name_y + 4.5,
                    escape(&series.name)
                );
            }
        }
    }
}

/// Heights near the wanted ones, no two of them nearer to each other than a line of text, all of them on the chart.
fn apart(wanted: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    let mut heights = wanted.to_vec();
    let mut free_from = TOP;
    for index in &order {
        heights[*index] = heights[*index].max(free_from);
        free_from = heights[*index] + NAME_HEIGHT;
    }
    // What was pushed off the lower end is pushed back, and what is above it makes room.
    let mut free_to = BOTTOM + NAME_HEIGHT;
    for index in order.iter().rev() {
        heights[*index] = heights[*index].min(free_to);
        free_to = heights[*index] - NAME_HEIGHT;
    }
    heights
}

/// `0.5`, `20` or `1000`.
fn tick_name(tick: f64) -> String {
    let text = significant(tick);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
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
    fn names_do_not_overlap_and_keep_their_order() {
        for wanted in [
            vec![100.0, 101.0, 99.0],
            vec![BOTTOM, BOTTOM, BOTTOM, BOTTOM - 1.0],
            vec![TOP; 5],
            vec![],
        ] {
            let heights = apart(&wanted);
            let mut sorted = heights.clone();
            sorted.sort_by(f64::total_cmp);
            assert!(
                sorted
                    .windows(2)
                    .all(|pair| pair[1] - pair[0] >= NAME_HEIGHT - 1e-9)
            );
            for (one, first) in wanted.iter().enumerate() {
                for (other, second) in wanted.iter().enumerate() {
                    assert!(first >= second || heights[one] < heights[other]);
                }
            }
        }
    }

    #[test]
    fn ticks_are_named_without_needless_digits() {
        let names = [0.05, 0.1, 0.5, 2.0, 10.0, 500.0, 1000.0].map(tick_name);
        assert_eq!(names, ["0.05", "0.1", "0.5", "2", "10", "500", "1000"]);
    }

    #[test]
    fn a_chart_has_a_line_and_a_name_for_each_subject_that_was_measured() {
        let series = |name: &str, points| Series {
            name: name.to_owned(),
            style: Style::Bare,
            points,
        };
        let chart = Chart {
            title: "a < b".to_owned(),
            y_label: "µs".to_owned(),
            across: Across::Sizes,
            sizes: vec![8, 64, 512],
            series: vec![
                series("first", vec![(8, 1.0), (64, 2.0)]),
                series("absent", vec![]),
            ],
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("class=\"line").count(), 1);
        assert!(svg.contains(">first</text>") && !svg.contains("absent"));
        assert!(svg.contains("a &lt; b"));
    }
}
