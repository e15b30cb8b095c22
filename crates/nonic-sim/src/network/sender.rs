//! The sending end of a flow: which packet leaves next, and what it learns from answers.
//!
//! It recovers from loss as the core's requester does: a packet that another overtook is lost after the reordering
//! window and is sent again alone; a peer that goes back makes it go back; a silent one is probed, and then everything
//! counts as lost. The [`Law`] decides how much may be under way.

use super::law::Law;
use super::packet::{Ack, Data, HEADERS, Held};
use super::ranges::Ranges;
use super::round_trip::RoundTrip;
use std::collections::{BTreeSet, VecDeque};

/// What programs usually give a queue pair (14): after so long without progress, a retry is used up.
const PROGRAM_TIMEOUT_NS: u64 = 4_096 << 14;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    InFlight,
    Suspected,
    Lost,
    Arrived,
}

#[derive(Copy, Clone, Debug)]
struct Sent {
    state: State,
    again: bool,
    /// Which transmission it was.
    order: u64,
    suspected_ns: u64,
    sent_ns: u64,
}

/// The sending end.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) law: Law,
    pub(super) mtu: u32,
    /// How many packets there are to send.
    packets: u32,
    una: u32,
    next: u32,
    /// One past the furthest ever sent.
    furthest: u32,
    /// From `una` to `next`.
    board: VecDeque<Sent>,
    /// Transmissions in order: number of the packet, and of the transmission.
    transmissions: VecDeque<(u32, u64)>,
    suspects: VecDeque<(u32, u64)>,
    lost: BTreeSet<u32>,
    /// What arrived beyond `una`.
    arrived: Ranges,
    /// What an acknowledgement tells anew; empty in between.
    news: Vec<Held>,
    in_flight: u64,
    order: u64,
    since_asked: u64,
    asked: u32,
    round_trip: RoundTrip,
    silences: u8,
    provokes: bool,
    silent_at: Option<u64>,
    timeout_at: Option<u64>,
    paced_until: Option<u64>,
    rewound_at: Option<u32>,
    pub(super) counts: SenderCounts,
}

/// What happened to a sender.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct SenderCounts {
    pub(super) sent: u64,
    pub(super) repeated: u64,
    pub(super) probes: u64,
    /// How often everything under way was given up after silence.
    pub(super) silences: u64,
    /// How often the program's timeout passed.
    pub(super) timeouts: u64,
    pub(super) notified: u64,
}

