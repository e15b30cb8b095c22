//! Selects the events of a ladder that are shown.

use crate::model::{Event, EventKind, Ladder, Tone};
use std::collections::HashSet;

/// More ends than this cannot be told apart beside each other.
const MAX_ENDS: usize = 6;

/// Which events are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only those of these queue pairs, at a certain end or at any, and what their peers did; all, if empty.
    pub queue_pairs: Vec<(Option<usize>, u32)>,
    /// Only those so many nanoseconds after the first event of all, or later.
    pub from_ns: Option<u64>,
    /// Only those so many nanoseconds after the first event of all, or earlier.
    pub to_ns: Option<u64>,
    /// At most so many.
    pub limit: Option<usize>,
    /// Which ones, if there are more.
    pub keep: Keep,
    /// Also those of control connections. Without it they are shown only if nothing else is there, or if their queue pair is chosen.
    pub with_control: bool,
}

/// Which events of too many are shown.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// The first and the last.
    #[default]
    BothEnds,
    /// The last.
    Last,
}

impl Selection {
    /// The ladder of what is wanted. Times still count from where they did.
    #[must_use]
    pub fn apply(&self, mut ladder: Ladder) -> Ladder {
        let start_ns = ladder.start_ns();
        ladder.start_ns = Some(start_ns);
        self.leave_out_control(&mut ladder);
        let peers = self.peers(&ladder.events);
        ladder.events.retain(|event| {
            let is_of_peer = event.kind == EventKind::Local
                && match event.qp {
                    Some(number) => peers.contains(&(event.end, number)),
                    // What happens to a whole end, happens to all that it has.
                    None => event.tone == Tone::Trouble && peers.iter().any(|(end, _)| *end == event.end),
                };
            self.is_in_time(event, start_ns) && (is_of_peer || self.is_chosen(event))
        });
        keep_busiest(&mut ladder);
        forget_idle_ends(&mut ladder);
        self.cut(&mut ladder);
        ladder
    }

    /// Whether an event is wanted, apart from the limit and from what peers did.
    #[must_use]
    pub fn wants(&self, event: &Event, start_ns: u64) -> bool {
        self.is_in_time(event, start_ns) && self.is_chosen(event) && (self.shows_control() || !event.control)
    }

    fn shows_control(&self) -> bool {
        self.with_control || !self.queue_pairs.is_empty()
    }

    fn leave_out_control(&self, ladder: &mut Ladder) {
        let control = ladder.events.iter().filter(|event| event.control).count();
        if self.shows_control() || control == 0 || control == ladder.events.len() {
            return;
        }
        ladder.events.retain(|event| !event.control);
        ladder.notes.push(match control {
            1 => "1 packet of the control connection is left out; --all shows it.".to_owned(),
            control => format!("{control} packets of the control connection are left out; --all shows them."),
        });
    }

    /// The queue pairs, and their ends, that the chosen ones exchanged packets with.
    fn peers(&self, events: &[Event]) -> HashSet<(usize, u32)> {
        let mut peers = HashSet::new();
        let exchanged = events.iter().filter(|event| event.kind != EventKind::Local);
        for event in exchanged.filter(|event| !self.queue_pairs.is_empty() && self.is_chosen(event)) {
            peers.extend(event.qp.map(|number| (event.end, number)));
            peers.extend(event.peer().zip(event.peer_qp));
        }
        peers
    }

    fn is_chosen(&self, event: &Event) -> bool {
        self.queue_pairs.is_empty() || self.queue_pairs.iter().any(|wanted| concerns(event, *wanted))
    }

    fn is_in_time(&self, event: &Event, start_ns: u64) -> bool {
        let since_ns = event.at_ns.saturating_sub(start_ns);
        self.from_ns.is_none_or(|from_ns| since_ns >= from_ns)
            && self.to_ns.is_none_or(|to_ns| since_ns <= to_ns)
    }

