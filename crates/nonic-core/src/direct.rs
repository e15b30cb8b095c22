//! Direct access: WRITEs, READs and atomics that the requester executes itself, in the memory of a peer on the same host.
//!
//! The target's processor takes no part. An embedder that can reach a peer's memory (`nonic-engine`, or a simulator)
//! implements [`DirectAccess`] and gives it to the NIC. The core decides when it may be used:
//!
//! - The requester writes records to a lane ([`crate::Lanes`]), and asks only while nothing of its queue pair is under way. So a
//!   request is executed in its place of the order. Whatever is not plain — a wrong key or right, a queue pair in another state,
//!   memory that is not there — is [`Direct::Refused`], and the request goes as a record, which then succeeds or fails by the ordinary
//!   rules. So the direct path reports no errors of its own.
//! - The responder is not told: to it, nothing has happened.
//! - The responder's side publishes what peers may do ([`DirectAccess::publish`],
//!   [`KeyPublisher`](crate::KeyPublisher)) and revokes it. When revoking returns, no access that relied on it is under
//!   way.
//!
//! Nothing here touches memory but [`PublishedKey::execute`], which is for simulated hosts. When the core asks, and why
//! nothing is executed twice or out of order, is in `roce::local::direct`.

use crate::verbs::memory::{Access, Key, Keys, PdId, Region, SgFault, SgList};
use nonic_wire::{Psn, Qpn};
use std::net::IpAddr;
use std::sync::Arc;

/// Access to the memory of peers on this host, and theirs to ours.
pub trait DirectAccess: Send {
    /// Executes a piece of a request, if the target's queue pair and keys permit it and it is connected to ours.
    fn execute(&mut self, request: &DirectRequest<'_>) -> Direct;

    /// Executes whole WRITEs, or READs, that follow each other on one queue pair and name one key. Returns how many, from the first on;
    /// of those behind them, the peer's memory or ours may show a part.
    fn execute_run(&mut self, requests: &[DirectRequest<'_>]) -> usize {
        let executed = |request: &&DirectRequest<'_>| self.execute(request) != Direct::Refused;
        requests.iter().take_while(executed).count()
    }

    /// What peers may do to one of our queue pairs from now on; `None` is nothing at all. When that returns, no access
    /// that needed more than is permitted now is under way.
    fn publish(&mut self, qpn: Qpn, target: Option<&Target>);
}

/// What became of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Direct {
    /// It was executed.
    Done,
    /// An atomic was executed, once and for all; what the word was before.
    Fetched(u64),
    /// It was not, or only in part: it has to go as a record. An atomic is not executed in part.
    Refused,
}

/// One of our queue pairs as a target of direct access.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Our address and the peer's.
    pub local: IpAddr,
    /// See `local`.
    pub remote: IpAddr,
    /// The peer's queue pair.
    pub peer: Qpn,
    /// The domain that keys must belong to.
    pub pd: PdId,
    /// What the queue pair permits.
    pub access: Access,
    /// The number that the peer's requests began with: a requester of an earlier connection does not know it.
    pub first: Psn,
}

impl Target {
    /// Whether it executes a request of its peer's now.
    fn serves(&self, request: &DirectRequest<'_>) -> bool {
        self.remote == request.local
            && self.peer == request.own
            && self.first == request.first
            && self.access.contains(request.operation.needs_there())
    }
}

/// A key published on a simulated host: peers reach its memory because all of them are in one process.
#[derive(Clone)]
pub struct PublishedKey {
    pd: PdId,
    iova: u64,
    length: u64,
    offset: usize,
    access: Access,
    region: Arc<dyn Region>,
}

impl PublishedKey {
    /// What peers see of a key.
    pub fn of(key: &Key) -> Self {
        PublishedKey {
            pd: key.pd(),
            iova: key.iova(),
            length: key.length(),
            offset: key.offset(),
            access: key.access(),
            region: key.share_region(),
        }
    }

    /// Executes a piece of a request, if a target and this key permit it; by way of a buffer.
    pub fn execute(&self, target: &Target, request: &DirectRequest<'_>, buffer: &mut Vec<u8>) -> Direct {
        self.try_execute(target, request, buffer)
            .unwrap_or(Direct::Refused)
    }

    fn try_execute(
        &self,
        target: &Target,
        request: &DirectRequest<'_>,
        buffer: &mut Vec<u8>,
    ) -> Option<Direct> {
        let needed = request.operation.needs_there();
        let permitted = target.serves(request) && target.pd == self.pd && self.access.contains(needed);
        let start = request.va.checked_sub(self.iova).filter(|_| permitted)?;
        let end = start.checked_add(u64::from(request.left))?;
        if end > self.length {
            return None;
        }
        let at = self.offset + start as usize;
        let aligned = request.va % 8 == 0;
        let LocalBytes {
            memory,
            offset,
            length,
        } = request.bytes;
        buffer.resize(length as usize, 0);
        match request.operation {
            DirectOperation::Write => {
                memory.gather(offset, buffer).ok()?;
                self.region.write(at, buffer).ok()?;
            }
            DirectOperation::Read | DirectOperation::Pull => {
                self.region.read(at, buffer).ok()?;
                memory.scatter(offset, buffer).ok()?;
            }
            _ if !aligned => return None,
            DirectOperation::FetchAdd(add) => {
                return self.region.fetch_add(at, add).ok().map(Direct::Fetched);
            }
            DirectOperation::CompareSwap { compare, swap } => {
                let original = self.region.compare_swap(at, compare, swap);
                return original.ok().map(Direct::Fetched);
            }
        }
        Some(Direct::Done)
    }
}

