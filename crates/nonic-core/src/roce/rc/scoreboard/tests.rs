//! Tests of the scoreboard: scripted, and against a model that has an entry for each packet.

use super::*;
use nonic_wire::Psn;
use proptest::collection::vec;
use proptest::prelude::*;

const WINDOW: Duration = Duration::from_nanos(100);
const PATIENCE: Option<Duration> = Some(Duration::from_nanos(300));
const TOO_SOON: Duration = Duration::from_nanos(20);

/// Close to where 24 bits end.
fn at(index: u32) -> ExtendedPsn {
    ExtendedPsn::starting_at(Psn::new(0xff_fff0)) + index
}

fn ns(ns: u64) -> Time {
    Time::from_ns(ns)
}

fn board() -> Scoreboard {
    Scoreboard::new(at(0))
}

impl Scoreboard {
    /// What is missing, by index, and in which state.
    fn listed(&self) -> Vec<(u32, u32, State)> {
        let index = |psn: ExtendedPsn| (psn - at(0)) as u32;
        self.missing
            .iter()
            .map(|range| (index(range.first), index(range.end), range.state))
            .collect()
    }

    fn arrive(&mut self, first: u32, end: u32, now: u64) -> Arrived {
        self.arrived(at(first), at(end), ns(now), TOO_SOON)
    }

    /// So many of the first lost packets are sent again.
    fn send_again(&mut self, packets: u32, now: Time, mark: ExtendedPsn) {
        let (first, _) = self.lost().next().expect("something is lost");
        self.sent_again(first, packets, now, mark);
    }

    fn lost_indices(&self) -> Option<(u64, u64)> {
        self.lost()
            .next()
            .map(|(first, end)| (first - at(0), end - at(0)))
    }
}

#[test]
fn what_was_overtaken_is_suspect_for_a_while_and_then_lost() {
    let mut board = board();
    assert_eq!(board.arrive(3, 5, 10).packets, 2);
    assert_eq!(board.listed(), [(0, 3, State::Suspected)]);
    assert_eq!(board.next_due(WINDOW, PATIENCE), Some(ns(110)));
    assert_eq!(board.find_lost(ns(109), WINDOW, PATIENCE), 0);
    assert_eq!(board.find_lost(ns(110), WINDOW, PATIENCE), 3);
    assert_eq!(board.lost_indices(), Some((0, 3)));
    assert_eq!(board.find_lost(ns(500), WINDOW, PATIENCE), 0, "it is found once");
}

#[test]
fn a_range_is_cut_where_a_part_of_it_arrives() {
    let mut board = board();
    board.cover(at(10));
    board.arrive(4, 6, 10);
    assert_eq!(
        board.listed(),
        [(0, 4, State::Suspected), (6, 10, State::InFlight)]
    );
    board.arrive(1, 2, 20);
    let expected = [
        (0, 1, State::Suspected),
        (2, 4, State::Suspected),
        (6, 10, State::InFlight),
    ];
    assert_eq!(board.listed(), expected);
    assert_eq!(board.arrive(0, 10, 30).packets, 7);
    assert!(board.is_complete());
}

#[test]
fn the_end_of_a_message_that_arrived_says_nothing_of_what_is_behind_it() {
    let mut board = board();
    board.cover(at(8));
    board.overtaken(at(4), ns(10));
    assert_eq!(
        board.listed(),
        [(0, 4, State::Suspected), (4, 8, State::InFlight)]
    );
}

#[test]
fn what_is_sent_again_is_overtaken_only_by_what_was_sent_later() {
    let mut board = board();
    board.arrive(1, 4, 10);
    board.find_lost(ns(110), WINDOW, PATIENCE);
    // Six packets have been sent so far.
    board.send_again(1, ns(120), at(6));
    assert!(!board.has_lost());
    board.arrive(4, 6, 130);
    assert_eq!(board.listed(), [(0, 1, State::InFlight)]);
    board.arrive(6, 7, 140);
    assert_eq!(board.listed(), [(0, 1, State::Suspected)]);
}

