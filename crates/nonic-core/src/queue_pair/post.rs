//! What posting has in common for every transport: why a request is refused.

use super::context::QpContext;
use super::state::QpState;
use crate::verbs::rq::RecvRefused;
use crate::verbs::work::{Data, SendOp, SendRequest};

/// Why a work request was not taken. Nothing of it was queued.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// No such queue pair.
    #[error("no such queue pair")]
    NoSuchQp,
    /// The queue pair is not ready for it.
    #[error("the queue pair is in state {0}; it must be connected first")]
    State(QpState),
    /// As many requests as the queue holds are outstanding.
    #[error("the send queue is full; wait for completions or create it deeper")]
    SendQueueFull,
    /// The receive queue did not take it.
    #[error(transparent)]
    Receive(#[from] RecvRefused),
    /// The queue pair has no receive queue of its own.
    #[error("the queue pair draws from a shared receive queue; post there")]
    SharedReceiveQueue,
    /// The service does not offer the operation.
    #[error("this service does not offer the operation")]
    Unsupported,
    /// More gather elements than the queue was created for.
    #[error("more gather elements than the send queue was created for")]
    TooManySges,
    /// More inline data than the queue was created for, or inline data where an answer should land.
    #[error("inline data is longer than the queue was created for, or cannot be used with this operation")]
    Inline,
    /// The length is not possible: above 2 GiB, above the path MTU for a datagram, or not 8 for an atomic or an ATOMIC_WRITE.
    #[error("the message length is not possible for this operation")]
    Length,
    /// More bytes than the peer's memory has that they are for.
    #[error(
        "{asked} bytes are more than the {there} of the remote memory; use a longer slice or fewer bytes"
    )]
    BeyondRemote {
        /// Bytes of the request's buffers.
        asked: u64,
        /// Bytes of the remote slice.
        there: u64,
    },
    /// A datagram needs a destination with a valid address index, an XRC request one with an SRQ; other
    /// services take none.
    #[error("the destination is missing, not allowed here, or names no local address")]
    Destination,
    /// READs, atomics, ATOMIC_WRITEs and FLUSHes need `max_rd_atomic` above zero.
    #[error("the queue pair was connected with max_rd_atomic 0: it can neither READ, FLUSH nor use atomics")]
    NoFetches,
    /// The device can neither send nor receive any more ([`Event::DeviceFatal`](crate::Event::DeviceFatal)).
    #[error("the device has failed: the process closed descriptors that it needs; open it again")]
    DeviceFailed,
}

/// Whether a request's data is no more than the queue pair was created for.
#[inline]
pub(crate) fn check_data(common: &QpContext, request: &SendRequest<'_>) -> Result<(), PostError> {
    match request.data {
        Data::Inline(bytes) => {
            // The bytes of an ATOMIC_WRITE are part of the request itself.
            let limit = match request.op {
                SendOp::AtomicWrite(_) => 8,
                _ => common.capacity.max_inline_data as usize,
            };
            match request.op.fetches() || bytes.len() > limit {
                true => Err(PostError::Inline),
                false => Ok(()),
            }
        }
        Data::Sges(sges) if sges.len() > common.capacity.max_send_sge as usize => Err(PostError::TooManySges),
        Data::Sges(_) => Ok(()),
    }
}
