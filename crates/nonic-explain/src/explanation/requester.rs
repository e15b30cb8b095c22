//! Explains why a request of this side failed: what the peer answered, or that it did not answer.

use super::Explanation;
use super::phrases::named;
use crate::topics;
use nonic_core::record::{FailedRequest, LocalFault};
use nonic_core::{KeyError, Status};
use nonic_wire::Psn;

/// A request failed, for what a NAK said or for what a key of this side does not permit.
pub(super) fn failed(failed: &FailedRequest, fault: Option<&LocalFault>) -> Explanation {
    let request = named(failed);
    let topic = topics::of_status(failed.status);
    let mut explanation = Explanation::known(String::new(), topic.causes, topic.steps);
    explanation.happened = match failed.status {
        Status::RemoteAccess => format!(
            "The peer refused {request}: its key does not cover or permit the access (remote access error)."
        ),
        Status::RemoteInvalidRequest => {
            format!("The peer refused {request} as malformed or not allowed (remote invalid request).")
        }
        Status::RemoteOperation => {
            format!("The peer could not carry out {request} (remote operation error).")
        }
        Status::RnrRetryExceeded => {
            format!(
                "The peer had no receive posted for {request}, however often it was tried (RNR retries exceeded)."
            )
        }
        Status::LocalProtection | Status::WindowBind | Status::LocalQpOperation => match fault {
            Some(fault) => return local(&request, fault),
            None => format!("This side could not carry out {request}: {}.", topic.meaning),
        },
        _ => format!("It was {request}: {}.", topic.meaning),
    };
    explanation
}

/// A key of this side does not permit what a request needs.
fn local(request: &str, fault: &LocalFault) -> Explanation {
    let steps: &[&str] = match fault.error {
        KeyError::Rights => &[
            "register the memory with LOCAL_WRITE if a READ, an atomic or a receive fills it, with MW_BIND if windows are bound to it",
        ],
        KeyError::Domain => {
            &["register the memory in the protection domain that the queue pair was created in"]
        }
        KeyError::Bounds => {
            &["check address and length of the scatter/gather element against what was registered"]
        }
        KeyError::Revoked => &["deregister memory only after the completions of all requests that use it"],
        KeyError::Unknown => &["use the lkey that registration returned, of the same device"],
        KeyError::NotInvalidatable => &["only memory windows of type 2 can be invalidated"],
        _ => &["look at the window and the region it is bound to"],
    };
    let happened = format!("This side could not carry out {request}: {fault}.");
    Explanation::known(happened, &[], steps)
}

/// What is known of a peer that did not answer.
pub(super) fn no_answer(request: &str, answered: bool) -> Explanation {
    let (what, causes, steps): (_, &[&str], &[&str]) = match answered {
        true => (
            "it had answered before and fell silent",
            &[
                "the peer's process has ended, was killed or is stopped",
                "its queue pair was destroyed or is in error, which makes it deaf",
                "the network loses nearly everything, or the way to the peer is gone",
            ],
            &[
                "see whether the peer's process lives, and what it says of its queue pair",
                "if it only was slow, raise the timeout or `retry_cnt`",
                "look for loss: `nonic ping`, the counter `retransmitted_packets`, NONIC_PCAP",
            ],
        ),
        false => (
            "it has never answered",
            &[
                "a firewall drops UDP port 4791 on the way, in either direction",
                "another program has UDP port 4791 on the peer's host, such as a kernel's rxe: what comes there is lost",
                "the address, GID index or queue pair number of the peer is wrong",
                "the peer's queue pair is not in RTR yet, or is connected to another queue pair or address",
                "the first packet sequence numbers do not agree: this side's `sq_psn` must be the peer's `rq_psn`",
            ],
            &[
                "try `nonic ping` between the two addresses, and `nonic doctor` on both hosts",
                "open UDP port 4791 in both directions",
                "print what both sides set for GID, QPN and PSN, and compare",
            ],
        ),
    };
    Explanation::known(
        format!("The peer did not answer {request} within all retries (transport retries exceeded): {what}."),
        causes,
        steps,
    )
}

/// The peer's queue pair is there no more.
pub(super) fn peer_gone(request: &str) -> Explanation {
    Explanation::known(
        format!(
            "The peer destroyed its queue pair before it executed {request}: there is nobody to try again with (transport retries exceeded)."
        ),
        &["the peer's program ended its side of the connection while this side was still sending"],
        &[
            "have both sides agree that they are done before either destroys its queue pair",
            "if the connection was to end, take this for its end",
        ],
    )
}

/// The peer waits for another packet than was sent first.
pub(super) fn other_psn(request: &str, expected: Option<Psn>, first: Psn) -> Explanation {
    let expected = match expected {
        Some(expected) => format!("packet sequence number {}", expected.value()),
        None => "another packet sequence number".to_owned(),
    };
    Explanation::known(
        format!(
            "The peer did not execute {request} within all retries (transport retries exceeded): it is there, but expects \
             {expected} while this side began with {} (PSN mismatch).",
            first.value()
        ),
        &[],
        &["set this side's `sq_psn` to the peer's `rq_psn`, and the other way round"],
    )
}

pub(super) fn queue_overflow() -> Explanation {
    Explanation::known(
        "A completion queue was full and a completion was lost (CQ overrun): every queue pair that reports there is in error.",
        &["more requests were outstanding than the completion queue has room for"],
        &[
            "create the completion queue for all sends and receives that may be outstanding on all its queue pairs",
            "poll more often",
        ],
    )
}

pub(super) fn device_failed() -> Explanation {
    Explanation::known(
        "The device has failed: it can neither send nor receive any more.",
        &["the process closed descriptors that are not its own, as daemons do when they start"],
        &[
            "open the device after closing inherited descriptors",
            "open the device again",
        ],
    )
}
