//! A plot of a scenario as SVG: goodput above, the longest queue below, both over time.

use super::scenarios::Outcome;
use nonic_plot::{Anchor, Axis as _, Drawing, Frame, Hue, LineStyle, LinearAxis, number};

const SIZE: (f64, f64) = (860.0, 520.0);
const GOODPUT: Frame = Frame {
    left: 64.0,
    right: 640.0,
    top: 66.0,
    bottom: 246.0,
};
const QUEUE: Frame = Frame {
    top: 296.0,
    bottom: 466.0,
    ..GOODPUT
};
/// Points in a line, at most.
const POINTS: usize = 160;
/// From one name to the next.
const NAME_HEIGHT: f64 = 20.0;

/// By the place of a run; those behind look like the last.
const STYLES: [LineStyle; 4] = [
    LineStyle::new("s0", Hue::RED, 2.4),
    LineStyle::new("s1", Hue::BLUE, 1.6),
    LineStyle::new("s2", Hue::VIOLET, 1.6),
    LineStyle::new("s3", Hue::GREY, 1.6),
];

fn class_of(run: usize) -> &'static str {
    STYLES[run.min(STYLES.len() - 1)].class
}

type Series<'a> = &'a [(f64, f64)];

/// The whole file.
pub(super) fn svg(outcome: &Outcome) -> String {
    let mut drawing = Drawing::new(outcome.scenario.title, SIZE, GOODPUT.left, &STYLES);
    let goodput: Vec<Series<'_>> = outcome.runs.iter().map(|run| &run.goodput_series[..]).collect();
    let queue: Vec<Series<'_>> = outcome.runs.iter().map(|run| &run.queue_series[..]).collect();
    let ends = goodput.iter().filter_map(|series| series.last());
    let end = ends.map(|(at, _)| *at).fold(1e-6, f64::max);
    let across = LinearAxis::new(end * 1e3, QUEUE.across());
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let panel = Panel {
        name: "goodput, of the bottleneck",
        frame: GOODPUT,
        least_most: 1.0,
    };
    panel.draw(&mut drawing, &goodput, &across, mean);
    let panel = Panel {
        name: "longest queue, KB",
        frame: QUEUE,
        least_most: 0.0,
    };
    panel.draw(&mut drawing, &queue, &across, most);
    for tick in across.ticks() {
        QUEUE.name_tick_across(&mut drawing, across.position(tick), &number(tick));
    }
    QUEUE.name_across(&mut drawing, 42.0, "ms");
    for (index, run) in outcome.runs.iter().enumerate() {
        let y = GOODPUT.top + 12.0 + index as f64 * NAME_HEIGHT;
        let x = GOODPUT.right + 14.0;
        drawing.line(class_of(index), [(x, y - 4.5), (x + 22.0, y - 4.5)]);
        drawing.text((x + 28.0, y), Anchor::Start, &run.law);
    }
    drawing.finish()
}

/// One of the two.
struct Panel {
    name: &'static str,
    frame: Frame,
    /// The axis goes to this at least.
    least_most: f64,
}

impl Panel {
    fn draw(
        &self,
        drawing: &mut Drawing,
        lines: &[Series<'_>],
        across: &LinearAxis,
        merge: impl Fn(&[f64]) -> f64,
    ) {
        let Panel { name, frame, .. } = self;
        let thinned: Vec<Vec<(f64, f64)>> = lines.iter().map(|series| thin(series, &merge)).collect();
        let values = thinned.iter().flatten().map(|(_, value)| *value);
        let most = values.fold(self.least_most.max(1e-3), f64::max) * 1.05;
        let up = LinearAxis::new(most, frame.up());
        drawing.text((frame.left, frame.top - 10.0), Anchor::Start, name);
        frame.draw_ticks_up(drawing, &up, number);
        frame.draw_axes(drawing);
        // The first is drawn last, over the others.
        for (index, series) in thinned.iter().enumerate().rev() {
            let places = series.iter();
            let places = places.map(|(at, value)| (across.position(at * 1e3), up.position(*value)));
            drawing.line(class_of(index), places);
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

#[cfg(test)]
mod tests {
    use super::*;

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
