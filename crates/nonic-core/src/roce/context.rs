//! The part that queue pairs of all RoCE services share, connected or not: the route to the peer, sequence numbers and
//! timeouts.

use crate::queue_pair::{AckTimeout, Path, PathMtu, QpAttributes, QpContext, RnrTimer};
use crate::resources::NicResources;
use crate::roce::emit::Hop;
use crate::roce::window::{PeerId, PeerWindow};
use crate::roce::xrc::XrcDomain;
use nonic_wire::{Bth, Flow, Opcode, Operation, Psn, Qpn, Service};

/// A queue pair of RoCE as far as its attributes go.
#[derive(Debug)]
pub(crate) struct RoceContext {
    /// What it shares with queue pairs of other transports.
    pub(crate) common: QpContext,
    /// For an XRC target: whose SRQs it serves.
    pub(crate) domain: Option<XrcDomain>,
    pub(crate) qkey: u32,
    pub(crate) path: Option<Path>,
    /// Addresses of our packets to the peer; meaningful once `path` is set.
    pub(crate) flow: Flow,
    pub(crate) peer: Option<PeerId>,
    pub(crate) mtu: u32,
    pub(crate) dest_qpn: Qpn,
    pub(crate) timeout: AckTimeout,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: RnrTimer,
    pub(crate) sq_psn: Psn,
    pub(crate) rq_psn: Psn,
    /// Whether the peer was heard while still in RTR.
    pub(crate) heard: bool,
}

impl RoceContext {
    /// Whether it is the half of an XRC connection that only sends.
    pub(crate) fn is_initiator(&self) -> bool {
        self.common.service == Service::Xrc && self.domain.is_none()
    }

    /// A base transport header to the connected peer.
    pub(crate) fn bth(&self, operation: Operation, psn: Psn) -> Bth {
        let opcode = Opcode::new(self.common.service, operation).expect("the service offers what was posted");
        Bth::new(opcode, self.dest_qpn, psn)
    }

    /// The way to the connected peer.
    pub(crate) fn hop(&self) -> Hop {
        Hop {
            flow: self.flow,
            dest_qpn: self.dest_qpn,
            gid_index: self.path.map_or(0, |path| path.gid_index),
        }
    }

    /// The same if there is one: datagrams go wherever each of them says.
    pub(crate) fn connected_hop(&self) -> Option<Hop> {
        (self.common.service != Service::Ud && self.path.is_some()).then(|| self.hop())
    }

    pub(crate) fn peer<'a>(&self, nic: &'a mut NicResources) -> Option<&'a mut PeerWindow> {
        self.peer.map(|id| nic.peers.peer(id))
    }

    /// The attributes in force.
    pub(crate) fn attributes(&self) -> QpAttributes {
        QpAttributes {
            state: Some(self.common.state),
            access: Some(self.common.access),
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(self.qkey),
            path: self.path,
            path_mtu: PathMtu::from_bytes(self.mtu),
            timeout: Some(self.timeout),
            retry_count: Some(self.retry_count),
            rnr_retry: Some(self.rnr_retry),
            rq_psn: Some(self.rq_psn),
            max_rd_atomic: Some(self.common.max_rd_atomic),
            min_rnr_timer: Some(self.min_rnr_timer),
            sq_psn: Some(self.sq_psn),
            max_dest_rd_atomic: Some(self.common.max_dest_rd_atomic),
            dest_qpn: Some(self.dest_qpn),
            rate_limit: None,
        }
    }
}