#[test]
fn what_is_sent_again_is_lost_again_for_want_of_patience() {
    let mut board = board();
    board.arrive(1, 2, 10);
    board.find_lost(ns(110), WINDOW, PATIENCE);
    board.send_again(1, ns(120), at(2));
    assert_eq!(board.next_due(WINDOW, PATIENCE), Some(ns(420)));
    assert_eq!(board.next_due(WINDOW, None), None);
    assert_eq!(board.find_lost(ns(420), WINDOW, None), 0);
    assert_eq!(board.find_lost(ns(420), WINDOW, PATIENCE), 1);
}

#[test]
fn packets_sent_again_one_by_one_make_one_range() {
    let mut board = board();
    board.arrive(5, 6, 10);
    board.find_lost(ns(110), WINDOW, PATIENCE);
    for left in (0..5).rev() {
        board.send_again(1, ns(120), at(6));
        assert_eq!(board.has_lost(), left > 0);
    }
    assert_eq!(board.listed(), [(0, 5, State::InFlight)]);
}

#[test]
fn a_late_packet_is_told_from_a_lost_one() {
    let mut board = board();
    board.arrive(2, 3, 10);
    let late = board.arrive(1, 2, 50);
    assert_eq!((late.late.as_nanos(), late.repaired), (40, false));
    board.find_lost(ns(110), WINDOW, PATIENCE);
    board.send_again(1, ns(120), at(3));
    // An answer right after the repetition is to the first copy.
    let too_soon = board.done_before(at(1), ns(120 + 19), TOO_SOON);
    assert_eq!((too_soon.late.as_nanos(), too_soon.repaired), (129, false));
    let mut board = self::board();
    board.arrive(1, 2, 10);
    board.find_lost(ns(110), WINDOW, PATIENCE);
    board.send_again(1, ns(120), at(2));
    let repaired = board.done_before(at(1), ns(140), TOO_SOON);
    assert_eq!((repaired.late.as_nanos(), repaired.repaired), (0, true));
}

#[test]
fn a_request_that_is_held_is_not_missed_before_it_is_executed() {
    let mut board = board();
    board.cover(at(8));
    board.requested(at(2), at(6));
    board.overtaken(at(8), ns(10));
    let expected = [
        (0, 2, State::Suspected),
        (2, 6, State::Requested),
        (6, 8, State::Suspected),
    ];
    assert_eq!(board.listed(), expected);
    board.executed(at(6));
    assert_eq!(board.listed()[1], (2, 6, State::InFlight));
}

#[test]
fn what_was_held_may_be_missing_after_all() {
    let mut board = board();
    board.cover(at(10));
    board.arrive(1, 3, 10);
    board.arrive(5, 7, 10);
    board.distrust(at(2));
    let expected = [
        (0, 1, State::Suspected),
        (2, 3, State::InFlight),
        (3, 5, State::Suspected),
        (5, 7, State::InFlight),
        (7, 10, State::InFlight),
    ];
    assert_eq!(board.listed(), expected);
    assert_eq!(board.lose_all(at(10), ns(20)), 9);
}

#[test]
fn going_back_forgets_what_is_behind() {
    let mut board = board();
    board.arrive(8, 9, 10);
    board.find_lost(ns(110), WINDOW, PATIENCE);
    board.forget_from(at(5));
    assert_eq!(board.listed(), [(0, 5, State::Lost)]);
    assert_eq!((board.end(), board.lost), (at(5), 5));
    board.forget_from(at(0));
    assert!(board.is_complete() && !board.has_lost());
}

#[test]
fn lost_packets_are_not_under_way_and_repetitions_are() {
    let mut board = board();
    board.arrive(4, 6, 10);
    board.cover(at(8));
    assert_eq!(board.under_way(at(0)), 6);
    assert_eq!(board.under_way(at(3)), 3, "what was written off does not count");
    board.find_lost(ns(110), WINDOW, PATIENCE);
    assert_eq!(board.under_way(at(0)), 2);
    board.send_again(2, ns(120), at(8));
    assert_eq!(board.under_way(at(0)), 4);
    assert_eq!(board.under_way(at(7)), 3, "unless it was sent again");
}

