//! The scoreboard of packets under way: which have not arrived, and since when that looks like a loss.
//!
//! Read [`Scoreboard`] and [`Missing`]. Between the oldest packet that is not done with and `end`, the scoreboard lists the ranges that
//! are *missing*; all others have arrived: the peer holds or has executed them, or their answer has come. Nothing is known of packets
//! from `end` on. A missing range is
//! - in flight until a packet that was sent after it arrives,
//! - then suspected, for as long as packets may overtake each other,
//! - then lost, until it is sent again: in flight once more.
//!
//! The order in which packets were sent is known from their numbers. A range that was sent once is overtaken by any packet with a higher
//! number. A range that was sent again is overtaken by packets that were sent for the first time later than that: those from `mark` on.
//! No time of sending is kept for undisturbed packets.
//!
//! It knows nothing of requests. It lives while something is amiss, so its operations may look at every range.

use crate::roce::extended_psn::ExtendedPsn;
use crate::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// With so many ranges, news of what has arrived out of order is ignored: it costs repetitions.
const MAX_RANGES: usize = 4096;

/// What has arrived out of order, and what has not.
#[derive(Debug)]
pub(super) struct Scoreboard {
    /// In order, and disjoint.
    missing: VecDeque<Missing>,
    end: ExtendedPsn,
    /// Packets that are lost and not sent again.
    lost: u64,
}

/// Packets that have not arrived, as far as is known.
#[derive(Copy, Clone, Debug)]
struct Missing {
    first: ExtendedPsn,
    end: ExtendedPsn,
    state: State,
    /// Since when it looks lost; meaningless before it does.
    suspected_at: Time,
    /// If it was sent again: when, and how far the sequence had come.
    again: Option<(Time, ExtendedPsn)>,
    /// Whether it was written off since, and does not count in the window.
    written_off: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    InFlight,
    /// The peer holds the request and will answer when it has executed what is before it.
    Requested,
    Suspected,
    Lost,
}

/// What the arrival of packets tells.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Arrived {
    /// Packets that were missing.
    pub(super) packets: u64,
    /// The longest that one of them was late for which was not lost.
    pub(super) late: Duration,
    /// Whether one of them had to be sent again.
    pub(super) repaired: bool,
}

impl Scoreboard {
    /// Nothing is known of packets from `una` on.
    pub(super) fn new(una: ExtendedPsn) -> Self {
        Scoreboard {
            missing: VecDeque::new(),
            end: una,
            lost: 0,
        }
    }

    /// From here on, nothing is known.
    pub(super) fn end(&self) -> ExtendedPsn {
        self.end
    }

    /// Lists everything before `to` that it knew nothing of as in flight.
    pub(super) fn cover(&mut self, to: ExtendedPsn) {
        if to <= self.end {
            return;
        }
        let first = self.end;
        self.end = to;
        match self.missing.back_mut() {
            Some(last) if last.end == first && last.is_fresh() => last.end = to,
            _ => self.missing.push_back(Missing::in_flight(first, to)),
        }
    }

    /// Packets have arrived. One that comes less than `too_soon` after it was sent again is the first copy, which was only late.
    pub(super) fn arrived(
        &mut self,
        first: ExtendedPsn,
        end: ExtendedPsn,
        now: Time,
        too_soon: Duration,
    ) -> Arrived {
        self.cover(end);
        let mut news = Arrived::default();
        if self.missing.len() >= MAX_RANGES {
            return news;
        }
        let (from, to) = self.cut_out(first, end);
        for range in self.missing.drain(from..to) {
            news.note(&range, range.packets(), now, too_soon);
            if range.state == State::Lost {
                self.lost -= range.packets();
            }
        }
        if news.packets > 0 {
            self.overtaken(end, now);
        }
        news
    }

    /// Makes ranges end at both borders; the indices of those between.
    fn cut_out(&mut self, first: ExtendedPsn, end: ExtendedPsn) -> (usize, usize) {
        (self.cut_at(first), self.cut_at(end))
    }

    /// Makes a range that reaches across `border` into two; the index of the first range behind it.
    fn cut_at(&mut self, border: ExtendedPsn) -> usize {
        let at = self.missing.partition_point(|range| range.end <= border);
        match self.missing.get(at).copied() {
            Some(range) if range.first < border => {
                self.missing[at].end = border;
                let behind = Missing {
                    first: border,
                    ..range
                };
                self.missing.insert(at + 1, behind);
                at + 1
            }
            _ => at,
        }
    }