impl Sender {
    pub(super) fn new(law: Law, mtu: u32, packets: u32) -> Sender {
        Sender {
            law,
            mtu,
            packets,
            una: 0,
            next: 0,
            furthest: 0,
            board: VecDeque::new(),
            transmissions: VecDeque::new(),
            suspects: VecDeque::new(),
            lost: BTreeSet::new(),
            arrived: Ranges::default(),
            news: Vec::new(),
            in_flight: 0,
            order: 0,
            since_asked: 0,
            asked: 0,
            round_trip: RoundTrip::default(),
            silences: 0,
            provokes: false,
            silent_at: None,
            timeout_at: None,
            paced_until: None,
            rewound_at: None,
            counts: SenderCounts::default(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.una == self.packets
    }

    /// When something is to be done without an answer.
    pub(super) fn due_at(&self) -> Option<u64> {
        let window = self.round_trip.reordering_window();
        let overdue = self.suspects.front().map(|(number, _)| {
            let suspected = self.entry(*number).map_or(0, |sent| sent.suspected_ns);
            suspected + window
        });
        let due = [self.silent_at, self.timeout_at, self.paced_until, overdue];
        due.into_iter().flatten().min()
    }

    /// The next packet, if one may leave.
    pub(super) fn poll(&mut self, now_ns: u64) -> Option<Data> {
        if self.paced_until.is_some_and(|until| now_ns < until) {
            return None;
        }
        self.paced_until = None;
        let repeated = self.lost.first().copied();
        if repeated.is_none() && self.next == self.packets {
            return None;
        }
        let mtu = u64::from(self.mtu);
        let under_way = self.in_flight * mtu;
        let window = self.law.window(self.mtu);
        let has_room = self.in_flight == 0 || under_way + mtu <= window;
        // If no answer was asked for to anything under way, none would come to open the window.
        let must_ask = self.asked <= self.una && self.next > self.una;
        if !has_room && !self.provokes && !must_ask {
            self.law.on_full();
            return None;
        }
        self.provokes = false;
        let number = repeated.unwrap_or(self.next);
        let again = number < self.furthest;
        self.since_asked += 1;
        let last = number + 1 == self.packets || self.lost.len() == 1;
        let ask = last
            || under_way + 2 * mtu > window
            || self.since_asked >= self.law.asks_every(self.mtu)
            || self.silences > 1;
        if ask {
            self.since_asked = 0;
            self.asked = self.asked.max(number + 1);
        }
        self.note_sent(now_ns, number, again);
        Some(Data {
            number,
            ask,
            again,
            sent_ns: now_ns,
        })
    }

    fn note_sent(&mut self, now_ns: u64, number: u32, again: bool) {
        self.order += 1;
        let sent = Sent {
            state: State::InFlight,
            again,
            order: self.order,
            suspected_ns: 0,
            sent_ns: now_ns,
        };
        if self.lost.remove(&number) {
            let index = (number - self.una) as usize;
            self.board[index] = sent;
        } else {
            self.board.push_back(sent);
            self.next += 1;
        }
        self.furthest = self.furthest.max(self.next);
        self.transmissions.push_back((number, self.order));
        self.in_flight += 1;
        self.counts.sent += 1;
        self.counts.repeated += u64::from(again);
        if self.timeout_at.is_none() {
            self.expect_answer(now_ns);
        }
        // Headers take their part of a rate too.
        let bytes = self.mtu + HEADERS;
        self.paced_until = self.law.on_sent(now_ns, bytes);
    }

    fn expect_answer(&mut self, now_ns: u64) {
        self.timeout_at = Some(now_ns + PROGRAM_TIMEOUT_NS);
        // rxe has no other timer.
        let probes = !matches!(self.law, Law::Rxe);
        self.silent_at = probes.then(|| now_ns + self.round_trip.probe_after());
    }

    fn entry(&self, number: u32) -> Option<&Sent> {
        let index = number.checked_sub(self.una)? as usize;
        self.board.get(index)
    }

    /// The peer says what it has.
    pub(super) fn handle_ack(&mut self, now_ns: u64, ack: &Ack) {
        let mut arrived = 0;
        let mut newest = 0;
        let up_to = ack.next.min(self.next);
        for number in self.una..up_to {
            arrived += self.note_arrived(now_ns, number, &mut newest);
        }
        let mut news = std::mem::take(&mut self.news);
        for (first, end) in ack.held {
            self.arrived
                .insert(first.max(self.una), end.min(self.next), |new| news.push(new));
        }
        for number in news.drain(..).flat_map(|(first, end)| first..end) {
            arrived += self.note_arrived(now_ns, number, &mut newest);
        }
        self.news = news;
        self.arrived.forget_before(up_to);
        while self.una < up_to {
            self.board.pop_front();
            self.una += 1;
        }
        if self.next < ack.next {
            // It went back further than it had to.
            self.una = ack.next.min(self.furthest);
            self.next = self.una;
        }
        if arrived > 0 {
            self.on_progress(now_ns, arrived);
        }
        if let Some(sent_ns) = ack.echo_ns {
            self.round_trip.sample(now_ns - sent_ns);
            self.law.on_round_trip(now_ns, now_ns - sent_ns);
        }
        self.suspect_before(now_ns, newest);
        self.find_lost(now_ns);
    }

    fn on_progress(&mut self, now_ns: u64, arrived: u64) {
        self.silences = 0;
        self.rewound_at = None;
        self.law
            .on_delivered(now_ns, arrived * u64::from(self.mtu), self.mtu);
        if self.una == self.next && self.lost.is_empty() {
            (self.silent_at, self.timeout_at) = (None, None);
        } else {
            self.expect_answer(now_ns);
        }
    }

    /// One packet has arrived; whether that is news.
    fn note_arrived(&mut self, now_ns: u64, number: u32, newest: &mut u64) -> u64 {
        let index = (number - self.una) as usize;
        let sent = &mut self.board[index];
        let before = std::mem::replace(&mut sent.state, State::Arrived);
        let (order, again, suspected_ns, sent_ns) = (sent.order, sent.again, sent.suspected_ns, sent.sent_ns);
        match before {
            State::Arrived => return 0,
            State::InFlight => self.in_flight -= 1,
            State::Suspected => {
                self.in_flight -= 1;
                self.round_trip.was_reordered(now_ns - suspected_ns);
            }
            State::Lost => {
                self.lost.remove(&number);
            }
        }
        // One that comes sooner after its repetition than anything takes is the first copy, which was only late. Nothing is
        // known about when that was sent.
        let too_soon = again && now_ns - sent_ns < self.round_trip.reordering_window();
        if !too_soon {
            *newest = order.max(*newest);
        }
        if again && !too_soon {
            self.round_trip.was_lost();
        }
        1
    }

    /// Everything sent before this transmission was overtaken by it.
    fn suspect_before(&mut self, now_ns: u64, newest: u64) {
        while let Some((number, order)) = self.transmissions.front().copied() {
            if order >= newest {
                break;
            }
            self.transmissions.pop_front();
            let Some(index) = number.checked_sub(self.una) else {
                continue;
            };
            let Some(sent) = self.board.get_mut(index as usize) else {
                continue;
            };
            if sent.order == order && sent.state == State::InFlight {
                sent.state = State::Suspected;
                sent.suspected_ns = now_ns;
                self.suspects.push_back((number, order));
            }
        }
    }

    fn find_lost(&mut self, now_ns: u64) {
        let window = self.round_trip.reordering_window();
        let mut lost = 0;
        while let Some((number, order)) = self.suspects.front().copied() {
            let sent = number
                .checked_sub(self.una)
                .and_then(|index| self.board.get_mut(index as usize));
            match sent {
                Some(sent) if sent.order == order && sent.state == State::Suspected => {
                    if sent.suspected_ns + window > now_ns {
                        break;
                    }
                    sent.state = State::Lost;
                    self.lost.insert(number);
                    self.in_flight -= 1;
                    lost += 1;
                }
                _ => {}
            }
            self.suspects.pop_front();
        }
        self.report_lost(lost);
    }

    fn report_lost(&mut self, packets: u64) {
        if packets > 0 {
            self.law.on_lost(packets * u64::from(self.mtu));
        }
    }

    /// The peer lacks this packet and threw away the rest.
    pub(super) fn handle_nak(&mut self, now_ns: u64, missing: u32) {
        let arrived = Ack {
            next: missing,
            held: Default::default(),
            echo_ns: None,
        };
        self.handle_ack(now_ns, &arrived);
        if self.una == missing && self.next > missing && self.rewound_at != Some(missing) {
            self.rewound_at = Some(missing);
            self.law
                .on_gone_back(self.in_flight * u64::from(self.mtu), self.mtu);
            self.go_back();
        }
    }

    /// Sends everything again that is not acknowledged.
    fn go_back(&mut self) {
        self.board.clear();
        self.transmissions.clear();
        self.suspects.clear();
        self.lost.clear();
        self.arrived.clear();
        self.next = self.una;
        self.in_flight = 0;
        self.asked = self.asked.min(self.una);
        self.since_asked = 0;
        self.silences = 0;
    }

    pub(super) fn handle_notification(&mut self, now_ns: u64) {
        self.counts.notified += 1;
        self.law.on_notified(now_ns, self.mtu);
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now_ns: u64) {
        if self.timeout_at.is_some_and(|at| at <= now_ns) {
            self.counts.timeouts += 1;
            self.law.on_timeout(self.mtu);
            self.rewound_at = None;
            self.go_back();
            (self.silent_at, self.timeout_at) = (None, None);
            return;
        }
        self.find_lost(now_ns);
        if self.silent_at.is_some_and(|at| at <= now_ns) {
            self.on_silence(now_ns);
        }
    }

    fn on_silence(&mut self, now_ns: u64) {
        let wait = self.round_trip.retransmit_after(self.silences);
        self.silences = self.silences.saturating_add(1);
        self.silent_at = Some(now_ns + wait);
        if self.silences == 1 {
            self.counts.probes += 1;
            self.provoke();
        } else {
            self.counts.silences += 1;
            self.rewound_at = None;
            let lost = self.lose_all();
            self.report_lost(lost);
        }
    }

    /// The last packet is sent again, to hear something.
    fn provoke(&mut self) {
        self.provokes = true;
        self.asked = self.asked.min(self.una);
        if self.next == self.una {
            return;
        }
        let number = self.next - 1;
        let index = (number - self.una) as usize;
        if self.lost.is_empty() && self.board[index].state != State::Arrived {
            self.board[index].state = State::Lost;
            self.in_flight -= 1;
            self.lost.insert(number);
        }
    }

    fn lose_all(&mut self) -> u64 {
        let mut lost = 0;
        for (index, sent) in self.board.iter_mut().enumerate() {
            if matches!(sent.state, State::InFlight | State::Suspected) {
                sent.state = State::Lost;
                self.lost.insert(self.una + index as u32);
                lost += 1;
            }
        }
        self.in_flight = 0;
        self.transmissions.clear();
        self.suspects.clear();
        lost
    }
}
