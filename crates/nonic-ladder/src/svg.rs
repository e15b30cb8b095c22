//! Renders a ladder as an SVG picture. Time goes down, one row for everything that happens; rows are not to scale,
//! since a microsecond and a timeout would not fit one page. An arrow begins in the row in which its packet left and
//! ends where it arrived, so that packets which overtake each other cross. Labels stand along their arrow, so that
//! those of one direction do not cross each other's.

use crate::model::{Arrival, Clock, Event, EventKind, Headings, Ladder, Tone};
use nonic_plot::{Anchor, Drawing, Hue, LineStyle};
use std::collections::HashMap;

/// From the left edge to the right end of the times.
const TIMES: f64 = 74.0;
/// Room beside the outer ends at least; more if words need it.
const MARGIN: f64 = 96.0;
/// Between words and what is beside them.
const SPACE: f64 = 16.0;
/// How wide a letter is, about: which font is there is not known here.
const LETTER: f64 = 7.4;
/// Between two ends, if there are two; if there are more.
const WIDE_GAP: f64 = 460.0;
const GAP: f64 = 330.0;
/// Where bars begin, under title and names.
const TOP: f64 = 66.0;
/// Rows in which something leaves or happens, and rows in which something arrives.
const ROW: f64 = 24.0;
const ARRIVAL_ROW: f64 = 9.0;
/// How far down a packet comes of which it is not known when it arrived.
const SLOPE: f64 = 6.0;

const STYLES: [LineStyle; 5] = [
    LineStyle::new("request", Hue::BLUE, 1.6),
    LineStyle::new("answer", Hue::GREY, 1.3),
    LineStyle::new("program", Hue::VIOLET, 1.3),
    LineStyle::new("trouble", Hue::RED, 1.8),
    LineStyle::new("bar", Hue::GREY, 1.0),
];

/// The picture, as the text of an SVG file.
#[must_use]
pub fn render(ladder: &Ladder) -> String {
    let rows = Rows::of(ladder);
    let picture = Picture::new(ladder, &rows);
    let bottom = TOP + rows.height;
    let height = bottom + 24.0 + 18.0 * ladder.notes.len() as f64;
    let mut drawing = Drawing::new(&ladder.title, (picture.width, height), 16.0, &STYLES);
    picture.draw_bars(&mut drawing, bottom);
    // Labels come last, so that no line crosses them.
    for (index, event) in ladder.events.iter().enumerate() {
        picture.draw_arrow(&mut drawing, index, event);
    }
    for (index, event) in ladder.events.iter().enumerate() {
        picture.draw_words(&mut drawing, index, event);
    }
    if let (Some(y), Some((_, count))) = (rows.left_out, ladder.left_out) {
        let text = format!("⋮ {count} rows left out");
        drawing.label("trouble", (picture.width / 2.0, y), Anchor::Middle, &text);
    }
    for (index, note) in ladder.notes.iter().enumerate() {
        let y = bottom + 22.0 + 18.0 * index as f64;
        drawing.text((16.0, y), Anchor::Start, note);
    }
    drawing.finish()
}

/// The height of everything, measured from the top of the bars.
struct Rows {
    /// Where each event is, and where its packet arrives.
    places: Vec<(f64, f64)>,
    left_out: Option<f64>,
    height: f64,
}

impl Rows {
    fn of(ladder: &Ladder) -> Self {
        // Departures and arrivals in the order of time; of one instant, what arrives comes first.
        let mut moments: Vec<(u64, bool, usize)> = Vec::new();
        for (index, event) in ladder.events.iter().enumerate() {
            moments.push((event.at_ns, true, index));
            if let EventKind::Packet {
                arrival: Arrival::At(at_ns),
                ..
            } = event.kind
            {
                moments.push((at_ns.max(event.at_ns), at_ns <= event.at_ns, index));
            }
        }
        moments.sort();
        let mut rows = Rows {
            places: vec![(0.0, 0.0); ladder.events.len()],
            left_out: None,
            height: 6.0,
        };
        let mut has_left = vec![false; ladder.events.len()];
        for (_, _, index) in moments {
            if has_left[index] {
                rows.height += ARRIVAL_ROW;
                rows.places[index].1 = rows.height;
                continue;
            }
            has_left[index] = true;
            if ladder.left_out.is_some_and(|(at, _)| at == index) {
                rows.height += ROW;
                rows.left_out = Some(TOP + rows.height);
            }
            rows.height += ROW;
            rows.places[index] = (rows.height, rows.height + SLOPE);
        }
        rows.slope_lost(&ladder.events);
        rows.height += ROW;
        rows
    }

