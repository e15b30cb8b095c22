//! A line chart as SVG: logarithmic axes, and every line named at its end.

use super::probe::{significant, size_name};
use nonic_plot::{Anchor, Axis, Drawing, Frame, Hue, LineStyle, LogarithmicAxis, shortest};

const SIZE: (f64, f64) = (860.0, 480.0);
const FRAME: Frame = Frame {
    left: 64.0,
    right: 640.0,
    top: 52.0,
    bottom: 420.0,
};
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

const STYLES: [LineStyle; 4] = [
    style(Style::Nonic, Hue::RED, 3.0),
    style(Style::Ucx, Hue::BLUE, 1.8),
    style(Style::Libfabric, Hue::VIOLET, 1.8),
    style(Style::Bare, Hue::GREY, 1.4),
];

const fn style(style: Style, hue: Hue, width: f64) -> LineStyle {
    LineStyle {
        class: style.class(),
        hue,
        width,
        is_bold: matches!(style, Style::Nonic),
    }
}

impl Style {
    const fn class(self) -> &'static str {
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
        let mut drawing = Drawing::new(&self.title, SIZE, FRAME.left, &STYLES);
        drawing.text((FRAME.left, 42.0), Anchor::Start, &self.y_label);
        let (across, up) = self.axes();
        self.draw_grid(&mut drawing, &across, &up);
        self.draw_lines(&mut drawing, &across, &up);
        drawing.finish()
    }

    fn axes(&self) -> (LogarithmicAxis, LogarithmicAxis) {
        let sizes = self.sizes.iter().map(|size| *size as f64);
        let (least, most) = (
            sizes.clone().fold(f64::INFINITY, f64::min),
            sizes.fold(0.0, f64::max),
        );
        let across = LogarithmicAxis::new(least, most, FRAME.across());
        let values = self.series.iter().flat_map(|series| &series.points);
        let up = LogarithmicAxis::around(values.map(|(_, value)| *value), FRAME.up());
        (across, up)
    }

    fn draw_grid(&self, drawing: &mut Drawing, across: &impl Axis, up: &impl Axis) {
        FRAME.draw_ticks_up(drawing, up, tick_name);
        for size in &self.sizes {
            let x = across.position(*size as f64);
            drawing.grid_line((x, FRAME.top), (x, FRAME.bottom));
            FRAME.name_tick_across(drawing, x, &self.across.tick(*size));
        }
        FRAME.draw_axes(drawing);
        FRAME.name_across(drawing, 44.0, self.across.label());
    }

    fn draw_lines(&self, drawing: &mut Drawing, across: &impl Axis, up: &impl Axis) {
        let drawn = self.series.iter().filter(|series| !series.points.is_empty());
        let drawn: Vec<&Series> = drawn.collect();
        let place = |(size, value): &(usize, f64)| (across.position(*size as f64), up.position(*value));
        let end = |series: &&Series| series.points.last().map_or(FRAME.bottom, |last| place(last).1);
        let names = FRAME.spread(&drawn.iter().map(end).collect::<Vec<_>>(), NAME_HEIGHT);
        // Those that matter are drawn last, over the others.
        let mut order: Vec<usize> = (0..drawn.len()).collect();
        order.sort_by_key(|index| drawn[*index].style == Style::Nonic);
        for index in order {
            let series = drawn[index];
            let class = series.style.class();
            let alike = |other: &&Series| other.style == series.style;
            let places: Vec<(f64, f64)> = series.points.iter().map(place).collect();
            match drawn[..index].iter().any(alike) {
                true => drawing.line(&format!("{class} second"), places.iter().copied()),
                false => drawing.line(class, places.iter().copied()),
            }
            for place in &places {
                drawing.dot(class, *place);
            }
            if let Some((x, y)) = places.last() {
                let name_y = names[index];
                drawing.leader(class, (x + 5.0, *y), (FRAME.right + 22.0, name_y));
                drawing.name(class, (FRAME.right + 26.0, name_y + 4.5), &series.name);
            }
        }
    }
}

/// `0.5`, `20` or `1000`.
fn tick_name(tick: f64) -> String {
    shortest(&significant(tick)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
