//! Direct access: WRITEs, READs and atomics that the requester executes itself, in the memory of its peer, without a record.
//! [`crate::DirectAccess`] is how; this module knows what was asked for and how far it has come, the requester when.
//!
//! Why every request is still executed exactly once and in order:
//! - The requester asks only while nothing of its queue pair is under way: every record was answered. So all earlier requests were
//!   executed and are complete. Nothing later is written before the request is done, or was refused and has gone as a record. So fences
//!   are kept and READs see earlier WRITEs.
//! - It takes no number: the target takes no part, and expects the same record afterwards.
//! - A request that is refused, at its first piece or at any later one, goes as a record from its beginning. So a WRITE or READ may be
//!   done twice: the same bytes go to the same place, before any later request.
//! - An atomic may not be done twice, so it is one step. Refused means that the word was not touched. Whether our own memory takes the
//!   result is checked before. If it no longer does after that, the request fails as if the answer to a record had found it so.
//! - A request that is begun is ended before the send queue counts as drained.
//!
//! While direct access works, a long request waits for what is under way before it: it is faster afterwards by more
//! than that takes. A short one goes as a record behind it.

use crate::direct::{Direct, DirectOperation, DirectRequest, LocalBytes};
use crate::placement::MAX_MESSAGE;
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::verbs::work::{RemoteAddress, SendOp, Status};
use crate::verbs::wqe::SendWqe;
use nonic_wire::Service;
use smallvec::SmallVec;

/// Requests that are executed together, at most.
pub(crate) const LONGEST_RUN: usize = 32;

/// How far the request at the front of the send queue was executed. Small, because every queue pair has one:
/// the bytes done, and a bit above them.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DirectProgress(u32);

impl DirectProgress {
    /// A message has at most so many bytes, and the last of them end it.
    const REFUSED: u32 = MAX_MESSAGE;

    /// So many bytes have been moved.
    pub(crate) fn done(self) -> u32 {
        self.0 & !Self::REFUSED
    }

    pub(crate) fn add(&mut self, bytes: u32) {
        self.0 += bytes;
    }

    /// Whether the peer's memory, or ours, may show a part of it.
    pub(crate) fn is_begun(self) -> bool {
        self.done() > 0
    }

    /// Whether it goes to the peer as others do, from its beginning.
    pub(crate) fn is_refused(self) -> bool {
        self.0 & Self::REFUSED != 0
    }

    pub(crate) fn refuse(&mut self) {
        self.0 |= Self::REFUSED;
    }
}

/// What a requester knows of executing requests by itself.
#[derive(Debug, Default)]
pub(crate) struct DirectState {
    /// How far the front request was executed.
    pub(crate) front: DirectProgress,
    /// Whether the latest attempt went well.
    pub(crate) works: bool,
    /// Bytes that were moved, ever.
    pub(crate) bytes: u64,
}

/// What was done of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Moved {
    /// So many bytes were moved, and there are more.
    Piece(u32),
    /// So many were moved, and there are no more: the peer has executed it.
    All(u32),
    /// The peer has executed it, and our memory does not take what it fetched.
    Lost(Status),
}

impl DirectState {
    /// Whether nothing of the front request was executed or refused.
    pub(crate) fn is_at_beginning(&self) -> bool {
        self.front == DirectProgress::default()
    }

    /// Executes the next piece of the front request, which is the only one under way. `None` if it has to go to the peer as others do.
    pub(crate) fn execute(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        wqe: &SendWqe,
    ) -> Option<Moved> {
        let direct = nic.direct.as_deref_mut()?;
        if self.front.is_refused() {
            return None;
        }
        let (operation, remote) = operation_of(wqe.op)?;
        let left = wqe.length.checked_sub(self.front.done())?;
        if left == 0 || roce.common.service != Service::Rc {
            return None;
        }
        let atomic = operation.is_atomic();
        let piece = match atomic {
            true => left,
            false => left.min(nic.direct_piece.max(1)),
        };
        let last = piece == left;
        // As with records: nothing is moved if a part of the request cannot be. The pieces check what they move, but what an
        // atomic fetches is placed when it has been executed.
        let whole = (last && !atomic) || self.front.is_begun();
        let permitted = whole || wqe.payload.check(&nic.keys, operation.needs_here()).is_ok();
        let outcome = match permitted {
            false => Direct::Refused,
            true => {
                let bytes = LocalBytes {
                    memory: wqe.payload.memory(&nic.keys),
                    offset: u64::from(self.front.done()),
                    length: piece,
                };
                let at = RemoteAddress {
                    va: remote.va.wrapping_add(bytes.offset),
                    ..remote
                };
                let mut request = direct_request(roce, operation, at, bytes);
                request.left = left;
                direct.execute(&request)
            }
        };
        self.conclude(nic, wqe, operation, (piece, last), outcome)
    }