    /// A packet that never arrived would have come as far behind the one before it as it left, if that was still under way: drawn like
    /// this, the two do not cross.
    fn slope_lost(&mut self, events: &[Event]) {
        let mut before: HashMap<(usize, usize), usize> = HashMap::new();
        for (index, event) in events.iter().enumerate() {
            let EventKind::Packet { to, arrival } = event.kind else {
                continue;
            };
            let before = before.insert((event.end, to), index);
            let (Some(before), Arrival::Never) = (before, arrival) else {
                continue;
            };
            let (left, arrived) = self.places[before];
            let place = &mut self.places[index];
            if arrived > place.0 {
                place.1 = place.0 + (arrived - left);
                self.height = self.height.max(place.1);
            }
        }
    }
}

struct Picture<'a> {
    ladder: &'a Ladder,
    rows: &'a Rows,
    headings: Headings,
    clock: Clock,
    /// Where the first end is.
    first_x: f64,
    width: f64,
}

impl<'a> Picture<'a> {
    fn new(ladder: &'a Ladder, rows: &'a Rows) -> Self {
        let headings = Headings::of(ladder);
        let (left, right) = margins(ladder, &headings);
        let mut picture = Picture {
            ladder,
            rows,
            headings,
            clock: Clock::of(ladder, ladder.start_ns()),
            first_x: TIMES + left,
            width: 0.0,
        };
        picture.width = picture.x(ladder.ends.len().saturating_sub(1)) + right;
        picture
    }

    fn x(&self, end: usize) -> f64 {
        let gap = if self.ladder.ends.len() == 2 {
            WIDE_GAP
        } else {
            GAP
        };
        self.first_x + gap * end as f64
    }

    fn draw_bars(&self, drawing: &mut Drawing, bottom: f64) {
        for (end, name) in self.headings.names.iter().enumerate() {
            let x = self.x(end);
            drawing.line("bar", [(x, TOP), (x, bottom)]);
            drawing.text((x, TOP - 10.0), Anchor::Middle, name);
        }
        let unit = format!("time in {}", self.clock.unit);
        drawing.text((16.0, TOP - 10.0), Anchor::Start, &unit);
    }

    fn draw_arrow(&self, drawing: &mut Drawing, index: usize, event: &Event) {
        let EventKind::Packet { to, arrival } = event.kind else {
            return;
        };
        let (from, tip) = (self.x(event.end), self.x(to));
        let (leaves, arrives) = self.rows.places[index];
        let (leaves, arrives) = (TOP + leaves, TOP + arrives);
        let class = class(event.tone);
        if to == event.end {
            drawing.line(
                class,
                [(from, leaves), (from + 26.0, leaves), (from + 26.0, arrives)],
            );
            drawing.arrow(class, (from + 26.0, arrives), (from, arrives));
        } else if arrival == Arrival::Never {
            let (x, y) = (from + (tip - from) * 0.72, leaves + (arrives - leaves) * 0.72);
            drawing.line(class, [(from, leaves), (x, y)]);
            for sign in [-1.0, 1.0] {
                drawing.line("trouble", [(x - 5.0, y - 5.0 * sign), (x + 5.0, y + 5.0 * sign)]);
            }
        } else {
            drawing.arrow(class, (from, leaves), (tip, arrives));
        }
    }

    fn draw_words(&self, drawing: &mut Drawing, index: usize, event: &Event) {
        let y = TOP + self.rows.places[index].0;
        let (class, label) = (class(event.tone), self.headings.label(self.ladder, event));
        let time = self.clock.time(event.at_ns);
        drawing.label("answer", (TIMES, y + 4.0), Anchor::End, &time);
        let x = self.x(event.end);
        match event.kind {
            EventKind::Packet { to, .. } if to == event.end => {
                drawing.label(class, (x + 32.0, y - 4.0), Anchor::Start, &label);
            }
            EventKind::Packet { to, .. } => {
                let arrives = TOP + self.rows.places[index].1;
                let slope = (arrives - y) / (self.x(to) - x);
                let (beside, anchor) = match to < event.end {
                    true => (-12.0, Anchor::End),
                    false => (12.0, Anchor::Start),
                };
                let place = (x + beside, y + beside * slope - 4.0);
                drawing.turned_label(class, place, anchor, slope.atan().to_degrees(), &label);
            }
            // What happens at the first end is written outside, where no arrows are.
            EventKind::Local => {
                drawing.dot(class, (x, y));
                match event.end {
                    0 => drawing.label(class, (x - 12.0, y + 4.0), Anchor::End, &label),
                    _ => drawing.label(class, (x + 12.0, y + 4.0), Anchor::Start, &label),
                }
            }
        }
    }
}

