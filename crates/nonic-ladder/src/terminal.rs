//! Renders a ladder as lines of text: ends side by side, packets as arrows between them.
//!
//! Lines are no wider than the caller asks; what does not fit is cut and ends in `…`. Colours are ANSI's, and only
//! where the caller asks for them.

use crate::model::{Arrival, Clock, Event, EventKind, Headings, Ladder, Tone};

/// Columns for the time, and the blank behind it.
const TIME_WIDTH: usize = 10;
/// Fewer columns cannot be drawn in.
const MIN_WIDTH: usize = 40;

/// How a terminal is to be drawn on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Screen {
    /// How many columns it has.
    pub width: usize,
    /// Whether it shows colours.
    pub colour: bool,
}

/// All lines of a ladder.
#[must_use]
pub fn render(ladder: &Ladder, screen: Screen) -> Vec<String> {
    let page = Page::new(ladder, screen);
    let mut lines = Vec::new();
    if !ladder.title.is_empty() {
        lines.push(ladder.title.clone());
    }
    lines.extend(page.head());
    for (index, event) in ladder.events.iter().enumerate() {
        lines.extend(page.left_out_before(index));
        lines.push(page.row(event));
    }
    lines.extend(page.left_out_before(ladder.events.len()));
    lines.extend(ladder.notes.iter().cloned());
    lines
}

/// The lines that stand above events, to be followed by those of [`rows`]: for a ladder that is still growing.
#[must_use]
pub fn head(ladder: &Ladder, screen: Screen) -> Vec<String> {
    Page::new(ladder, screen).head()
}

/// The rows of the events from this index on.
#[must_use]
pub fn rows(ladder: &Ladder, from: usize, screen: Screen) -> Vec<String> {
    let page = Page::new(ladder, screen);
    let events = ladder.events.iter().skip(from);
    events.map(|event| page.row(event)).collect()
}

struct Page<'a> {
    ladder: &'a Ladder,
    headings: Headings,
    clock: Clock,
    /// The column of each end.
    columns: Vec<usize>,
    width: usize,
    colour: bool,
}

impl<'a> Page<'a> {
    fn new(ladder: &'a Ladder, screen: Screen) -> Self {
        let width = screen.width.max(MIN_WIDTH);
        let (first, last) = (TIME_WIDTH + 1, width - 1);
        let gaps = ladder.ends.len().saturating_sub(1).max(1);
        let columns = (0..ladder.ends.len()).map(|end| first + (last - first) * end / gaps);
        Page {
            headings: Headings::of(ladder),
            clock: Clock::of(ladder, ladder.start_ns()),
            columns: columns.collect(),
            ladder,
            width,
            colour: screen.colour,
        }
    }

    /// Names of the ends, each at its own column; the last ends there.
    fn head(&self) -> Vec<String> {
        let unit = self.clock.unit;
        let mut line: Vec<char> = vec![' '; self.width];
        put(&mut line, TIME_WIDTH - 1 - unit.chars().count(), unit);
        let last = self.columns.len().saturating_sub(1);
        for (end, name) in self.headings.names.iter().enumerate() {
            // Those between the first and the last stand in the middle above their bars.
            let room = match self.columns.get(1) {
                None => self.width - self.columns[0],
                Some(second) if end == 0 || end == last => (second - self.columns[0]) / 2,
                Some(second) => second - self.columns[0],
            };
            let name = fitting(name, room.saturating_sub(1));
            let at = match end {
                end if end == last && last > 0 => self.width - name.chars().count(),
                0 => self.columns[0],
                _ => self.columns[end].saturating_sub(name.chars().count() / 2),
            };
            put(&mut line, at, &name);
        }
        vec![finished(&line), finished(&self.bars())]
    }

    fn row(&self, event: &Event) -> String {
        let label = self.headings.label(self.ladder, event);
        let mut line = self.bars();
        let time = fitting(&self.clock.time(event.at_ns), TIME_WIDTH - 1);
        put(&mut line, TIME_WIDTH - 1 - time.chars().count(), &time);
        let painted = match event.kind {
            EventKind::Packet { to, arrival } if to != event.end => {
                self.draw_arrow(&mut line, (event.end, to), arrival, &label)
            }
            EventKind::Packet { .. } => self.draw_note(&mut line, event.end, &format!("to itself: {label}")),
            EventKind::Local => self.draw_note(&mut line, event.end, &label),
        };
        self.paint(&line, painted, event.tone)
    }

