//! A send-queue work request while the NIC works on it. Each transport keeps its own state, packets or anything else,
//! beside it.

use crate::direct::LocalMemory;
use crate::verbs::memory::{Access, KeyError, Keys, PdId, SgFault, SgList};
use crate::verbs::work::{Data, Destination, RemoteAddress, SendFlags, SendOp, SendRequest};
use smallvec::SmallVec;

/// A posted send-queue request.
#[derive(Debug)]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    pub(crate) payload: Payload,
    pub(crate) length: u32,
    /// Boxed: only datagrams and XRC requests have one, and every queued request would pay for it.
    pub(crate) destination: Option<Box<Destination>>,
}

impl SendWqe {
    /// A request of a queue pair whose data was checked. Inline data is copied. Always inlined, as all are that hand it on to the queue:
    /// each move of so long a value waits for the stores that made it.
    #[inline(always)]
    pub(crate) fn new(pd: PdId, request: &SendRequest<'_>) -> Self {
        SendWqe {
            wr_id: request.wr_id,
            op: request.op,
            flags: request.flags,
            payload: match request.data {
                Data::Inline(bytes) => Payload::Inline(bytes.into()),
                Data::Sges(sges) => Payload::Memory(SgList::new(sges, pd)),
            },
            length: request.data.length() as u32,
            destination: request.destination.map(Box::new),
        }
    }
}

/// Where a request's bytes are.
#[derive(Debug)]
pub(crate) enum Payload {
    Memory(SgList),
    Inline(SmallVec<[u8; 64]>),
}

impl Payload {
    /// For direct access.
    #[inline]
    pub(crate) fn memory<'a>(&'a self, keys: &'a Keys) -> LocalMemory<'a> {
        match self {
            Payload::Memory(list) => LocalMemory::List(list, keys),
            Payload::Inline(bytes) => LocalMemory::Inline(bytes),
        }
    }

    /// Where so many bytes are that begin at an offset, for the peer. `None` if they are in several places.
    pub(crate) fn named(&self, keys: &Keys, offset: u64, length: u32) -> Option<RemoteAddress> {
        match self {
            Payload::Memory(list) => {
                let (va, rkey) = list.named(keys, offset, length)?;
                Some(RemoteAddress { va, rkey })
            }
            Payload::Inline(_) => None,
        }
    }

    pub(crate) fn check(&self, keys: &Keys, needed: Access) -> Result<(), SgFault> {
        match self {
            Payload::Memory(list) => list.check(keys, needed),
            Payload::Inline(_) => Ok(()),
        }
    }

    /// Which key does not permit it: see [`SgList::fault`].
    pub(crate) fn fault(&self, keys: &Keys, needed: Access) -> Option<((u32, u64, u64), KeyError)> {
        match self {
            Payload::Memory(list) => list.fault(keys, needed),
            Payload::Inline(_) => None,
        }
    }

    #[inline]
    pub(crate) fn gather(&self, keys: &Keys, offset: u64, out: &mut [u8]) -> Result<(), SgFault> {
        self.memory(keys).gather(offset, out)
    }

    pub(crate) fn scatter(&self, keys: &Keys, offset: u64, data: &[u8]) -> Result<(), SgFault> {
        self.memory(keys).scatter(offset, data)
    }
}
