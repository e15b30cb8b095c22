//! The receiving end of a flow: which packets it has, and what it answers.

use super::packet::{Ack, Data, Held, RANGES, What};
use super::ranges::Ranges;
use nonic_core::{Notification, Time};

/// How a receiver treats packets that come before their turn.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Receiving {
    /// It keeps them and says so, as nonic does for nonic.
    Keeps,
    /// It throws them away and asks once for the one it lacks, as rxe and most adapters do.
    GoesBack,
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct Receiver {
    receiving: Receiving,
    /// Everything before it has come.
    pub(super) next: u32,
    /// What came beyond it.
    held: Ranges,
    /// Whether the peer was told of the gap at `next`.
    reported: bool,
    notification: Notification,
    /// Packets that came for the first time, and again.
    pub(super) first_copies: u64,
    pub(super) copies: u64,
}

/// What a packet is answered with.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Answers {
    pub(super) answer: Option<What>,
    pub(super) notify: bool,
}

impl Receiver {
    pub(super) fn new(receiving: Receiving) -> Receiver {
        Receiver {
            receiving,
            next: 0,
            held: Ranges::default(),
            reported: false,
            notification: Notification::default(),
            first_copies: 0,
            copies: 0,
        }
    }

    pub(super) fn handle(&mut self, now_ns: u64, data: &Data, marked: bool) -> Answers {
        let answer = match self.receiving {
            Receiving::Keeps => self.keep(data),
            Receiving::GoesBack => self.take_in_turn(data),
        };
        // rxe knows nothing of marks.
        let notify = marked && self.receiving == Receiving::Keeps && {
            self.notification.on_marked(Time::from_ns(now_ns));
            let due = self.notification.is_due();
            self.notification.forget();
            due
        };
        Answers { answer, notify }
    }

    fn keep(&mut self, data: &Data) -> Option<What> {
        let number = data.number;
        if number < self.next || self.held.contains(number) {
            self.copies += 1;
            return Some(self.ack(data, None));
        }
        self.first_copies += 1;
        let changed = if number == self.next {
            let filled = !self.held.is_empty();
            self.next += 1;
            if let Some(end) = self.held.take_at(self.next) {
                self.next = end;
            }
            if !filled && !data.ask {
                return None;
            }
            None
        } else {
            Some(self.held.insert(number, number + 1, |_| {}))
        };
        Some(self.ack(data, changed))
    }

    fn take_in_turn(&mut self, data: &Data) -> Option<What> {
        if data.number > self.next {
            return (!std::mem::replace(&mut self.reported, true))
                .then_some(What::Nak { missing: self.next });
        }
        if data.number < self.next {
            self.copies += 1;
            return data.ask.then(|| self.ack(data, None));
        }
        self.first_copies += 1;
        self.next += 1;
        self.reported = false;
        data.ask.then(|| self.ack(data, None))
    }

    fn ack(&self, data: &Data, changed: Option<Held>) -> What {
        let mut held = [(0, 0); RANGES];
        let others = self.held.iter();
        let told = changed
            .into_iter()
            .chain(others.filter(|range| Some(*range) != changed));
        for (place, range) in held.iter_mut().zip(told) {
            *place = range;
        }
        What::Ack(Ack {
            next: self.next,
            held,
            echo_ns: (data.ask && !data.again).then_some(data.sent_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(number: u32) -> Data {
        Data {
            number,
            ask: false,
            again: false,
            sent_ns: 0,
        }
    }

    fn ack(answers: Answers) -> Ack {
        match answers.answer {
            Some(What::Ack(ack)) => ack,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_comes_early_is_kept_and_told() {
        let mut receiver = Receiver::new(Receiving::Keeps);
        assert!(receiver.handle(0, &data(0), false).answer.is_none());
        assert_eq!(ack(receiver.handle(0, &data(2), false)).held[0], (2, 3));
        assert_eq!(
            ack(receiver.handle(0, &data(5), false)).held[..2],
            [(5, 6), (2, 3)]
        );
        assert_eq!(
            ack(receiver.handle(0, &data(3), false)).held[..2],
            [(2, 4), (5, 6)]
        );
        assert_eq!(ack(receiver.handle(0, &data(1), false)).next, 4);
        assert_eq!(ack(receiver.handle(0, &data(4), false)).next, 6);
        assert_eq!((receiver.first_copies, receiver.copies), (6, 0));
        receiver.handle(0, &data(4), false);
        assert_eq!(receiver.copies, 1);
    }

    #[test]
    fn one_that_goes_back_reports_a_gap_once() {
        let mut receiver = Receiver::new(Receiving::GoesBack);
        receiver.handle(0, &data(0), false);
        let nak = receiver.handle(0, &data(2), false).answer;
        assert!(matches!(nak, Some(What::Nak { missing: 1 })), "{nak:?}");
        assert!(receiver.handle(0, &data(3), false).answer.is_none());
        for number in 1..4 {
            receiver.handle(0, &data(number), false);
        }
        assert_eq!(receiver.next, 4);
    }

    #[test]
    fn marks_are_answered_once_in_fifty_microseconds_and_not_by_rxe() {
        let mut receiver = Receiver::new(Receiving::Keeps);
        let told = |receiver: &mut Receiver, at_ns| receiver.handle(at_ns, &data(0), true).notify;
        assert!(told(&mut receiver, 1_000));
        assert!(!told(&mut receiver, 50_000));
        assert!(told(&mut receiver, 51_000));
        assert!(!told(&mut Receiver::new(Receiving::GoesBack), 1_000));
    }
}