    /// Whatever is before `una` is done with.
    pub(super) fn done_before(&mut self, una: ExtendedPsn, now: Time, too_soon: Duration) -> Arrived {
        let mut news = Arrived::default();
        while let Some(range) = self.missing.front_mut() {
            if range.first >= una {
                break;
            }
            let to = range.end.min(una);
            let packets = to - range.first;
            if range.state == State::Lost {
                self.lost -= packets;
            }
            news.note(range, packets, now, too_soon);
            if to < range.end {
                range.first = to;
                break;
            }
            self.missing.pop_front();
        }
        self.end = self.end.max(una);
        news
    }

    /// A packet right before `end` has arrived or was answered: those that were sent before it are suspect.
    pub(super) fn overtaken(&mut self, end: ExtendedPsn, now: Time) {
        let before = self.cut_at(end);
        for range in self.missing.range_mut(..before) {
            let overtaken = range.again.is_none_or(|(_, mark)| mark < end);
            if overtaken && range.state == State::InFlight {
                (range.state, range.suspected_at) = (State::Suspected, now);
            }
        }
    }

    /// The peer holds the request whose answers are these: nothing of it is lost yet.
    pub(super) fn requested(&mut self, first: ExtendedPsn, end: ExtendedPsn) {
        let (from, to) = self.cut_out(first, end);
        for range in self.missing.range_mut(from..to) {
            if range.state == State::Lost {
                self.lost -= range.packets();
            }
            range.state = State::Requested;
        }
    }

    /// The peer has executed what is before `executed`: answers to requests that it held are in flight.
    pub(super) fn executed(&mut self, executed: ExtendedPsn) {
        for range in &mut self.missing {
            if range.first >= executed {
                break;
            }
            if range.state == State::Requested {
                range.state = State::InFlight;
            }
        }
    }

    /// Counts as lost what has been suspect for `window`, and what was sent again longer than `patience` ago: so many packets
    /// that did not before.
    pub(super) fn find_lost(&mut self, now: Time, window: Duration, patience: Option<Duration>) -> u64 {
        let mut found = 0;
        for range in &mut self.missing {
            if range.due_at(window, patience).is_some_and(|at| at <= now) {
                found += range.lose(now);
            }
        }
        self.lost += found;
        found
    }

    /// When [`Scoreboard::find_lost`] may find something, if nothing arrives before.
    pub(super) fn next_due(&self, window: Duration, patience: Option<Duration>) -> Option<Time> {
        self.missing
            .iter()
            .filter_map(|range| range.due_at(window, patience))
            .min()
    }

    /// Counts everything before `to` as lost that has not arrived: so many packets that did not before.
    pub(super) fn lose_all(&mut self, to: ExtendedPsn, now: Time) -> u64 {
        self.cover(to);
        let found = self.missing.iter_mut().map(|range| range.lose(now)).sum();
        self.lost += found;
        found
    }

    /// Counts these as lost, if they have not arrived: they are sent again.
    pub(super) fn lose(&mut self, first: ExtendedPsn, end: ExtendedPsn, now: Time) {
        self.cover(end);
        let (from, to) = self.cut_out(first, end);
        for range in self.missing.range_mut(from..to) {
            self.lost += range.lose(now);
        }
    }

    /// The peer may not hold any more what it held from `from` on: all of it is in flight again.
    pub(super) fn distrust(&mut self, from: ExtendedPsn) {
        let mut at = from;
        let mut missing = VecDeque::with_capacity(self.missing.len() + 1);
        for range in self.missing.drain(..) {
            if range.first > at {
                missing.push_back(Missing::in_flight(at, range.first));
            }
            at = at.max(range.end);
            missing.push_back(range);
        }
        if at < self.end {
            missing.push_back(Missing::in_flight(at, self.end));
        }
        self.missing = missing;
    }

    /// Whether something is to be sent again.
    pub(super) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// The lost packets, range by range.
    pub(super) fn lost(&self) -> impl Iterator<Item = (ExtendedPsn, ExtendedPsn)> {
        self.missing
            .iter()
            .filter(|range| range.state == State::Lost)
            .map(|range| (range.first, range.end))
    }

    /// Whether any of these packets has not arrived, as far as is known.
    pub(super) fn misses_any(&self, first: ExtendedPsn, end: ExtendedPsn) -> bool {
        let at = self.missing.partition_point(|range| range.end <= first);
        first < end && self.missing.get(at).is_some_and(|range| range.first < end)
    }

