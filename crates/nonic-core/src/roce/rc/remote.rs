//! What a request may do to this side's memory: keys looked up, rights and ranges checked, bytes placed.
//!
//! Nothing here knows the order of requests or answers them: see [`super::responder`]. Receivers of unreliable
//! connections place WRITEs by the same rules; they only take a refusal differently.

use super::replies::ReadReply;
use crate::memory::{Access, Key};
use crate::resources::NicResources;
use crate::roce::served::Served;
use crate::work::{Placement, Status};
use nonic_wire::{NakCode, Operation, Packet};
use std::sync::Arc;

/// The longest message there is.
pub(crate) const MAX_MESSAGE: u32 = 1 << 31;

/// Why a request is not executed.
pub(crate) enum Refusal {
    /// No receive is posted: come again.
    NotReady,
    /// Never. With what the receive in progress, if any, completes.
    Nak(NakCode, Status),
}

pub(crate) const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest, Status::LocalQpOperation);
pub(crate) const ACCESS: Refusal = Refusal::Nak(NakCode::RemoteAccessError, Status::LocalQpOperation);

/// A WRITE whose packets are arriving.
#[derive(Debug)]
pub(crate) struct InboundWrite {
    /// `None` only for a WRITE of zero bytes.
    pub(crate) key: Option<Arc<Key>>,
    pub(crate) va: u64,
    pub(crate) left: u32,
    pub(crate) total: u32,
}

pub(crate) fn begin_write(
    served: &Served<'_>,
    nic: &mut NicResources<'_>,
    packet: &Packet<'_>,
) -> Result<InboundWrite, Refusal> {
    let reth = packet.headers.reth;
    if !served.roce.common.access.contains(Access::REMOTE_WRITE) || reth.dma_len > MAX_MESSAGE {
        return Err(INVALID);
    }
    let key = find_remote(served, nic, packet, Access::REMOTE_WRITE)?;
    Ok(InboundWrite {
        key,
        va: reth.va,
        left: reth.dma_len,
        total: reth.dma_len,
    })
}

pub(crate) fn begin_read(
    served: &Served<'_>,
    nic: &mut NicResources<'_>,
    packet: &Packet<'_>,
    msn: u32,
) -> Result<ReadReply, Refusal> {
    let reth = packet.headers.reth;
    let key = find_remote(served, nic, packet, Access::REMOTE_READ)?;
    Ok(ReadReply {
        psn: packet.headers.bth.psn,
        msn,
        key,
        va: reth.va,
        left: reth.dma_len,
        fresh: true,
        repeated: false,
    })
}

/// The key a request names, checked for its whole range. A request for zero bytes needs none.
pub(crate) fn find_remote(
    served: &Served<'_>,
    nic: &mut NicResources<'_>,
    packet: &Packet<'_>,
    needed: Access,
) -> Result<Option<Arc<Key>>, Refusal> {
    let reth = packet.headers.reth;
    if reth.dma_len == 0 {
        return Ok(None);
    }
    let key = nic
        .keys
        .find(reth.rkey, served.pd(), served.roce.common.qpn)
        .map_err(|_| ACCESS)?;
    key.check(reth.va, u64::from(reth.dma_len), needed)
        .map_err(|_| ACCESS)?;
    Ok(Some(key))
}

/// The lengths of a WRITE's packets must add up to what its first one announced.
pub(crate) fn check_write(write: &InboundWrite, length: usize, ends: bool) -> Result<(), Refusal> {
    let length = length as u64;
    let left = u64::from(write.left);
    let fits = if ends { length == left } else { length < left };
    if fits { Ok(()) } else { Err(INVALID) }
}

/// Where in its region the next bytes of a WRITE go, if its key still permits that.
pub(crate) fn locate(write: &InboundWrite, payload: &[u8]) -> Result<usize, Refusal> {
    if payload.is_empty() {
        return Ok(0);
    }
    let key = write.key.as_ref().ok_or(INVALID)?;
    key.check(write.va, payload.len() as u64, Access::REMOTE_WRITE)
        .map_err(|_| ACCESS)
}

pub(crate) fn place(write: &mut InboundWrite, at: usize, payload: &[u8]) -> Result<(), Refusal> {
    if let (Some(key), false) = (&write.key, payload.is_empty()) {
        key.region().write(at, payload).map_err(|_| ACCESS)?;
    }
    write.va = write.va.wrapping_add(payload.len() as u64);
    write.left -= payload.len() as u32;
    Ok(())
}

/// The rights a FLUSH needs.
pub(crate) fn flush_rights(placement: Placement) -> Access {
    let mut needed = Access::empty();
    needed.set(Access::FLUSH_GLOBAL, placement.contains(Placement::GLOBAL));
    needed.set(
        Access::FLUSH_PERSISTENT,
        placement.contains(Placement::PERSISTENT),
    );
    needed
}

/// First and middle packets are full, last ones not empty, and none is longer than the path MTU.
pub(crate) fn length_fits(operation: Operation, length: usize, mtu: u32) -> bool {
    let mtu = mtu as usize;
    if !operation.carries_payload() {
        length == 0
    } else if operation.is_first() || operation.is_middle() {
        length == mtu
    } else if operation.is_last() && !operation.is_only() {
        (1..=mtu).contains(&length)
    } else {
        length <= mtu
    }
}
