//! A send-queue work request while the NIC works on it. Each transport keeps its own state, packets or anything else,
//! beside it.

use crate::direct::LocalMemory;
use crate::verbs::memory::{Access, KeyError, KeyTable, PdId, SgFault, SgList};
use crate::verbs::work::{Data, Destination, RemoteAddress, SendFlags, SendOp, SendRequest};
use nonic_wire::Qpn;
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
    /// A request of a queue pair whose data was checked. Keys are looked up, inline data is copied.
    #[inline]
    pub(crate) fn new(keys: &KeyTable, (pd, qpn): (PdId, Qpn), request: &SendRequest<'_>) -> Self {
        SendWqe {
            wr_id: request.wr_id,
            op: request.op,
            flags: request.flags,
            payload: match request.data {
                Data::Inline(bytes) => Payload::Inline(bytes.into()),
                Data::Sges(sges) => Payload::Memory(SgList::resolve(sges, keys, pd, qpn)),
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
    pub(crate) fn memory(&self) -> LocalMemory<'_> {
        match self {
            Payload::Memory(list) => LocalMemory::List(list),
            Payload::Inline(bytes) => LocalMemory::Inline(bytes),
        }
    }

    /// Where so many bytes are that begin at an offset, for the peer. `None` if they are in several places.
    pub(crate) fn named(&self, offset: u64, length: u32) -> Option<RemoteAddress> {
        match self {
            Payload::Memory(list) => {
                let (va, rkey) = list.named(offset, length)?;
                Some(RemoteAddress { va, rkey })
            }
            Payload::Inline(_) => None,
        }
    }

    pub(crate) fn check(&self, needed: Access) -> Result<(), SgFault> {
        match self {
            Payload::Memory(list) => list.check(needed),
            Payload::Inline(_) => Ok(()),
        }
    }

    /// Which key does not permit it: see [`SgList::fault`].
    pub(crate) fn fault(&self, needed: Access) -> Option<((u32, u64, u64), KeyError)> {
        match self {
            Payload::Memory(list) => list.fault(needed),
            Payload::Inline(_) => None,
        }
    }

    pub(crate) fn gather(&self, offset: u64, out: &mut [u8]) -> Result<(), SgFault> {
        self.memory().gather(offset, out)
    }

    pub(crate) fn scatter(&self, offset: u64, data: &[u8]) -> Result<(), SgFault> {
        self.memory().scatter(offset, data)
    }
}