    /// Executes whole requests at the front of the send queue together: WRITEs, or READs, by one key ([`follows`]). Returns how many were
    /// executed, and their bytes.
    pub(crate) fn execute_run<'a>(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        wqes: impl Iterator<Item = &'a SendWqe>,
    ) -> (usize, u32) {
        let Some(direct) = nic.direct.as_deref_mut() else {
            return (0, 0);
        };
        let request = |wqe: &'a SendWqe| {
            let (operation, remote) = operation_of(wqe.op)?;
            let whole = LocalBytes {
                memory: wqe.payload.memory(&nic.keys),
                offset: 0,
                length: wqe.length,
            };
            Some(direct_request(roce, operation, remote, whole))
        };
        let requests: SmallVec<[DirectRequest<'_>; LONGEST_RUN]> = wqes.map_while(request).collect();
        let executed = direct.execute_run(&requests);
        let done = &requests[..executed];
        let bytes = done.iter().map(|request| request.left).sum();
        nic.counters.direct_bytes += u64::from(bytes);
        self.bytes += u64::from(bytes);
        for request in done {
            match request.operation {
                DirectOperation::Read => nic.counters.direct_reads += 1,
                _ => nic.counters.direct_writes += 1,
            }
        }
        (executed, bytes)
    }

    /// A piece of the front request was executed, or refused.
    fn conclude(
        &mut self,
        nic: &mut NicResources,
        wqe: &SendWqe,
        operation: DirectOperation,
        (piece, last): (u32, bool),
        outcome: Direct,
    ) -> Option<Moved> {
        let atomic = operation.is_atomic();
        let refused = outcome == Direct::Refused;
        // Memory that can be reached for WRITEs cannot always be reached for atomics.
        if !(atomic && refused) {
            self.works = !refused;
        }
        if refused {
            self.front.refuse();
            return None;
        }
        if !atomic {
            nic.counters.direct_bytes += u64::from(piece);
            self.bytes += u64::from(piece);
        }
        if !last {
            self.front.add(piece);
            return Some(Moved::Piece(piece));
        }
        match operation {
            DirectOperation::Write => nic.counters.direct_writes += 1,
            DirectOperation::Read => nic.counters.direct_reads += 1,
            DirectOperation::FetchAdd(_) | DirectOperation::CompareSwap { .. } => {
                nic.counters.direct_atomics += 1;
            }
            // That is the receiver's.
            DirectOperation::Pull => {}
        }
        let placed = match outcome {
            Direct::Fetched(original) => wqe.payload.scatter(&nic.keys, 0, &original.to_ne_bytes()),
            _ => Ok(()),
        };
        Some(match placed {
            Ok(()) => Moved::All(piece),
            Err(fault) => Moved::Lost(fault.into()),
        })
    }
}

/// A piece of a request, `at` the peer: its last, unless there is more `left`.
#[inline]
pub(crate) fn direct_request<'a>(
    roce: &RoceContext,
    operation: DirectOperation,
    at: RemoteAddress,
    bytes: LocalBytes<'a>,
) -> DirectRequest<'a> {
    DirectRequest {
        own: roce.common.qpn,
        local: roce.flow.src,
        target: roce.dest_qpn,
        remote: roce.flow.dst,
        first: roce.sq_psn,
        operation,
        va: at.va,
        left: bytes.length,
        rkey: at.rkey,
        bytes,
    }
}

/// Whether a request may be executed together with one before it: both are WRITEs, or READs, by one key. (An empty one moves nothing.)
#[inline]
pub(crate) fn follows(first: &SendWqe, wqe: &SendWqe) -> bool {
    let same = match (first.op, wqe.op) {
        (SendOp::Write(one), SendOp::Write(other)) | (SendOp::Read(one), SendOp::Read(other)) => {
            one.rkey == other.rkey
        }
        _ => false,
    };
    same && wqe.length > 0
}

/// Whether a request may be executed by the requester: the peer always executes any other.
#[inline]
pub(crate) fn is_direct(op: SendOp) -> bool {
    matches!(
        op,
        SendOp::Write(_) | SendOp::Read(_) | SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. }
    )
}

/// The direct operation of a request, and where; `None` if the peer always executes it.
#[inline]
fn operation_of(op: SendOp) -> Option<(DirectOperation, RemoteAddress)> {
    match op {
        SendOp::Write(remote) => Some((DirectOperation::Write, remote)),
        SendOp::Read(remote) => Some((DirectOperation::Read, remote)),
        SendOp::FetchAdd { remote, add } => Some((DirectOperation::FetchAdd(add), remote)),
        SendOp::CompareSwap {
            remote,
            compare,
            swap,
        } => Some((DirectOperation::CompareSwap { compare, swap }, remote)),
        _ => None,
    }
}