#[test]
fn there_are_no_more_ranges_than_the_bound() {
    let mut board = board();
    let most = u32::try_from(MAX_RANGES).expect("a small number");
    for index in 0..2 * most {
        board.arrive(2 * index + 1, 2 * index + 2, 10);
    }
    assert_eq!(board.missing.len(), MAX_RANGES);
    // They all go when the peer has executed everything.
    let all = board.done_before(at(4 * most), ns(20), TOO_SOON);
    assert_eq!(all.packets, u64::from(4 * most - (most - 1)));
    assert!(board.is_complete());
}

/// How many packets the model knows.
const PACKETS: u32 = 48;

#[derive(Copy, Clone, Debug)]
enum Act {
    Cover(u32),
    Arrive(u32, u32),
    Done(u32),
    Overtake(u32),
    Request(u32, u32),
    Execute(u32),
    FindLost(bool),
    LoseAll(u32),
    Lose(u32, u32),
    SendAgain(u32),
    Forget(u32),
    Distrust(u32),
}

fn act() -> impl Strategy<Value = Act> {
    let range = || (0..PACKETS, 1..8u32).prop_map(|(first, count)| (first, (first + count).min(PACKETS)));
    prop_oneof![
        3 => (0..=PACKETS).prop_map(Act::Cover),
        12 => range().prop_map(|(first, end)| Act::Arrive(first, end)),
        2 => (0..PACKETS / 2).prop_map(Act::Done),
        3 => (0..=PACKETS).prop_map(Act::Overtake),
        3 => range().prop_map(|(first, end)| Act::Request(first, end)),
        2 => (0..=PACKETS).prop_map(Act::Execute),
        6 => any::<bool>().prop_map(Act::FindLost),
        1 => (0..=PACKETS).prop_map(Act::LoseAll),
        2 => range().prop_map(|(first, end)| Act::Lose(first, end)),
        8 => (1..6u32).prop_map(Act::SendAgain),
        1 => (0..=PACKETS).prop_map(Act::Forget),
        1 => (0..=PACKETS).prop_map(Act::Distrust),
    ]
}

/// One packet. What it was suspected for means something if it was.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Fate {
    Arrived,
    Missing(State, Time, Option<(Time, ExtendedPsn)>),
}

/// The same with an entry for each packet.
#[derive(Default)]
struct Naive {
    una: u32,
    packets: Vec<Fate>,
}

impl Naive {
    fn cover(&mut self, to: u32) {
        while self.packets.len() < to as usize {
            self.packets
                .push(Fate::Missing(State::InFlight, Time::ZERO, None));
        }
    }

    fn missing(&mut self, first: u32, end: u32) -> impl Iterator<Item = &mut Fate> {
        let packets = self.packets.iter_mut().take(end as usize).skip(first as usize);
        packets.filter(|fate| matches!(fate, Fate::Missing(..)))
    }

    fn arrive(&mut self, first: u32, end: u32, now: Time) -> Arrived {
        let mut news = Arrived::default();
        for fate in self.missing(first, end) {
            let Fate::Missing(state, since, again) = *fate else {
                continue;
            };
            news.packets += 1;
            let repaired = again.is_some_and(|(sent_at, _)| now.since(sent_at) >= TOO_SOON);
            news.repaired |= repaired;
            let suspect = matches!(state, State::Suspected | State::Lost);
            if !repaired && (again.is_some() || suspect) {
                news.late = news.late.max(now.since(since));
            }
            *fate = Fate::Arrived;
        }
        news
    }

    fn overtake(&mut self, end: u32, now: Time) {
        for fate in self.missing(0, end) {
            match *fate {
                Fate::Missing(State::InFlight, _, again) if again.is_none_or(|(_, mark)| mark < at(end)) => {
                    *fate = Fate::Missing(State::Suspected, now, again);
                }
                _ => {}
            }
        }
    }