/// A piece of a WRITE or READ, or an atomic, to be executed in the memory of a peer.
#[derive(Copy, Clone, Debug)]
pub struct DirectRequest<'a> {
    /// Our queue pair and its address.
    pub own: Qpn,
    /// See `own`.
    pub local: IpAddr,
    /// The peer's queue pair and its address.
    pub target: Qpn,
    /// See `target`.
    pub remote: IpAddr,
    /// The number that requests of this connection began with, which the target must know.
    pub first: Psn,
    /// What is done.
    pub operation: DirectOperation,
    /// Where this piece begins at the target.
    pub va: u64,
    /// How many bytes of the request begin there: this piece and all that follow it. The target's key must permit all of
    /// them, or none is touched.
    pub left: u32,
    /// The target's key.
    pub rkey: u32,
    /// Our own memory, as long as the piece. [`DirectAccess::execute`] does not place there what an atomic fetched.
    pub bytes: LocalBytes<'a>,
}

/// What is done to the target's memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DirectOperation {
    /// Our bytes go there. The last ones must appear last: programs watch them.
    Write,
    /// Its bytes come here.
    Read,
    /// The same for the bytes of a SEND that it has under way to us: what it sends, it lets us have.
    Pull,
    /// So much is added to its word, in one step.
    FetchAdd(u64),
    /// Its word is replaced if it is what was expected, in one step.
    CompareSwap {
        /// What is expected.
        compare: u64,
        /// What takes its place.
        swap: u64,
    },
}

impl DirectOperation {
    /// The right that the target's queue pair and key must both give.
    pub fn needs_there(self) -> Access {
        match self {
            DirectOperation::Write => Access::REMOTE_WRITE,
            DirectOperation::Read => Access::REMOTE_READ,
            DirectOperation::Pull => Access::empty(),
            DirectOperation::FetchAdd(_) | DirectOperation::CompareSwap { .. } => Access::REMOTE_ATOMIC,
        }
    }

    /// The right that our own keys must give.
    pub fn needs_here(self) -> Access {
        match self {
            DirectOperation::Write => Access::empty(),
            _ => Access::LOCAL_WRITE,
        }
    }

    /// Whether it must be executed in one step, and never twice.
    #[inline]
    pub fn is_atomic(self) -> bool {
        matches!(
            self,
            DirectOperation::FetchAdd(_) | DirectOperation::CompareSwap { .. }
        )
    }
}

/// A stretch of our own memory: where a request's bytes come from or go to.
#[derive(Copy, Clone, Debug)]
pub struct LocalBytes<'a> {
    pub(crate) memory: LocalMemory<'a>,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// The memory of a request or of a receive.
#[derive(Copy, Clone, Debug)]
pub(crate) enum LocalMemory<'a> {
    List(&'a SgList, &'a Keys),
    Inline(&'a [u8]),
}

impl LocalMemory<'_> {
    #[inline]
    pub(crate) fn gather(&self, offset: u64, out: &mut [u8]) -> Result<(), SgFault> {
        match self {
            LocalMemory::List(list, keys) => list.gather(keys, offset, out),
            LocalMemory::Inline(bytes) => {
                let start = offset as usize;
                out.copy_from_slice(bytes.get(start..start + out.len()).ok_or(SgFault::Length)?);
                Ok(())
            }
        }
    }

    #[inline]
    pub(crate) fn scatter(&self, offset: u64, data: &[u8]) -> Result<(), SgFault> {
        match self {
            LocalMemory::List(list, keys) => list.scatter(keys, offset, data),
            // Posting refuses inline fetches.
            LocalMemory::Inline(_) => Err(SgFault::Length),
        }
    }
}

impl LocalBytes<'_> {
    /// How many bytes.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether there are none. The core never asks for that.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Visits its contiguous parts, in order. Returns whether the keys permit the operation at this moment: a READ
    /// writes here. If not, parts before the one that does not may have been visited.
    #[inline]
    pub fn parts(&self, operation: DirectOperation, mut visit: impl FnMut(LocalPart<'_>)) -> bool {
        match self.memory {
            LocalMemory::List(list, keys) => list
                .walk(
                    keys,
                    (self.offset, self.len()),
                    operation.needs_here(),
                    |key, offset, length| {
                        visit(LocalPart::Memory {
                            region: key.region(),
                            offset,
                            length,
                        });
                        Ok(())
                    },
                )
                .is_ok(),
            LocalMemory::Inline(bytes) => {
                let start = self.offset as usize;
                let part = bytes.get(start..start + self.len());
                // Posting refuses inline READs and atomics.
                let Some(part) = part.filter(|_| operation == DirectOperation::Write) else {
                    return false;
                };
                visit(LocalPart::Inline(part));
                true
            }
        }
    }
}

/// One contiguous part of it.
#[derive(Copy, Clone)]
pub enum LocalPart<'a> {
    /// Registered memory whose key permits the access at this moment.
    Memory {
        /// Where it is.
        region: &'a dyn Region,
        /// Where in the region it begins.
        offset: usize,
        /// How long it is.
        length: usize,
    },
    /// Bytes that came with the request.
    Inline(&'a [u8]),
}