    fn cut(&self, ladder: &mut Ladder) {
        let count = ladder.events.len();
        let Some(limit) = self.limit.filter(|limit| *limit < count) else {
            return;
        };
        let head = match self.keep {
            Keep::BothEnds => limit.div_ceil(2),
            Keep::Last => 0,
        };
        ladder.events.drain(head..count - (limit - head));
        ladder.left_out = Some((head, count - limit));
    }
}

fn concerns(event: &Event, (end, number): (Option<usize>, u32)) -> bool {
    let is_at = |place: Option<usize>| end.is_none() || end == place;
    (event.qp == Some(number) && is_at(Some(event.end)))
        || (event.peer_qp == Some(number) && is_at(event.peer()))
}

/// Leaves out the events of the ends that have the fewest, if there are too many ends.
fn keep_busiest(ladder: &mut Ladder) {
    let mut events_of = vec![0_usize; ladder.ends.len()];
    for event in &ladder.events {
        events_of[event.end] += 1;
        if let Some(peer) = event.peer() {
            events_of[peer] += 1;
        }
    }
    let mut order: Vec<usize> = (0..events_of.len()).filter(|end| events_of[*end] > 0).collect();
    if order.len() <= MAX_ENDS {
        return;
    }
    order.sort_by_key(|end| std::cmp::Reverse(events_of[*end]));
    let kept = &order[..MAX_ENDS];
    let before = ladder.events.len();
    let is_kept =
        |event: &Event| kept.contains(&event.end) && event.peer().is_none_or(|peer| kept.contains(&peer));
    ladder.events.retain(is_kept);
    ladder.notes.push(format!(
        "{} of {} ends have the most events and are shown; {} events of the others are not. Choose a queue pair.",
        MAX_ENDS,
        order.len(),
        before - ladder.events.len()
    ));
}

