//! Segmentation of a message into packets of at most the path MTU.

use crate::verbs::work::SendOp;
use nonic_wire::Operation;

/// How many packets `length` bytes take.
#[inline]
pub(crate) fn packets_for(length: u32, mtu: u32) -> u32 {
    match length <= mtu {
        // Most take one, and a division takes longer than everything else here.
        true => 1,
        false => length.div_ceil(mtu),
    }
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
    /// The `index`-th packet of a message of `length` bytes.
    pub(crate) fn of(length: u32, index: u32, mtu: u32) -> Self {
        let offset = u64::from(index) * u64::from(mtu);
        let left = u64::from(length).saturating_sub(offset);
        Segment {
            offset,
            length: left.min(u64::from(mtu)) as u32,
            first: index == 0,
            last: left <= u64::from(mtu),
        }
    }

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
            // Local operations have no packets.
            SendOp::LocalInvalidate(_) | SendOp::BindWindow(_) => O::Acknowledge,
        }
    }
}

/// Whether a packet has a length that it may have: first and middle packets are full, last ones not empty, and none is longer
/// than the path MTU.
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
