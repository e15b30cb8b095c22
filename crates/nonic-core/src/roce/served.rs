//! On whose behalf a peer's request is executed: an extended reliable connection serves many receive queues.

use crate::placement::{PeerRights, RemoteRange};
use crate::record::RequestKind;
use crate::resources::{NicResources, Received};
use crate::roce::context::RoceContext;
use crate::roce::xrc::XrcSrq;
use crate::verbs::rq::RecvWqe;
use nonic_wire::Packet;

/// The queue pair on whose behalf a request is executed, or the SRQ that the request names.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Served<'a> {
    pub(crate) roce: &'a RoceContext,
    pub(crate) srq: Option<&'a XrcSrq>,
}

impl Served<'_> {
    /// What the peer may do to memory.
    pub(crate) fn rights<'a>(&self, nic: &'a NicResources) -> PeerRights<'a> {
        let common = &self.roce.common;
        PeerRights {
            keys: &nic.keys,
            // Keys belong to the domain of the SRQ, if there is one.
            pd: self.srq.map_or(common.pd, |srq| srq.rq.pd()),
            qpn: common.qpn,
            access: common.access,
        }
    }

    /// Takes the next receive.
    #[inline]
    pub(crate) fn take_recv(&self, nic: &mut NicResources) -> Option<RecvWqe> {
        match self.srq {
            Some(srq) => nic.take_shared_recv(&srq.rq),
            None => self.roce.common.take_recv(nic),
        }
    }

    /// Ends a receive.
    #[inline]
    pub(crate) fn complete_recv(&self, nic: &mut NicResources, received: Received) {
        let own = &self.roce.common.recv_cq;
        nic.complete_recv(self.srq.map_or(own, |srq| &srq.cq), received);
    }
}

/// The range of memory that a request names, if it is of a kind that names one.
pub(crate) fn named_range(packet: &Packet<'_>, kind: RequestKind) -> Option<RemoteRange> {
    let operation = packet.headers.bth.opcode.operation();
    if operation.has_invalidate() {
        let rkey = packet.headers.invalidate_rkey;
        return Some(RemoteRange {
            va: 0,
            length: 0,
            rkey,
        });
    }
    match kind {
        RequestKind::Atomic => Some(RemoteRange {
            va: packet.headers.atomic.va,
            length: 8,
            rkey: packet.headers.atomic.rkey,
        }),
        kind => kind.names_memory().then(|| range_of(packet)),
    }
}

/// The range of memory that a packet names.
pub(crate) fn range_of(packet: &Packet<'_>) -> RemoteRange {
    let reth = packet.headers.reth;
    RemoteRange {
        va: reth.va,
        length: reth.dma_len,
        rkey: reth.rkey,
    }
}
