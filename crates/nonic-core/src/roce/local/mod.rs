//! To a process of this host: records in a lane ([`crate::Lanes`]) in place of packets.
//!
//! A record is a [header](RecordHeader) and payload, of whatever service. Those of unreliable connections and datagrams are written by
//! [their sender](super::sender) and taken by the receivers that take packets. The rest of this module is about reliable connections.
//!
//! A lane loses nothing and keeps order, so there is no window, no acknowledgement and no retransmission of what was lost.
//! [`RecordRequester`] writes a request as one record or several, and takes their answers. [`RecordResponder`] executes each record
//! when it comes. Both follow the rules of RC that programs see: order, fences, RNR, retries, errors at both ends.
//!
//! Each direction of a connection decides for itself. The requester chooses before it sends anything: if a lane leads to its peer, it
//! writes records for as long as it is connected. The responder takes what comes first, packets or records, and nothing else from then on.
//!
//! Records are numbered as packets are, one number each, from the PSN that both sides agreed on. So a record of an earlier
//! connection is not taken for one of this. A record is executed only if it has the number that is expected. One that is not executed
//! says so in its answer; then the requester goes back to it, and what it wrote behind it is ignored. For want of a receive (RNR), the
//! answer says how long to wait before the record is written again, and the program's `rnr_retry` says how often (`patience`).

mod direct;
mod header;
mod patience;
mod requester;
mod responder;

pub(crate) use direct::{direct_request, is_direct};
pub(crate) use header::RecordHeader;
pub(crate) use requester::RecordRequester;
pub(crate) use responder::RecordResponder;

/// What came of asking for one record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    /// One of so many bytes was written.
    Record(usize),
    /// So many bytes were moved into or out of the peer's memory without one. There may be more to do.
    Direct(u32),
    /// There is one, and the lane is full.
    Full,
    /// There was one for a reader that does not read, of a service that may lose it.
    Dropped,
    /// What comes next goes as a packet.
    Packets,
    /// Nothing to write until something happens.
    Idle,
    /// The queue pair failed: flush it.
    Failed,
}
