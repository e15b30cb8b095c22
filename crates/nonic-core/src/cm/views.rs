//! Snapshots of the connection manager for tools that inspect a running process.

use super::connection::{Connection, Role};
use super::{Cm, CmState, ConnectionId, Route};
use nonic_wire::cm::ServiceId;
use nonic_wire::{Qpn, Service};
use std::net::IpAddr;

/// A connection at a moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ConnectionView {
    /// What this side calls it.
    pub id: ConnectionId,
    /// Where it stands.
    pub state: CmState,
    /// Whether this side began it.
    pub active: bool,
    /// Between which addresses.
    pub route: Route,
    /// What was asked for.
    pub service_id: ServiceId,
    /// The service of its queue pairs; UD for a question about a datagram service.
    pub service: Service,
    /// This side's queue pair and the peer's, zero while unknown.
    pub local_qpn: Qpn,
    /// The peer's.
    pub remote_qpn: Qpn,
}

/// A listener at a moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ListenerView {
    /// What is offered.
    pub service_id: ServiceId,
    /// At which address; `None` at all of them.
    pub address: Option<IpAddr>,
    /// Requests that wait for the program.
    pub pending: usize,
    /// How many of them may.
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
