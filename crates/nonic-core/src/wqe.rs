//! A send-queue work request while the NIC works on it, and how it is cut into packets.

use crate::memory::{Access, SgFault, SgList};
use crate::work::{Destination, SendFlags, SendOp};
use nonic_wire::Operation;
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
    /// The position of its first packet in the send queue's packet sequence, which is the PSN without its
    /// wrap. A READ occupies the places of its responses.
    pub(crate) first: u64,
    /// How many places it occupies; zero for local operations.
    pub(crate) packets: u32,
    /// For READs: how many packets one request asks for, fixed when the first one is sent.
    pub(crate) chunk: u32,
}

/// Where a request's bytes are.
#[derive(Debug)]
pub(crate) enum Payload {
    Memory(SgList),
    Inline(SmallVec<[u8; 64]>),
}

impl Payload {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Payload::Memory(list) => list.length(),
            Payload::Inline(bytes) => bytes.len() as u64,
        }
    }

    pub(crate) fn check(&self, needed: Access) -> Result<(), SgFault> {
        match self {
            Payload::Memory(list) => list.check(needed),
            Payload::Inline(_) => Ok(()),
        }
    }

    pub(crate) fn gather(&self, offset: u64, out: &mut [u8]) -> Result<(), SgFault> {
        match self {
            Payload::Memory(list) => list.gather(offset, out),
            Payload::Inline(bytes) => {
                let start = offset as usize;
                out.copy_from_slice(bytes.get(start..start + out.len()).ok_or(SgFault::Length)?);
                Ok(())
            }
        }
    }

    pub(crate) fn scatter(&self, offset: u64, data: &[u8]) -> Result<(), SgFault> {
        match self {
            Payload::Memory(list) => list.scatter(offset, data),
            // Posting refuses inline fetches.
            Payload::Inline(_) => Err(SgFault::Length),
        }
    }
}

impl SendWqe {
    /// One past the position of its last packet.
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.packets)
    }

    /// The `index`-th packet of the request's payload.
    pub(crate) fn segment(&self, index: u32, mtu: u32) -> Segment {
        let offset = u64::from(index) * u64::from(mtu);
        let length = u64::from(self.length).saturating_sub(offset).min(u64::from(mtu)) as u32;
        Segment {
            offset,
            length,
            first: index == 0,
            last: index + 1 >= self.packets,
        }
    }
}

/// How many packets `length` bytes take.
pub(crate) fn packets_for(length: u32, mtu: u32) -> u32 {
    length.div_ceil(mtu).max(1)
}

/// One packet's share of a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) first: bool,
    pub(crate) last: bool,
}

impl Segment {
    /// The operation code of this packet of a SEND or WRITE.
    pub(crate) fn operation(&self, op: SendOp) -> Operation {
        use Operation as O;
        let by_place = |first, middle, last, only| match (self.first, self.last) {
            (true, true) => only,
            (true, false) => first,
            (false, true) => last,
            (false, false) => middle,
        };
        match op {
            SendOp::Send => by_place(O::SendFirst, O::SendMiddle, O::SendLast, O::SendOnly),
            SendOp::SendWithImmediate(_) => by_place(
                O::SendFirst,
                O::SendMiddle,
                O::SendLastWithImmediate,
                O::SendOnlyWithImmediate,
            ),
            SendOp::SendWithInvalidate(_) => by_place(
                O::SendFirst,
                O::SendMiddle,
                O::SendLastWithInvalidate,
                O::SendOnlyWithInvalidate,
            ),
            SendOp::Write(_) => by_place(O::WriteFirst, O::WriteMiddle, O::WriteLast, O::WriteOnly),
            SendOp::WriteWithImmediate(..) => by_place(
                O::WriteFirst,
                O::WriteMiddle,
                O::WriteLastWithImmediate,
                O::WriteOnlyWithImmediate,
            ),
            SendOp::Read(_) => O::ReadRequest,
            SendOp::CompareSwap { .. } => O::CompareSwap,
            SendOp::FetchAdd { .. } => O::FetchAdd,
            SendOp::AtomicWrite(_) => O::AtomicWrite,
            SendOp::Flush(_) => O::Flush,
            // Local operations have no packets; `packets == 0` keeps them from here.
            SendOp::LocalInvalidate(_) | SendOp::BindWindow(_) => O::Acknowledge,
        }
    }
}
