//! Finds the event that caused the failure of a queue pair: events of the same moment belong together.

use super::phrases::named;
use super::{Explanation, is_cause, requester, responder, stream};
use nonic_core::record::{FailedRequest, LocalFault, QpEvent, Recorded, RefusalReason, StreamLoss};
use nonic_core::{QpState, Status};
use nonic_wire::iwarp::TerminateCode;

/// Events of one moment, in order.
pub(super) type Moment<'a> = &'a [Recorded];

/// Why a request ended with a status of its own.
pub(super) fn of_status(events: &[Recorded], status: Status) -> Explanation {
    let failed =
        |recorded: &Recorded| matches!(&recorded.event, QpEvent::Failed(failed) if failed.status == status);
    match events.iter().rposition(failed) {
        Some(at) => of_moment(events, at).unwrap_or_else(|| Explanation::of_status(status)),
        None => Explanation::of_status(status),
    }
}

/// Why a request was flushed: because the queue pair failed, for a reason of which the first failure tells.
pub(super) fn of_flush(events: &[Recorded]) -> Explanation {
    const FLUSHED: &str =
        "The request was flushed: the queue pair went to the error state before it was done.";
    match of_failure(events).or_else(|| of_peer_closing(events)) {
        Some(mut cause) => {
            cause.happened = format!("{FLUSHED} What came first: {}", cause.happened);
            cause
        }
        None => Explanation::known(
            FLUSHED,
            &[
                "the program, or the end of its connection, moved the queue pair to the error state",
                "it was posted to a queue pair that had failed before",
            ],
            &[
                "look at the first completion with another status: it has the cause",
                "if the connection was to end, expect this for every request that is still posted",
            ],
        ),
    }
}

/// Why the queue pair is in error, or refused or dropped something.
pub(super) fn of_failure(events: &[Recorded]) -> Option<Explanation> {
    let moved = |recorded: &Recorded| matches!(recorded.event, QpEvent::Moved(QpState::Error | QpState::Sqe));
    if !events.iter().any(moved) {
        let at = events.iter().rposition(|recorded| is_cause(&recorded.event))?;
        return of_moment(events, at);
    }
    // An iWARP queue pair is in SQE while its Terminate is on its way, and goes to ERR later: the cause is at the first of the two.
    let worked = events
        .iter()
        .rposition(|recorded| recorded.event == QpEvent::Moved(QpState::Rts));
    let since = worked.unwrap_or(0)..events.len();
    let mut failures = since.rev().filter(|&at| moved(&events[at]));
    failures.find_map(|at| of_moment(events, at))
}

/// The peer closed an iWARP stream: no failure, but the reason for which what is posted is flushed.
fn of_peer_closing(events: &[Recorded]) -> Option<Explanation> {
    let closing = QpEvent::StreamLost(StreamLoss::PeerClosed);
    let closed = events.iter().any(|recorded| recorded.event == closing);
    closed.then(|| stream::lost(StreamLoss::PeerClosed))
}

/// Explains what happened at the moment of this event.
fn of_moment(events: &[Recorded], at: usize) -> Option<Explanation> {
    let same = |recorded: &&Recorded| recorded.at == events[at].at;
    let before = events[..at].iter().rev().take_while(same).count();
    let after = events[at..].iter().take_while(same).count();
    let moment = &events[at - before..at + after];
    let found = of_refusal(moment).or_else(|| of_failed(events, moment));
    let found = found.map(|mut explanation| {
        if let Some((code, by_peer)) = terminate(moment) {
            explanation.happened.push_str(&stream::beside(code, by_peer));
        }
        explanation
    });
    found.or_else(|| of_device(moment))
}

/// The Terminate that ended an iWARP stream, and whether the peer sent it.
fn terminate(moment: Moment<'_>) -> Option<(TerminateCode, bool)> {
    moment.iter().rev().find_map(|recorded| match recorded.event {
        QpEvent::Terminated(code) => Some((code, false)),
        QpEvent::PeerTerminated(code) => Some((code, true)),
        _ => None,
    })
}

/// A request of the peer was refused or dropped.
fn of_refusal(moment: Moment<'_>) -> Option<Explanation> {
    moment.iter().rev().find_map(|recorded| match &recorded.event {
        QpEvent::Refused(refused) if refused.reason == RefusalReason::ReceiveKey => {
            Some(responder::receive_key(local_fault(moment)))
        }
        QpEvent::Refused(refused) => Some(responder::refused(refused)),
        QpEvent::Dropped(kind, reason) => Some(responder::dropped(*kind, *reason)),
        _ => None,
    })
}

/// A request of this side failed.
fn of_failed(events: &[Recorded], moment: Moment<'_>) -> Option<Explanation> {
    let failed = moment.iter().rev().find_map(|recorded| match &recorded.event {
        QpEvent::Failed(failed) => Some(&**failed),
        _ => None,
    })?;
    let is_receive = failed.remote.is_none() && failed.opcode as u8 >= 128;
    Some(match failed.status {
        Status::LocalProtection if is_receive => responder::receive_key(local_fault(moment)),
        Status::RetryExceeded => no_answer(events, failed, moment),
        _ => requester::failed(failed, local_fault(moment)),
    })
}

/// The peer did not answer; but perhaps it had said before that it waits for another packet.
fn no_answer(events: &[Recorded], failed: &FailedRequest, moment: Moment<'_>) -> Explanation {
    let request = named(failed);
    let other = events.iter().rev().find_map(|recorded| match recorded.event {
        QpEvent::PeerExpectsOther { expected, first } => Some((expected, first)),
        _ => None,
    });
    let answered = moment.iter().rev().find_map(|recorded| match recorded.event {
        QpEvent::TimedOut { answered, .. } => Some(answered),
        _ => None,
    });
    let gone = moment.iter().any(|recorded| recorded.event == QpEvent::PeerGone);
    match other {
        _ if gone => requester::peer_gone(&request),
        Some((expected, first)) => requester::other_psn(&request, expected, first),
        None => requester::no_answer(&request, answered.unwrap_or(false)),
    }
}

fn of_device(moment: Moment<'_>) -> Option<Explanation> {
    moment.iter().rev().find_map(|recorded| match recorded.event {
        QpEvent::QueueOverflow => Some(requester::queue_overflow()),
        QpEvent::DeviceFailed => Some(requester::device_failed()),
        QpEvent::Terminated(code) => Some(stream::terminated(code, false)),
        QpEvent::PeerTerminated(code) => Some(stream::terminated(code, true)),
        QpEvent::StreamLost(loss @ (StreamLoss::Broken | StreamLoss::NotReady)) => Some(stream::lost(loss)),
        _ => None,
    })
}

fn local_fault(moment: Moment<'_>) -> Option<&LocalFault> {
    moment.iter().rev().find_map(|recorded| match &recorded.event {
        QpEvent::LocalFault(fault) => Some(&**fault),
        _ => None,
    })
}
