//! Asynchronous events of a NIC: what it reports to its owner besides completions.

use crate::verbs::cq::CqId;
use crate::verbs::rq::SrqId;
use nonic_wire::Qpn;

/// An event that the program should hear of.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// An armed completion queue got a completion: signal its channel.
    Completion(CqId),
    /// A completion queue overflowed.
    CqError(CqId),
    /// A queue pair failed in a way no completion reports.
    QpFatal(Qpn),
    /// A peer sent this queue pair something malformed or not allowed.
    QpRequestError(Qpn),
    /// A peer tried to use memory it may not.
    QpAccessError(Qpn),
    /// A queue pair in error will take no more receives from its SRQ.
    LastWqeReached(Qpn),
    /// The send queue has drained after a move to SQD.
    SqDrained(Qpn),
    /// Fewer receives wait in the SRQ than the armed limit.
    SrqLimit(SrqId),
    /// The first packet arrived on a queue pair that was still in RTR.
    CommunicationEstablished(Qpn),
    /// The device can neither send nor receive any more. Every queue pair is in error, and nothing can be posted.
    DeviceFatal,
}
