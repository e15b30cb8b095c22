//! Writes the packets of a work request, for every service.

use crate::roce::context::RoceContext;
use crate::roce::segment::{Segment, packets_for};
use crate::verbs::memory::{Keys, SgFault};
use crate::verbs::work::{Destination, RemoteAddress, SendFlags, SendOp};
use crate::verbs::wqe::SendWqe;
use nonic_wire::{
    AtomicEth, Bth, Deth, Feth, Headers, ICRC_LEN, Opcode, Operation, Psn, Reth, Service, pad_len,
};

/// How many packets a request takes, or its answer if it is a READ; none for local operations.
#[inline]
pub(crate) fn packets_of(wqe: &SendWqe, mtu: u32) -> u32 {
    match wqe.op {
        op if op.is_local() => 0,
        op if op.is_atomic() => 1,
        _ => packets_for(wqe.length, mtu),
    }
}

/// A packet of a request, before it is written.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RequestPacket {
    pub(crate) operation: Operation,
    pub(crate) segment: Segment,
    /// How many packet sequence numbers it takes: more than one only for READ requests.
    pub(crate) psns: u32,
}

impl RequestPacket {
    /// Packet `index` of anything but a READ.
    pub(crate) fn of_message(wqe: &SendWqe, index: u32, mtu: u32) -> Self {
        let segment = Segment::of(wqe.length, index, mtu);
        RequestPacket {
            operation: segment.operation(wqe.op),
            segment,
            psns: 1,
        }
    }

    /// A READ request for `count` responses from `index` on.
    pub(crate) fn of_read(wqe: &SendWqe, index: u32, count: u32, mtu: u32) -> Self {
        let offset = u64::from(index) * u64::from(mtu);
        let length = (u64::from(wqe.length) - offset).min(u64::from(count) * u64::from(mtu)) as u32;
        let segment = Segment {
            offset,
            length,
            first: true,
            last: true,
        };
        RequestPacket {
            operation: Operation::ReadRequest,
            segment,
            psns: count,
        }
    }

    /// Bytes on the wire, ICRC included.
    pub(crate) fn wire_len(&self, roce: &RoceContext) -> usize {
        let opcode = Opcode::new(roce.common.service, self.operation).expect("posting checked the service");
        let payload = self.payload_len();
        opcode.header_len() + payload + pad_len(payload) + ICRC_LEN
    }

    /// Writes headers and payload; the ICRC's place is left for the sealer.
    pub(crate) fn write(
        &self,
        roce: &RoceContext,
        (wqe, keys): (&SendWqe, &Keys),
        psn: Psn,
        ack_request: bool,
        out: &mut [u8],
    ) -> Result<usize, SgFault> {
        let payload = self.payload_len();
        let mut headers = Headers::new(roce.bth(self.operation, psn));
        headers.bth.ack_request = ack_request;
        if matches!(roce.common.service, Service::Rc | Service::Xrc) {
            // We understand selective acknowledgements; a peer that does not know them ignores the bit.
            headers.bth.resv7 = Bth::SELECTIVE;
        }
        headers.bth.pad = pad_len(payload) as u8;
        headers.bth.solicited = self.segment.last && wqe.flags.contains(SendFlags::SOLICITED);
        self.describe(wqe, &mut headers);
        address(roce, wqe, &mut headers);
        let start = headers.emit(out);
        let end = start + payload;
        if payload > 0 {
            wqe.payload
                .gather(keys, self.segment.offset, &mut out[start..end])?;
        }
        out[end..end + pad_len(payload)].fill(0);
        Ok(end + pad_len(payload) + ICRC_LEN)
    }

    /// Fills in the extension headers of the operation.
    fn describe(&self, wqe: &SendWqe, headers: &mut Headers) {
        let whole = |remote| reth(remote, wqe.length);
        match wqe.op {
            SendOp::Send | SendOp::LocalInvalidate(_) | SendOp::BindWindow(_) => {}
            SendOp::SendWithImmediate(immediate) => headers.immediate = immediate,
            SendOp::SendWithInvalidate(rkey) => headers.invalidate_rkey = rkey,
            SendOp::Write(remote) | SendOp::AtomicWrite(remote) => headers.reth = whole(remote),
            SendOp::WriteWithImmediate(remote, immediate) => {
                headers.reth = whole(remote);
                headers.immediate = immediate;
            }
            SendOp::Flush(flush) => {
                headers.reth = reth(flush.remote, flush.length);
                headers.feth = Feth {
                    placement: flush.placement.bits(),
                    selectivity: flush.range as u8,
                };
            }
            SendOp::Read(remote) => {
                let va = remote.va.wrapping_add(self.segment.offset);
                headers.reth = reth(RemoteAddress { va, ..remote }, self.segment.length);
            }
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } => headers.atomic = atomic(remote, swap, compare),
            SendOp::FetchAdd { remote, add } => headers.atomic = atomic(remote, add, 0),
        }
    }

    fn payload_len(&self) -> usize {
        if self.operation.carries_payload() {
            self.segment.length as usize
        } else {
            0
        }
    }
}

/// Fills in where a datagram goes, or which SRQ an extended connection's request is for.
fn address(roce: &RoceContext, wqe: &SendWqe, headers: &mut Headers) {
    let Some(destination) = &wqe.destination else {
        return;
    };
    if roce.common.service == Service::Xrc {
        headers.xrc_srqn = destination.qpn.value();
        return;
    }
    headers.bth.dest_qp = destination.qpn;
    headers.deth = destination.deth(roce);
}

impl Destination {
    /// What a datagram to it says of its sender.
    pub(crate) fn deth(&self, roce: &RoceContext) -> Deth {
        let own = self.qkey & Destination::OWN_QKEY != 0;
        Deth {
            qkey: if own { roce.qkey } else { self.qkey },
            src_qp: roce.common.qpn,
        }
    }
}

fn reth(remote: RemoteAddress, dma_len: u32) -> Reth {
    Reth {
        va: remote.va,
        rkey: remote.rkey,
        dma_len,
    }
}

fn atomic(remote: RemoteAddress, swap_add: u64, compare: u64) -> AtomicEth {
    AtomicEth {
        va: remote.va,
        rkey: remote.rkey,
        swap_add,
        compare,
    }
}
