//! Explanations of what happened to a queue pair, of refused calls and of connections that did not come about.
//!
//! `cause` finds the event that led to a failure; `requester`, `responder` and `stream` have the sentences for it.

mod calls;
mod cause;
mod connecting;
mod phrases;
mod requester;
mod responder;
mod stream;

use crate::topics;
use nonic_core::record::{QpEvent, Recorded, StreamLoss};
use nonic_core::{Nic, QpState, Qpn, Status};
use std::borrow::Cow;
use std::fmt;

/// A sentence, or a part of one.
type Words = Cow<'static, str>;

/// Why something went wrong.
///
/// As a string it is one line of sentences; with `{:#}` several lines, and the last events of the queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// What happened: a sentence or two.
    pub happened: String,
    /// What may have led to it, the likeliest first. Empty if it is known for sure: then `happened` says it.
    pub causes: Vec<Cow<'static, str>>,
    /// What to try, in this order.
    pub steps: Vec<Cow<'static, str>>,
    /// What was written down of the queue pair, the oldest first.
    pub events: Vec<Recorded>,
}

impl Explanation {
    /// Why a request of a queue pair ended with `status`; without one, why the queue pair failed. `None` if neither has
    /// anything to explain: the status is success, or nothing went wrong.
    pub fn of_queue_pair(nic: &Nic, qpn: Qpn, status: Option<Status>) -> Option<Self> {
        Explanation::of_events(status, nic.recorded(qpn))
    }

    /// The same of the recorded events of a queue pair, the oldest first.
    fn of_events<'a>(
        status: Option<Status>,
        recorded: impl DoubleEndedIterator<Item = &'a Recorded>,
    ) -> Option<Self> {
        // A queue pair that was reset begins anew.
        let of_this_life = |recorded: &&Recorded| recorded.event != QpEvent::Moved(QpState::Reset);
        let mut events: Vec<Recorded> = recorded.rev().take_while(of_this_life).cloned().collect();
        events.reverse();
        let mut explanation = match status {
            Some(Status::Success) => return None,
            Some(Status::Flushed) => cause::of_flush(&events),
            Some(status) => cause::of_status(&events, status),
            None => cause::of_failure(&events)?,
        };
        explanation.events = events;
        Some(explanation)
    }

    /// The general meaning of a status, of which no more is known.
    pub fn of_status(status: Status) -> Self {
        let topic = topics::of_status(status);
        Explanation::known(sentence(topic.meaning), topic.causes, topic.steps)
    }

    /// What happened, with what may have led to it and what to try: a sentence, and phrases without a full stop.
    pub fn known(happened: impl Into<String>, causes: &[&'static str], steps: &[&'static str]) -> Self {
        let words = |list: &[&'static str]| list.iter().map(|words| Words::Borrowed(words)).collect();
        Explanation {
            happened: happened.into(),
            causes: words(causes),
            steps: words(steps),
            events: Vec::new(),
        }
    }
}

/// A phrase as a sentence.
fn sentence(phrase: &str) -> String {
    let mut letters = phrase.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.happened)?;
        if f.alternate() {
            return self.write_long(f);
        }
        if !self.causes.is_empty() {
            write!(f, " Likely: {}.", self.causes.join("; or "))?;
        }
        if !self.steps.is_empty() {
            write!(f, " Try: {}.", self.steps.join("; "))?;
        }
        Ok(())
    }
}

impl Explanation {
    fn write_long(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = |title: &str, items: &[Words]| {
            if items.is_empty() {
                return Ok(());
            }
            write!(f, "\n{title}:")?;
            items.iter().try_for_each(|item| write!(f, "\n  - {item}"))
        };
        list("likely", &self.causes)?;
        list("try", &self.steps)?;
        let Some(last) = self.events.last() else {
            return Ok(());
        };
        f.write_str("\nlast events of the queue pair:")?;
        for recorded in &self.events {
            let before = last.at.since(recorded.at);
            write!(f, "\n  -{before:?}: {}", recorded.event)?;
            if recorded.times > 1 {
                write!(f, " ({} times)", recorded.times)?;
            }
        }
        Ok(())
    }
}

/// Whether an event ends a queue pair, or is a request's own failure.
fn is_cause(event: &QpEvent) -> bool {
    matches!(
        event,
        QpEvent::Failed(_)
            | QpEvent::Refused(_)
            | QpEvent::Dropped(..)
            | QpEvent::QueueOverflow
            | QpEvent::DeviceFailed
            | QpEvent::Terminated(_)
            | QpEvent::PeerTerminated(_)
            | QpEvent::StreamLost(StreamLoss::Broken | StreamLoss::NotReady)
    )
}
