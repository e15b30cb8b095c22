//! A flight recorder: a ring of each queue pair's last events, kept so that a failure can be explained afterwards.
//!
//! It records only what is out of the ordinary, and changes of state: a packet that is sent, received or acknowledged
//! as it should be costs nothing. A queue pair has no ring before its first event, and at most [`KEPT`] events; equal
//! events in a row are one with a count.
//!
//! It keeps facts and draws no conclusions: those are in `nonic-explain`. Read first: [`QpEvent`], then
//! [`RefusedRequest`].

mod event;
mod words;

pub use event::{
    FailedRequest, KeyExtent, LocalFault, QpEvent, Recorded, RefusalReason, RefusedRequest, RequestKind,
    StreamLoss,
};

use crate::time::Time;
use crate::verbs::memory::KeyHasher;
use nonic_wire::Qpn;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

/// How many events of a queue pair are kept.
pub const KEPT: usize = 64;

/// Events that may wait for [`Recorder::poll`], once it was asked for them; later ones are not queued.
const MAX_UNTOLD: usize = 4096;

/// The last events of every queue pair of a NIC.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    rings: HashMap<u32, VecDeque<Recorded>, BuildHasherDefault<KeyHasher>>,
    /// The latest time of any event: events without a time of their own count as of then.
    latest: Time,
    /// Events that [`Recorder::poll`] has not returned; `None` if they were never asked for.
    untold: Option<VecDeque<(Qpn, Recorded)>>,
}

impl Recorder {
    /// Writes an event down.
    #[cold]
    pub(crate) fn record(&mut self, now: Time, qpn: Qpn, event: QpEvent) {
        self.latest = self.latest.max(now);
        let recorded = Recorded {
            at: self.latest,
            times: 1,
            event,
        };
        let ring = self.rings.entry(qpn.value()).or_default();
        let kept = add(ring, recorded);
        if let Some(untold) = self.untold.as_mut().filter(|untold| untold.len() < MAX_UNTOLD) {
            untold.push_back((qpn, kept.clone()));
        }
    }

    /// A queue pair's events, the oldest first.
    pub(crate) fn of(&self, qpn: Qpn) -> impl DoubleEndedIterator<Item = &Recorded> {
        self.rings.get(&qpn.value()).into_iter().flatten()
    }

    /// The queue pair is gone.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.rings.remove(&qpn.value());
    }

    /// From now on, [`Recorder::poll`] tells of every event.
    pub(crate) fn tell(&mut self) {
        self.untold.get_or_insert_default();
    }

    /// The next event that was not yet returned.
    pub(crate) fn poll(&mut self) -> Option<(Qpn, Recorded)> {
        self.untold.as_mut()?.pop_front()
    }

    /// Whether there is one.
    pub(crate) fn has_untold(&self) -> bool {
        self.untold.as_ref().is_some_and(|untold| !untold.is_empty())
    }
}

/// Adds an event to a ring, or counts it if it is the last one again.
fn add(ring: &mut VecDeque<Recorded>, mut recorded: Recorded) -> &Recorded {
    match ring.pop_back() {
        Some(last) if last.event == recorded.event => recorded.times = last.times.saturating_add(1),
        Some(last) => ring.push_back(last),
        None => {}
    }
    if ring.len() == KEPT {
        ring.pop_front();
    }
    ring.push_back(recorded);
    ring.back().expect("one was added")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_pair::QpState;

    const QPN: Qpn = Qpn::new(7);

    fn times(recorder: &Recorder) -> Vec<(u64, u32)> {
        let recorded = recorder.of(QPN);
        recorded.map(|event| (event.at.as_ns(), event.times)).collect()
    }

    #[test]
    fn an_event_is_small() {
        // A connected queue pair has three and room for a fourth; a process may have a million queue pairs.
        assert!(size_of::<Recorded>() <= 32, "{}", size_of::<Recorded>());
    }

    #[test]
    fn the_last_64_are_kept() {
        let mut recorder = Recorder::default();
        for number in 0..100 {
            let event = QpEvent::TimedOut {
                retries_left: number,
                answered: true,
            };
            recorder.record(Time::from_ns(u64::from(number)), QPN, event);
        }
        let kept = times(&recorder);
        assert_eq!(kept.len(), KEPT);
        assert_eq!((kept[0], kept[63]), ((36, 1), (99, 1)));
    }

    #[test]
    fn equal_events_in_a_row_are_one() {
        let mut recorder = Recorder::default();
        for at in 1..=5 {
            recorder.record(Time::from_ns(at), QPN, QpEvent::NoReceive);
        }
        recorder.record(Time::from_ns(6), QPN, QpEvent::Moved(QpState::Error));
        recorder.record(Time::from_ns(7), QPN, QpEvent::NoReceive);
        assert_eq!(times(&recorder), [(5, 5), (6, 1), (7, 1)]);
    }

    #[test]
    fn what_is_not_told_the_time_happens_no_earlier_than_what_was_before() {
        let mut recorder = Recorder::default();
        recorder.record(Time::from_ns(9), QPN, QpEvent::NoReceive);
        recorder.record(Time::ZERO, QPN, QpEvent::QueueOverflow);
        assert_eq!(times(&recorder), [(9, 1), (9, 1)]);
    }

    #[test]
    fn who_asks_is_told_of_every_event_once_and_who_does_not_costs_nothing() {
        let mut recorder = Recorder::default();
        recorder.record(Time::ZERO, QPN, QpEvent::NoReceive);
        assert!(!recorder.has_untold());
        recorder.tell();
        recorder.record(Time::ZERO, QPN, QpEvent::NoReceive);
        assert!(recorder.has_untold());
        let told = recorder.poll().expect("an event");
        assert_eq!((told.0, told.1.event, told.1.times), (QPN, QpEvent::NoReceive, 2));
        assert_eq!(recorder.poll(), None);
        recorder.forget(QPN);
        assert_eq!(times(&recorder), []);
    }
}