/// Ends without events take no place.
fn forget_idle_ends(ladder: &mut Ladder) {
    let mut new_number = vec![None; ladder.ends.len()];
    for event in &ladder.events {
        for end in [Some(event.end), event.peer()].into_iter().flatten() {
            new_number[end] = Some(0);
        }
    }
    let mut kept = Vec::new();
    for (end, number) in new_number.iter_mut().enumerate() {
        if number.is_some() {
            *number = Some(kept.len());
            kept.push(std::mem::take(&mut ladder.ends[end]));
        }
    }
    ladder.ends = kept;
    let renumber = |end: &mut usize| *end = new_number[*end].unwrap_or_default();
    for event in &mut ladder.events {
        renumber(&mut event.end);
        if let EventKind::Packet { to, .. } = &mut event.kind {
            renumber(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Arrival;

    fn packet(at_ns: u64, end: usize, to: usize, numbers: (u32, u32)) -> Event {
        Event {
            kind: EventKind::Packet {
                to,
                arrival: Arrival::Unknown,
            },
            tone: Tone::Request,
            peer_qp: Some(numbers.1),
            ..Event::local(at_ns, end, Some(numbers.0), String::new())
        }
    }

    fn ladder(events: Vec<Event>, ends: usize) -> Ladder {
        Ladder {
            ends: (0..ends).map(|end| end.to_string()).collect(),
            events,
            ..Ladder::default()
        }
    }

    #[test]
    fn a_queue_pair_is_chosen_with_its_packets_in_both_directions() {
        let events = vec![
            packet(10, 0, 1, (5, 6)),
            packet(11, 1, 0, (6, 5)),
            packet(12, 0, 2, (7, 5)),
            packet(13, 1, 2, (8, 9)),
        ];
        let all_fives = Selection {
            queue_pairs: vec![(None, 5)],
            ..Selection::default()
        };
        let chosen = all_fives.apply(ladder(events.clone(), 3));
        assert_eq!(chosen.events.len(), 3);
        let with_notes = [
            events.clone(),
            vec![
                Event::local(1, 1, Some(6), "peer".to_owned()),
                Event::local(1, 2, Some(9), "stranger".to_owned()),
                Event {
                    tone: Tone::Trouble,
                    ..Event::local(2, 1, None, "the NIC dies".to_owned())
                },
                Event::local(3, 1, None, "of nobody".to_owned()),
            ],
        ];
        let chosen = all_fives.apply(ladder(with_notes.concat(), 3));
        let notes = chosen
            .events
            .iter()
            .filter(|event| event.kind == EventKind::Local);
        assert_eq!(
            notes.map(|event| &event.text[..]).collect::<Vec<_>>(),
            ["peer", "the NIC dies"]
        );
        let five_of_first = Selection {
            queue_pairs: vec![(Some(0), 5)],
            ..Selection::default()
        };
        let chosen = five_of_first.apply(ladder(events, 3));
        assert_eq!(
            (chosen.events.len(), chosen.ends),
            (2, vec!["0".to_owned(), "1".to_owned()])
        );
    }

    #[test]
    fn control_connections_are_left_out_unless_they_are_all_or_asked_for() {
        let control = |at_ns, numbers| Event {
            control: true,
            ..packet(at_ns, 0, 1, numbers)
        };
        let events = vec![control(10, (1, 2)), packet(11, 0, 1, (5, 6)), control(12, (1, 2))];
        let shown = Selection::default().apply(ladder(events.clone(), 2));
        assert_eq!(shown.events.len(), 1);
        assert!(
            shown.notes[0].starts_with("2 packets of the control connection"),
            "{:?}",
            shown.notes
        );
        assert_eq!(shown.start_ns(), 10, "times still count from the first packet");
        assert!(!Selection::default().wants(&events[0], 0) && Selection::default().wants(&events[1], 0));
        for (selection, count) in [
            (
                Selection {
                    with_control: true,
                    ..Selection::default()
                },
                3,
            ),
            (
                Selection {
                    queue_pairs: vec![(None, 1)],
                    ..Selection::default()
                },
                2,
            ),
        ] {
            let shown = selection.apply(ladder(events.clone(), 2));
            assert_eq!((shown.events.len(), shown.notes.len()), (count, 0));
            assert!(selection.wants(&events[0], 0));
        }
        let alone = Selection::default().apply(ladder(vec![control(10, (1, 2))], 2));
        assert_eq!((alone.events.len(), alone.notes.len()), (1, 0));
    }

    #[test]
    fn times_count_from_the_first_event() {
        let events = (0..10).map(|index| packet(100 + index, 0, 1, (1, 2))).collect();
        let middle = Selection {
            from_ns: Some(3),
            to_ns: Some(5),
            ..Selection::default()
        };
        let times: Vec<u64> = middle
            .apply(ladder(events, 2))
            .events
            .iter()
            .map(|event| event.at_ns)
            .collect();
        assert_eq!(times, [103, 104, 105]);
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let events: Vec<Event> = (0..10).map(|index| packet(index, 0, 1, (1, 2))).collect();
        let times = |limit, keep| {
            let selection = Selection {
                limit: Some(limit),
                keep,
                ..Selection::default()
            };
            let shown = selection.apply(ladder(events.clone(), 2));
            let times: Vec<u64> = shown.events.iter().map(|event| event.at_ns).collect();
            (times, shown.left_out)
        };
        assert_eq!(times(5, Keep::BothEnds), (vec![0, 1, 2, 8, 9], Some((3, 5))));
        assert_eq!(times(3, Keep::Last), (vec![7, 8, 9], Some((0, 7))));
        assert_eq!(times(10, Keep::Last).1, None);
    }

    #[test]
    fn ends_without_events_take_no_place_and_too_many_are_left_out() {
        let chosen = Selection::default().apply(ladder(vec![packet(0, 3, 1, (1, 2))], 5));
        assert_eq!(chosen.ends, ["1", "3"]);
        assert_eq!((chosen.events[0].end, chosen.events[0].peer()), (1, Some(0)));

        let mut events: Vec<Event> = (0..8).map(|end| packet(0, end, 0, (1, 2))).collect();
        events.extend((0..5).map(|end| packet(1, end, 0, (1, 2))));
        let chosen = Selection::default().apply(ladder(events, 8));
        assert_eq!(chosen.ends.len(), MAX_ENDS);
        assert!(chosen.notes[0].contains("2 events"), "{:?}", chosen.notes);
    }
}
