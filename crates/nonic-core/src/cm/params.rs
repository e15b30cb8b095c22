//! Parameters of the program's calls, and why a call is refused.

use super::state::CmState;
use crate::queue_pair::{AckTimeout, PathMtu};
use crate::roce::qp1::Route;
use nonic_wire::cm::{IpHeader, RejectReason, ServiceId, SidrStatus};
use nonic_wire::{Psn, Qpn, Service};
use std::time::Duration;

/// Names a connection, or a service being resolved: its local communication identifier.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConnectionId(pub u32);

/// Names a listener.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ListenerId(pub u64);

/// Parameters of a request to connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectParams<'a> {
    /// Our address and the peer's.
    pub route: Route,
    /// The service that is asked for.
    pub service_id: ServiceId,
    /// RC, UC or XRC.
    pub service: Service,
    /// Our queue pair.
    pub qpn: Qpn,
    /// The sequence number with which the *peer* begins to send; it chooses ours.
    pub starting_psn: Psn,
    /// READs and atomics we can answer at a time.
    pub responder_resources: u8,
    /// READs and atomics we want to have under way at a time.
    pub initiator_depth: u8,
    /// Retries the peer's queue pair should make.
    pub retry_count: u8,
    /// The same after "receiver not ready".
    pub rnr_retry_count: u8,
    /// Whether we do end-to-end flow control.
    pub flow_control: bool,
    /// Whether our queue pair has a shared receive queue.
    pub srq: bool,
    /// The path MTU both use.
    pub path_mtu: PathMtu,
    /// How long either queue pair waits for acknowledgements.
    pub ack_timeout: AckTimeout,
    /// Flow label of the path.
    pub flow_label: u32,
    /// Traffic class of the path.
    pub traffic_class: u8,
    /// Ports and addresses, for services at IP addresses. Takes 36 of the 92 bytes of private data.
    pub ip: Option<IpHeader>,
    /// Private data for the program at the other end.
    pub private_data: &'a [u8],
    /// How long to wait for a silent peer, in steps of the response timeout; as configured without it.
    pub patience: Option<Duration>,
}

impl ConnectParams<'_> {
    /// What most connections want.
    pub fn new(route: Route, service_id: ServiceId, qpn: Qpn, starting_psn: Psn) -> Self {
        ConnectParams {
            route,
            service_id,
            service: Service::Rc,
            qpn,
            starting_psn,
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 7,
            rnr_retry_count: 7,
            flow_control: false,
            srq: false,
            path_mtu: PathMtu::Mtu1024,
            ack_timeout: AckTimeout::from_exponent(14).unwrap_or(AckTimeout::INFINITE),
            flow_label: 0,
            traffic_class: 0,
            ip: None,
            private_data: &[],
            patience: None,
        }
    }
}

/// Our side of a connection that is accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcceptParams<'a> {
    /// Our queue pair.
    pub qpn: Qpn,
    /// The sequence number with which the *peer* begins to send; it chooses ours.
    pub starting_psn: Psn,
    /// READs and atomics we answer at a time.
    pub responder_resources: u8,
    /// READs and atomics we will have under way at a time.
    pub initiator_depth: u8,
    /// Whether we do end-to-end flow control.
    pub flow_control: bool,
    /// Retries after "receiver not ready" that the peer's queue pair should make.
    pub rnr_retry_count: u8,
    /// Whether our queue pair has a shared receive queue.
    pub srq: bool,
    /// How long we may take to acknowledge (exponent).
    pub target_ack_delay: u8,
    /// Private data for the program at the other end: at most 196 bytes.
    pub private_data: &'a [u8],
}

impl AcceptParams<'_> {
    /// What most connections want.
    pub fn new(qpn: Qpn, starting_psn: Psn) -> Self {
        AcceptParams {
            qpn,
            starting_psn,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            rnr_retry_count: 7,
            srq: false,
            target_ack_delay: 15,
            private_data: &[],
        }
    }
}

/// Why a connection is rejected.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RejectParams<'a> {
    /// The reason.
    pub reason: RejectReason,
    /// Additional information about it: at most 72 bytes.
    pub info: &'a [u8],
    /// Private data for the program at the other end: at most 148 bytes.
    pub private_data: &'a [u8],
}

impl Default for RejectParams<'_> {
    fn default() -> Self {
        RejectParams {
            reason: RejectReason::CONSUMER_DEFINED,
            info: &[],
            private_data: &[],
        }
    }
}

/// Which datagram service to resolve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolveParams<'a> {
    /// Our address and the peer's.
    pub route: Route,
    /// The service that is asked for.
    pub service_id: ServiceId,
    /// Ports and addresses, for services at IP addresses. Takes 36 of the 216 bytes of private data.
    pub ip: Option<IpHeader>,
    /// Private data for the program at the other end.
    pub private_data: &'a [u8],
}

/// The answer to a request to resolve a datagram service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnswerParams<'a> {
    /// Whether the service is offered; without `VALID`, the queue pair and its key mean nothing.
    pub status: SidrStatus,
    /// The queue pair that offers the service.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub qkey: u32,
    /// Additional information about a refusal: at most 72 bytes.
    pub info: &'a [u8],
    /// Private data for the program at the other end: at most 136 bytes.
    pub private_data: &'a [u8],
}

/// Why a call was refused. Nothing happened then.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// There is no such connection (any more).
    #[error("no such connection")]
    NoSuchConnection,
    /// The connection is not in a state for that.
    #[error("not possible in state {0}")]
    State(CmState),
    /// More private data or information than the message has room for.
    #[error("{given} bytes are more than the {room} there is room for")]
    TooLong {
        /// Bytes given.
        given: usize,
        /// Bytes there is room for.
        room: usize,
    },
    /// Another listener has this service at this address.
    #[error("somebody listens there already")]
    InUse,
    /// Too many connections or listeners.
    #[error("too many connections or listeners")]
    Limit,
    /// Connections are made of connected services only.
    #[error("a {0:?} queue pair cannot be connected")]
    Service(Service),
}
