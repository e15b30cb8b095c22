//! Snapshots of the connection manager for tools that inspect a running process.

use super::connection::{Connection, Role};
use super::{Cm, CmState, ConnectionId, Route};
use nonic_wire::cm::ServiceId;
use nonic_wire::{Qpn, Service};
use std::net::IpAddr;

/// A connection at one moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ConnectionView {
    /// Its local identifier.
    pub id: ConnectionId,
    /// Its state.
    pub state: CmState,
    /// Whether this side began it.
    pub active: bool,
    /// Our address and the peer's.
    pub route: Route,
    /// The service that was asked for.
    pub service_id: ServiceId,
    /// The transport service of its queue pairs; UD for a request to resolve a datagram service.
    pub service: Service,
    /// This side's queue pair; zero while unknown.
    pub local_qpn: Qpn,
    /// The peer's queue pair; zero while unknown.
    pub remote_qpn: Qpn,
}

/// A listener at one moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ListenerView {
    /// The service that is offered.
    pub service_id: ServiceId,
    /// The address it listens at; `None` for all of them.
    pub address: Option<IpAddr>,
    /// Requests that wait for the program.
    pub pending: usize,
    /// How many may wait.
    pub backlog: usize,
}

impl Cm {
    /// The names of all connections, in no order. Callers read them a few at a time ([`Cm::view_connection`]), because
    /// messages wait meanwhile.
    pub fn connection_ids(&self) -> Vec<ConnectionId> {
        self.connections.keys().copied().map(ConnectionId).collect()
    }

    /// A connection, unless it is forgotten.
    pub fn view_connection(&self, id: ConnectionId) -> Option<ConnectionView> {
        self.connections.get(&id.0).map(Connection::view)
    }

    /// The listeners.
    pub fn view_listeners(&self) -> Vec<ListenerView> {
        self.listeners.views().collect()
    }
}

impl Connection {
    fn view(&self) -> ConnectionView {
        ConnectionView {
            id: ConnectionId(self.local_id),
            state: self.state,
            active: self.role == Role::Active,
            route: self.route,
            service_id: self.service_id,
            service: self.service,
            local_qpn: self.local_qpn,
            remote_qpn: self.remote_qpn,
        }
    }
}