    /// So many packets from the beginning of a lost range on are sent again, when everything before `mark` has been sent once.
    pub(super) fn sent_again(&mut self, first: ExtendedPsn, packets: u32, now: Time, mark: ExtendedPsn) {
        let begins = |range: &Missing| range.first == first && range.state == State::Lost;
        let Some(at) = self.missing.iter().position(begins) else {
            return;
        };
        let range = self.missing[at];
        let end = (first + packets).min(range.end);
        self.lost -= end - range.first;
        let again = Some((now, mark));
        let joins = at
            .checked_sub(1)
            .map(|before| &mut self.missing[before])
            .filter(|before| {
                before.end == range.first
                    && before.state == State::InFlight
                    && before.again == again
                    && !before.written_off
                    && before.suspected_at == range.suspected_at
            });
        match (joins, end == range.end) {
            (Some(before), whole) => {
                before.end = end;
                self.missing[at].first = end;
                if whole {
                    self.missing.remove(at);
                }
            }
            (None, whole) => {
                self.missing[at] = Missing {
                    end,
                    state: State::InFlight,
                    again,
                    written_off: false,
                    ..range
                };
                if !whole {
                    self.missing.insert(at + 1, Missing { first: end, ..range });
                }
            }
        }
    }

    /// How many of the packets that it lists are under way. Those before `written_off` count only if they were sent again.
    pub(super) fn under_way(&self, written_off: ExtendedPsn) -> u64 {
        let counted = |range: &Missing| match (range.state, range.again) {
            (State::Lost, _) => 0,
            _ if range.written_off => 0,
            (_, Some(_)) => range.end - range.first,
            (_, None) => range.end - range.first.max(written_off).min(range.end),
        };
        self.missing.iter().map(counted).sum()
    }

    /// Nothing that it lists counts in the window any more, unless it is sent again.
    pub(super) fn write_off(&mut self) {
        for range in &mut self.missing {
            range.written_off = true;
        }
    }

    /// Forgets everything from `from` on: it will be sent as if for the first time.
    pub(super) fn forget_from(&mut self, from: ExtendedPsn) {
        while let Some(last) = self.missing.back_mut() {
            let cut = last.first.max(from);
            if cut >= last.end {
                break;
            }
            if last.state == State::Lost {
                self.lost -= last.end - cut;
            }
            if cut > last.first {
                last.end = cut;
                break;
            }
            self.missing.pop_back();
        }
        self.end = self.end.min(from);
    }

    /// Whether nothing is missing of what it knows of.
    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

impl Missing {
    /// Whether it was sent once, and nothing else is known.
    fn is_fresh(&self) -> bool {
        self.state == State::InFlight && self.again.is_none() && !self.written_off
    }

    /// Packets that were sent once.
    fn in_flight(first: ExtendedPsn, end: ExtendedPsn) -> Self {
        Missing {
            first,
            end,
            state: State::InFlight,
            suspected_at: Time::ZERO,
            again: None,
            written_off: false,
        }
    }

    fn packets(&self) -> u64 {
        self.end - self.first
    }

    /// It counts as lost; how many packets did not before.
    fn lose(&mut self, now: Time) -> u64 {
        if self.state == State::Lost {
            return 0;
        }
        if self.state != State::Suspected {
            self.suspected_at = now;
        }
        self.state = State::Lost;
        self.packets()
    }

    /// When it counts as lost.
    fn due_at(&self, window: Duration, patience: Option<Duration>) -> Option<Time> {
        match (self.state, self.again) {
            (State::Suspected, _) => Some(self.suspected_at + window),
            (State::InFlight, Some((sent_at, _))) => patience.map(|patience| sent_at + patience),
            _ => None,
        }
    }
}

impl Arrived {
    fn note(&mut self, range: &Missing, packets: u64, now: Time, too_soon: Duration) {
        self.packets += packets;
        let looked_lost = match (range.state, range.again) {
            // Sent again: the answer is to the repetition unless it comes too soon.
            (_, Some((sent_at, _))) => {
                let repaired = now.since(sent_at) >= too_soon;
                self.repaired |= repaired;
                !repaired
            }
            (state, None) => matches!(state, State::Suspected | State::Lost),
        };
        if looked_lost {
            self.late = self.late.max(now.since(range.suspected_at));
        }
    }

    /// Both.
    pub(super) fn and(self, other: Arrived) -> Arrived {
        Arrived {
            packets: self.packets + other.packets,
            late: self.late.max(other.late),
            repaired: self.repaired || other.repaired,
        }
    }
}

#[cfg(test)]
mod tests;