    fn bars(&self) -> Vec<char> {
        let mut line = vec![' '; self.width];
        for column in &self.columns {
            line[*column] = '│';
        }
        line
    }

    /// Writes beside the bar of an end, to its right; at the last end, to its left. Returns which columns were written.
    fn draw_note(&self, line: &mut [char], end: usize, text: &str) -> (usize, usize) {
        let column = self.columns[end];
        let is_last = end > 0 && end + 1 == self.columns.len();
        let (from, to) = match is_last {
            true => (self.columns[0] + 2, column - 1),
            false => (column + 2, self.width - 1),
        };
        let text = fitting(text, to - from);
        let len = text.chars().count();
        let at = if is_last { to - len } else { from };
        put(line, at, &text);
        (at, at + len)
    }

    /// Draws an arrow with its label: on it if it is long enough, else beside it.
    fn draw_arrow(
        &self,
        line: &mut [char],
        ends: (usize, usize),
        arrival: Arrival,
        label: &str,
    ) -> (usize, usize) {
        let (tail, tip) = (self.columns[ends.0], self.columns[ends.1]);
        let (left, right) = (tail.min(tip), tail.max(tip));
        for column in &mut line[left + 1..right] {
            *column = '─';
        }
        let rightward = tip > tail;
        line[tail] = if rightward { '├' } else { '┤' };
        if rightward {
            line[tip - 1] = '▶';
        } else {
            line[tip + 1] = '◀';
        }
        let room = (right - left).saturating_sub(8);
        let inside = label.chars().count() <= room || self.columns.len() == 2;
        let at = if inside {
            let text = format!(" {} ", fitting(label, room));
            let at = if rightward {
                left + 3
            } else {
                right - 2 - text.chars().count()
            };
            put(line, at, &text);
            None
        } else if self.width - right > left {
            let text = fitting(label, self.width.saturating_sub(right + 3));
            put(line, right + 2, &text);
            Some((left, right + 2 + text.chars().count()))
        } else {
            let text = fitting(label, left.saturating_sub(TIME_WIDTH + 3));
            let at = left - 1 - text.chars().count();
            put(line, at, &text);
            Some((at, right + 1))
        };
        if arrival == Arrival::Never {
            self.stop_arrow(line, tail, tip);
        }
        at.unwrap_or((left, right + 1))
    }

    /// The packet got no further: the arrow ends before its tip.
    fn stop_arrow(&self, line: &mut [char], tail: usize, tip: usize) {
        let between = |column: &usize| line[*column] == '─' || line[*column] == '▶' || line[*column] == '◀';
        let nearest_tip: Vec<usize> = match tip > tail {
            true => (tail + 1..tip).rev().take_while(between).collect(),
            false => (tip + 1..tail).take_while(between).collect(),
        };
        let gone = nearest_tip.len().min(8);
        for column in &nearest_tip[..gone] {
            line[*column] = ' ';
        }
        if let Some(column) = nearest_tip.get(gone.saturating_sub(1)) {
            line[*column] = '✗';
        }
    }

    fn paint(&self, line: &[char], (from, to): (usize, usize), tone: Tone) -> String {
        if !self.colour {
            return finished(line);
        }
        let code = match tone {
            Tone::Request => "34",
            Tone::Answer => "90",
            Tone::Program => "35",
            Tone::Trouble => "31",
        };
        let part = |from: usize, to: usize| {
            line[from.min(line.len())..to.min(line.len())]
                .iter()
                .collect::<String>()
        };
        let (before, within, behind) = (part(0, from), part(from, to), part(to, line.len()));
        format!("{before}\x1b[{code}m{within}\x1b[0m{}", behind.trim_end())
    }

    fn left_out_before(&self, index: usize) -> Option<String> {
        let (_, count) = self.ladder.left_out.filter(|(at, _)| *at == index)?;
        let rows = if count == 1 { "row" } else { "rows" };
        Some(format!("{:>9} {count} {rows} left out", '⋮'))
    }
}

/// Writes a text into a line, as far as the line goes.
fn put(line: &mut [char], at: usize, text: &str) {
    for (place, letter) in line.iter_mut().skip(at).zip(text.chars()) {
        *place = letter;
    }
}