    fn lose(&mut self, first: u32, end: u32, now: Time) -> u64 {
        let mut found = 0;
        for fate in self.missing(first, end) {
            if let Fate::Missing(state, since, again) = *fate {
                if state != State::Lost {
                    let since = if state == State::Suspected { since } else { now };
                    *fate = Fate::Missing(State::Lost, since, again);
                    found += 1;
                }
            }
        }
        found
    }

    fn find_lost(&mut self, now: Time, patience: Option<Duration>) -> u64 {
        let mut found = 0;
        for index in 0..self.packets.len() as u32 {
            let due = match self.packets[index as usize] {
                Fate::Missing(State::Suspected, since, _) => Some(since + WINDOW),
                Fate::Missing(State::InFlight, _, Some((sent_at, _))) => {
                    patience.map(|patience| sent_at + patience)
                }
                _ => None,
            };
            if due.is_some_and(|due| due <= now) {
                found += self.lose(index, index + 1, now);
            }
        }
        found
    }

    fn request(&mut self, first: u32, end: u32) {
        self.cover(end);
        for fate in self.missing(first, end) {
            if let Fate::Missing(state, ..) = fate {
                *state = State::Requested;
            }
        }
    }

    /// The nearest place from `to` on that no range of requested packets reaches across.
    fn executable(&self, to: u32) -> u32 {
        let requested = |index: u32| {
            matches!(
                self.packets.get(index as usize),
                Some(Fate::Missing(State::Requested, ..))
            )
        };
        (to..=PACKETS)
            .find(|index| *index == 0 || !(requested(index - 1) && requested(*index)))
            .unwrap_or(PACKETS)
    }

    fn execute(&mut self, to: u32) {
        for fate in self.missing(0, to) {
            if let Fate::Missing(state @ State::Requested, ..) = fate {
                *state = State::InFlight;
            }
        }
    }

    fn send_again(&mut self, first: u32, end: u32, now: Time, mark: ExtendedPsn) {
        for fate in self.missing(first, end) {
            if let Fate::Missing(state, _, again) = fate {
                assert_eq!(*state, State::Lost);
                (*state, *again) = (State::InFlight, Some((now, mark)));
            }
        }
    }

    fn distrust(&mut self, from: u32) {
        for fate in self.packets.iter_mut().skip(from as usize) {
            if *fate == Fate::Arrived {
                *fate = Fate::Missing(State::InFlight, Time::ZERO, None);
            }
        }
    }

    fn count(&self, wanted: impl Fn(u32, State, bool) -> bool) -> u64 {
        let counts = |(index, fate): &(usize, &Fate)| match fate {
            Fate::Missing(state, _, again) => wanted(*index as u32, *state, again.is_some()),
            Fate::Arrived => false,
        };
        self.packets.iter().enumerate().filter(counts).count() as u64
    }
}

/// Does the same to both; what it tells must be the same too.
fn apply(act: Act, board: &mut Scoreboard, naive: &mut Naive, now: Time) {
    // As its user does: nothing is said of what is done with.
    let una = naive.una;
    let from = |index: u32| index.max(una);
    match act {
        Act::Cover(to) => {
            board.cover(at(to));
            naive.cover(to);
        }
        Act::Arrive(first, end) if from(first) < end => {
            naive.cover(end);
            let news = naive.arrive(from(first), end, now);
            if news.packets > 0 {
                naive.overtake(end, now);
            }
            assert_eq!(board.arrived(at(from(first)), at(end), now, TOO_SOON), news);
        }
        Act::Done(to) => {
            let news = naive.arrive(0, from(to), now);
            naive.cover(from(to));
            naive.arrive(0, from(to), now);
            naive.una = from(to);
            assert_eq!(board.done_before(at(from(to)), now, TOO_SOON), news);
        }
        Act::Overtake(end) => {
            naive.overtake(end, now);
            board.overtaken(at(end), now);
        }
        Act::Request(first, end) if from(first) < end => {
            naive.request(from(first), end);
            board.cover(at(end));
            board.requested(at(from(first)), at(end));
        }
        Act::Execute(to) => {
            // Requests are executed as a whole.
            let to = naive.executable(to);
            naive.execute(to);
            board.executed(at(to));
        }
        Act::FindLost(_) | Act::LoseAll(_) | Act::Lose(..) | Act::SendAgain(_) => {
            apply_loss(act, board, naive, now);
        }
        Act::Forget(index) => {
            naive.packets.truncate(from(index) as usize);
            board.forget_from(at(from(index)));
        }
        Act::Distrust(index) => {
            naive.distrust(from(index));
            board.distrust(at(from(index)));
        }
        Act::Arrive(..) | Act::Request(..) => {}
    }
}