/// How much room the words at the first and at the last end need, to the left and to the right: their names, and what happens there.
fn margins(ladder: &Ladder, headings: &Headings) -> (f64, f64) {
    let width = |text: &str| text.chars().count() as f64 * LETTER;
    let half_name = |name: Option<&String>| name.map_or(0.0, |name| width(name) / 2.0) + SPACE;
    let last = ladder.ends.len().saturating_sub(1);
    let mut left = half_name(headings.names.first()).max(MARGIN);
    let mut right = half_name(headings.names.last()).max(MARGIN);
    for event in &ladder.events {
        let words = width(&headings.label(ladder, event)) + SPACE;
        match event.kind {
            EventKind::Local if event.end == 0 => left = left.max(words + 12.0),
            EventKind::Local if event.end == last => right = right.max(words + 12.0),
            EventKind::Packet { to, .. } if to == event.end && to == last => right = right.max(words + 32.0),
            _ => {}
        }
    }
    (left, right)
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Request => "request",
        Tone::Answer => "answer",
        Tone::Program => "program",
        Tone::Trouble => "trouble",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(at_ns: u64, arrival: Arrival, text: &str) -> Event {
        Event {
            kind: EventKind::Packet { to: 1, arrival },
            tone: Tone::Request,
            ..Event::local(at_ns, 0, None, text.to_owned())
        }
    }

    fn ladder(events: Vec<Event>) -> Ladder {
        Ladder {
            title: "two ends".to_owned(),
            ends: vec!["left".to_owned(), "right".to_owned()],
            events,
            ..Ladder::default()
        }
    }

    #[test]
    fn packets_that_overtake_each_other_cross() {
        let shown = ladder(vec![
            packet(0, Arrival::At(100), "slow"),
            packet(10, Arrival::At(50), "fast"),
            packet(20, Arrival::Never, "lost"),
        ]);
        let rows = Rows::of(&shown);
        let [slow, fast, lost] = rows.places[..] else {
            panic!("three packets");
        };
        assert!(slow.0 < fast.0 && fast.1 < slow.1 && fast.0 < lost.0);
        let svg = render(&shown);
        assert_eq!(
            svg.matches("class=\"head request\"").count(),
            2,
            "the lost one has no head"
        );
        assert_eq!(svg.matches("class=\"line trouble\"").count(), 2, "but a cross");
    }

    #[test]
    fn a_lost_packet_and_its_words_do_not_cross_the_one_before_it() {
        let shown = ladder(vec![
            packet(0, Arrival::At(100), "slow"),
            packet(10, Arrival::Never, "lost"),
            Event::local(20, 0, None, "a row".to_owned()),
            packet(30, Arrival::At(110), "next"),
        ]);
        let rows = Rows::of(&shown);
        let fall = |index: usize| rows.places[index].1 - rows.places[index].0;
        assert_eq!(fall(0), fall(1), "side by side");
        assert!(rows.height >= rows.places[1].1);
        let svg = render(&shown);
        let angle = (fall(0) / WIDE_GAP).atan().to_degrees();
        assert_eq!(svg.matches(&format!("rotate({angle:.1} ")).count(), 2, "{svg}");
    }

    #[test]
    fn long_names_and_words_have_room() {
        let mut shown = ladder(vec![
            Event::local(0, 0, None, "a".repeat(60)),
            Event::local(1, 1, None, "b".repeat(30)),
        ]);
        shown.ends[1] = "c".repeat(50);
        let rows = Rows::of(&shown);
        let picture = Picture::new(&shown, &rows);
        assert!(
            picture.x(0) - 12.0 - 60.0 * LETTER > TIMES,
            "the words at the left do not cover the times"
        );
        assert!(
            picture.width - picture.x(1) > 12.0 + 30.0 * LETTER,
            "the words at the right are on the paper"
        );
        assert!(picture.width - picture.x(1) > 25.0 * LETTER, "and so is the name");
    }

    #[test]
    fn words_from_outside_cannot_become_elements() {
        let mut shown = ladder(vec![packet(0, Arrival::Unknown, "<script>")]);
        shown.notes.push("<b>".to_owned());
        shown.left_out = Some((0, 7));
        let svg = render(&shown);
        assert!(!svg.contains("<script>") && !svg.contains("<b>"));
        assert!(svg.contains("7 rows left out"));
    }

    #[test]
    fn a_packet_to_itself_and_one_that_arrived_before_it_left_are_drawn() {
        let mut own = packet(5, Arrival::At(1), "own");
        own.kind = EventKind::Packet {
            to: 0,
            arrival: Arrival::At(1),
        };
        let svg = render(&ladder(vec![own, packet(7, Arrival::At(2), "early clock")]));
        assert!(!svg.contains("NaN") && svg.contains("early clock"));
    }
}