/// A text no longer than this, with a mark if something was cut off. Control characters become blanks.
fn fitting(text: &str, room: usize) -> String {
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    if text.chars().count() <= room {
        return text.chars().map(clean).collect();
    }
    let kept = text.chars().map(clean).take(room.saturating_sub(1));
    kept.chain((room > 0).then_some('…')).collect()
}

fn finished(line: &[char]) -> String {
    line.iter().collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCREEN: Screen = Screen {
        width: 80,
        colour: false,
    };

    fn packet(at_ns: u64, (end, to): (usize, usize), arrival: Arrival, text: &str) -> Event {
        Event {
            kind: EventKind::Packet { to, arrival },
            tone: Tone::Request,
            ..Event::local(at_ns, end, None, text.to_owned())
        }
    }

    fn ladder(ends: usize, events: Vec<Event>) -> Ladder {
        Ladder {
            ends: (1..=ends).map(|end| format!("10.0.0.{end}")).collect(),
            events,
            ..Ladder::default()
        }
    }

    #[test]
    fn two_ends_have_packets_between_them_and_notes_beside_them() {
        let mut posted = Event::local(0, 0, Some(3), "posts SEND 64 B".to_owned());
        posted.qp = Some(3);
        let mut again = packet(2_000, (0, 1), Arrival::Never, "SEND PSN 0x00002a 64 B");
        again.mark = Some("again, lost".to_owned());
        let shown = ladder(
            2,
            vec![
                posted,
                packet(1_500, (0, 1), Arrival::At(1_900), "SEND PSN 0x00002a 64 B"),
                again,
                packet(2_500, (1, 0), Arrival::At(3_000), "ACK PSN 0x00002a"),
                Event::local(3_100, 1, None, "takes 64 B".to_owned()),
            ],
        );
        let lines = render(&shown, SCREEN);
        let expected = [
            "       µs  10.0.0.1, QP 3                                               10.0.0.2",
            "           │                                                                   │",
            "      0.0  │ posts SEND 64 B                                                   │",
            "      1.5  ├── SEND PSN 0x00002a 64 B ────────────────────────────────────────▶│",
            "      2.0  ├── SEND PSN 0x00002a 64 B: again, lost ────────────────────✗       │",
            "      2.5  │◀────────────────────────────────────────────── ACK PSN 0x00002a ──┤",
            "      3.1  │                                                        takes 64 B │",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn no_line_is_wider_than_the_screen_and_every_arrow_shows() {
        let long = "x".repeat(300);
        for ends in 1..7 {
            for width in [40, 60, 80, 200] {
                let mut events = Vec::new();
                for end in 0..ends {
                    events.push(Event::local(0, end, Some(1), long.clone()));
                    for to in 0..ends {
                        for arrival in [Arrival::Unknown, Arrival::Never] {
                            events.push(packet(5, (end, to), arrival, &long));
                            events.push(packet(5, (end, to), arrival, "ACK"));
                        }
                    }
                }
                let shown = ladder(ends, events);
                for line in render(&shown, Screen { width, colour: false }) {
                    assert!(line.chars().count() <= width, "{ends} ends on {width}: {line}");
                }
                let coloured = rows(&shown, 0, Screen { width, colour: true });
                assert!(coloured.iter().all(|line| line.contains("\x1b[0m")));
            }
        }
    }

    #[test]
    fn what_is_left_out_has_a_line() {
        let mut shown = ladder(
            2,
            vec![
                Event::local(0, 0, None, "a".into()),
                Event::local(9, 0, None, "b".into()),
            ],
        );
        shown.left_out = Some((1, 213));
        let lines = render(&shown, SCREEN);
        assert_eq!(lines[3].trim(), "⋮ 213 rows left out");
        shown.left_out = None;
        assert_eq!(render(&shown, SCREEN).len(), lines.len() - 1);
    }

    #[test]
    fn text_from_outside_cannot_steer_the_terminal() {
        let shown = ladder(2, vec![Event::local(0, 0, None, "\x1b[2Jgone\n".into())]);
        assert!(
            render(&shown, SCREEN)
                .iter()
                .all(|line| !line.contains('\x1b') && !line.contains('\n'))
        );
    }
}