/// What is found, taken for or sent as lost.
fn apply_loss(act: Act, board: &mut Scoreboard, naive: &mut Naive, now: Time) {
    let una = naive.una;
    let from = |index: u32| index.max(una);
    match act {
        Act::FindLost(patient) => {
            let patience = PATIENCE.filter(|_| !patient);
            assert_eq!(
                board.find_lost(now, WINDOW, patience),
                naive.find_lost(now, patience)
            );
        }
        Act::LoseAll(to) => {
            naive.cover(to);
            assert_eq!(board.lose_all(at(to), now), naive.lose(0, PACKETS, now));
        }
        Act::Lose(first, end) if from(first) < end => {
            naive.cover(end);
            naive.lose(from(first), end, now);
            board.lose(at(from(first)), at(end), now);
        }
        Act::SendAgain(count) => {
            if let Some((first, end)) = board.lost_indices() {
                let mark = at(naive.packets.len() as u32);
                let end = end.min(first + u64::from(count));
                naive.send_again(first as u32, end as u32, now, mark);
                board.send_again(count, now, mark);
            }
        }
        _ => {}
    }
}

/// Both say the same.
fn compare(board: &Scoreboard, naive: &Naive) {
    assert_eq!(board.end(), at(naive.packets.len() as u32));
    let mut listed = vec![Fate::Arrived; naive.packets.len()];
    let mut before = at(0);
    for range in &board.missing {
        assert!(
            before <= range.first && range.first < range.end,
            "{:?}",
            board.missing
        );
        before = range.end;
        let (first, end) = ((range.first - at(0)) as usize, (range.end - at(0)) as usize);
        listed[first..end].fill(Fate::Missing(range.state, range.suspected_at, range.again));
    }
    for (listed, expected) in listed.iter().zip(&naive.packets) {
        match (listed, expected) {
            (Fate::Missing(State::InFlight | State::Requested, _, None), Fate::Missing(state, _, None)) => {
                assert!(matches!(listed, Fate::Missing(listed, ..) if listed == state));
            }
            _ => assert_eq!(listed, expected),
        }
    }
    let lost = naive.count(|_, state, _| state == State::Lost);
    assert_eq!((board.lost, board.has_lost()), (lost, lost > 0));
    assert_eq!(board.lost().next().is_some(), lost > 0);
    assert_eq!(board.is_complete(), naive.count(|_, _, _| true) == 0);
    for written_off in [0, 7, 20] {
        let counts =
            |index, state, again| state != State::Lost && (again || index >= naive.una.max(written_off));
        assert_eq!(
            board.under_way(at(naive.una.max(written_off))),
            naive.count(counts)
        );
    }
}

proptest! {
    #[test]
    fn it_does_what_a_list_of_packets_would_do(acts in vec((act(), 0..60u64), 0..120)) {
        let (mut board, mut naive, mut now) = (self::board(), Naive::default(), 1_000);
        for (act, passes) in acts {
            now += passes;
            apply(act, &mut board, &mut naive, ns(now));
            compare(&board, &naive);
            let due = board.next_due(WINDOW, PATIENCE);
            let due_now = due.is_some_and(|due| due <= ns(now));
            let mut later = Naive { una: naive.una, packets: naive.packets.clone() };
            prop_assert_eq!(due_now, later.find_lost(ns(now), PATIENCE) > 0);
        }
    }
}
