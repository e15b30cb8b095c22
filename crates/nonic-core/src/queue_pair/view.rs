//! Snapshot of a queue pair for tools that inspect a running process: a copy, taken in one moment.
//!
//! Nothing here decides anything, and taking one changes nothing.

use super::context::QpContext;
use super::state::QpState;
use super::traffic::{Traffic, Troubles};
use crate::verbs::cq::CqId;
use crate::verbs::memory::PdId;
use crate::verbs::rq::SrqId;
use nonic_wire::{Psn, Qpn, Service};
use std::net::IpAddr;
use std::time::Duration;

/// A queue pair at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the others' names say it")]
pub struct QueuePairView {
    pub qpn: Qpn,
    pub service: Service,
    pub state: QpState,
    pub pd: PdId,
    pub send_cq: CqId,
    pub recv_cq: CqId,
    /// Whether it is one of iWARP: then it has neither path nor sequence numbers.
    pub iwarp: bool,
    /// The peer, once there is one. Datagram queue pairs have none; the peer of an iWARP queue pair is known to the
    /// owner of its stream.
    pub peer: Option<PeerView>,
    /// Bytes; zero without a path.
    pub path_mtu: u32,
    pub sequence: SequenceView,
    /// Send requests posted and not completed, and how many there may be.
    pub send_requests: usize,
    pub send_capacity: usize,
    /// Receives posted and not used, and how many there may be; those of the SRQ if it has one.
    pub receives: usize,
    pub receive_capacity: usize,
    pub srq: Option<SrqId>,
    /// Bytes of it that the window to the peer counts.
    pub in_flight_bytes: u64,
    /// The window to the peer's address, which all queue pairs to it share.
    pub window_bytes: Option<u64>,
    /// A usual round trip, if one was measured.
    pub round_trip: Option<Duration>,
    /// How often the peer may still not answer in time, and not be ready, before the queue pair fails.
    pub retries_left: u8,
    pub rnr_retries_left: u8,
    /// Whether packets are missing that are to be sent again.
    pub recovering: bool,
    /// Whether its requests go through a lane, as records.
    pub lane: bool,
    /// Whether the latest WRITE or READ was executed in the peer's memory.
    pub direct: bool,
    pub traffic: Traffic,
    pub troubles: Troubles,
}

/// The peer of a connected queue pair.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PeerView {
    /// Our address.
    pub local: IpAddr,
    /// Where it stands in the GID table.
    pub gid_index: u8,
    /// The peer's address.
    pub remote: IpAddr,
    /// Its queue pair.
    pub qpn: Qpn,
}

/// Where a queue pair stands in its sequences of packets; what does not apply to its service or state is `None`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SequenceView {
    /// The next packet to send.
    pub next: Option<Psn>,
    /// The oldest one that was not acknowledged.
    pub unacknowledged: Option<Psn>,
    /// The one expected from the peer.
    pub expected: Option<Psn>,
}

impl QueuePairView {
    /// What queue pairs of every transport have.
    pub(crate) fn of_common(common: &QpContext, send_requests: usize) -> Self {
        QueuePairView {
            qpn: common.qpn,
            service: common.service,
            state: common.state,
            pd: common.pd,
            send_cq: common.send_cq.id(),
            recv_cq: common.recv_cq.id(),
            iwarp: false,
            peer: None,
            path_mtu: 0,
            sequence: SequenceView::default(),
            send_requests,
            send_capacity: common.capacity.max_send_wr as usize,
            receives: common.rq.len(),
            receive_capacity: common.rq.capacity(),
            srq: common.rq.srq_id(),
            in_flight_bytes: 0,
            window_bytes: None,
            round_trip: None,
            retries_left: 0,
            rnr_retries_left: 0,
            recovering: false,
            lane: false,
            direct: false,
            traffic: common.traffic,
            troubles: Troubles::default(),
        }
    }
}
