//! Events of the connection manager for its owner, with all that the owner needs to move its queue pairs.
//!
//! The numbers of READs and atomics are from our point of view: `responder_resources` is how many we are asked to
//! answer at a time, `initiator_depth` how many we may have under way. (On the wire they are from the sender's.)

use super::params::{ConnectionId, ListenerId};
use crate::queue_pair::{AckTimeout, PathMtu};
use crate::roce::qp1::Route;
use nonic_wire::cm::{IpHeader, RejectReason, ServiceId, SidrStatus};
use nonic_wire::{Psn, Qpn, Service};
use std::fmt;

/// An event of a connection.
///
/// A connection that the owner knows of ends with exactly one of `Rejected`, `Unreachable`, `TimewaitExit`,
/// `SidrResponse`, or with the owner's own `reject`, `answer` or `abandon`; no event follows that. `TimewaitExit`
/// always comes after `Disconnected`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// Passive: a peer wants to connect. Accept or reject.
    Request(Box<ConnectRequest>),
    /// Active: the peer accepted. Bring the queue pair to RTS, then establish (or reject).
    Response(Box<ConnectResponse>),
    /// Passive: the peer is ready.
    Established {
        /// The connection.
        connection: ConnectionId,
        /// The RTU's private data; empty if data overtook the RTU.
        private_data: Vec<u8>,
    },
    /// The peer does not want it (any more).
    Rejected {
        /// The connection.
        connection: ConnectionId,
        /// Our queue pair.
        qpn: Qpn,
        /// Why.
        reason: RejectReason,
        /// Additional information (ARI) about the reason.
        info: Vec<u8>,
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// The peer did not answer.
    Unreachable {
        /// The connection.
        connection: ConnectionId,
        /// Our queue pair.
        qpn: Qpn,
        /// Whether its host refused more than one message: no process holds the RoCE port there.
        refused: bool,
    },
    /// It is over. The queue pair should go to the error state.
    Disconnected {
        /// The connection.
        connection: ConnectionId,
        /// Our queue pair.
        qpn: Qpn,
        /// How it ended.
        cause: Disconnect,
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// Nothing of the connection is under way any more: its queue pair may be used again.
    TimewaitExit {
        /// The connection.
        connection: ConnectionId,
    },
    /// Passive: a peer looks for a datagram service. Answer.
    SidrRequest(Box<SidrRequest>),
    /// Active: the answer. Only `VALID` names a queue pair.
    SidrResponse(Box<SidrResponse>),
}

/// How a connection ended.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Disconnect {
    /// The peer asked for it.
    Remote,
    /// We asked for it, and the peer confirmed.
    Local,
    /// We asked for it, and the peer did not answer.
    TimedOut,
    /// The peer holds that there is no such connection, or has ended.
    Unknown,
}

impl fmt::Display for Disconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Disconnect::Remote => "the peer disconnected",
            Disconnect::Local => "disconnected by this side",
            Disconnect::TimedOut => "disconnected by this side, and the peer did not answer",
            Disconnect::Unknown => "the peer's process has ended, or does not know of it",
        })
    }
}

/// A peer's request to connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// The connection that it became.
    pub connection: ConnectionId,
    /// The listener that it reached.
    pub listener: ListenerId,
    /// The service that is asked for.
    pub service_id: ServiceId,
    /// Our address and the peer's.
    pub route: Route,
    /// Ports and addresses, if the service is at an IP address.
    pub ip: Option<IpHeader>,
    /// RC, UC or XRC.
    pub service: Service,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// With which sequence number *we* begin to send: the peer chooses it.
    pub starting_psn: Psn,
    /// READs and atomics we are asked to answer at a time.
    pub responder_resources: u8,
    /// READs and atomics we may have under way at a time.
    pub initiator_depth: u8,
    /// Whether the peer does end-to-end flow control.
    pub flow_control: bool,
    /// Retries our queue pair should make.
    pub retry_count: u8,
    /// The same after "receiver not ready".
    pub rnr_retry_count: u8,
    /// Whether the peer has a shared receive queue.
    pub srq: bool,
    /// The path MTU to use, at most.
    pub path_mtu: PathMtu,
    /// How long our queue pair should wait for acknowledgements.
    pub ack_timeout: AckTimeout,
    /// Flow label of the path.
    pub flow_label: u32,
    /// Traffic class of the path.
    pub traffic_class: u8,
    /// Names the peer's adapter.
    pub remote_ca_guid: u64,
    /// The peer's private data, without the IP header.
    pub private_data: Vec<u8>,
}

/// A peer's acceptance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectResponse {
    /// The connection.
    pub connection: ConnectionId,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// With which sequence number *we* begin to send: the peer chooses it.
    pub starting_psn: Psn,
    /// READs and atomics we are asked to answer at a time.
    pub responder_resources: u8,
    /// READs and atomics we may have under way at a time.
    pub initiator_depth: u8,
    /// Whether the peer does end-to-end flow control.
    pub flow_control: bool,
    /// Retries after "receiver not ready" that our queue pair should make.
    pub rnr_retry_count: u8,
    /// How long the peer may take to acknowledge (exponent).
    pub target_ack_delay: u8,
    /// Whether the peer has a shared receive queue.
    pub srq: bool,
    /// Names the peer's adapter.
    pub remote_ca_guid: u64,
    /// The peer's private data.
    pub private_data: Vec<u8>,
}

/// A request to resolve a datagram service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidrRequest {
    /// Names this exchange from now on.
    pub connection: ConnectionId,
    /// The listener that it reached.
    pub listener: ListenerId,
    /// The service that is asked for.
    pub service_id: ServiceId,
    /// Our address and the peer's.
    pub route: Route,
    /// Ports and addresses, if the service is at an IP address.
    pub ip: Option<IpHeader>,
    /// The peer's private data, without the IP header.
    pub private_data: Vec<u8>,
}

/// The answer to a request to resolve a datagram service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidrResponse {
    /// Which request this answers.
    pub connection: ConnectionId,
    /// Whether the service is offered; without `VALID`, the queue pair and its key mean nothing.
    pub status: SidrStatus,
    /// The queue pair that offers the service.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub qkey: u32,
    /// Additional information about a refusal.
    pub info: Vec<u8>,
    /// The peer's private data.
    pub private_data: Vec<u8>,
}
