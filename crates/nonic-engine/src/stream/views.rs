//! Views of TCP connections, for inspection of a running process.

use super::Streams;
use super::connection::{Connection, Phase};
use nonic_core::Qpn;
use nonic_core::cm::{ConnectionId, ListenerView};
use nonic_wire::cm::ServiceId;
use std::net::SocketAddr;

/// A TCP connection at a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StreamView {
    pub(crate) id: ConnectionId,
    /// What it is at, in a word.
    pub(crate) phase: &'static str,
    /// Whether this side opened it.
    pub(crate) active: bool,
    /// What was asked for, if the peer did.
    pub(crate) service_id: Option<ServiceId>,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) qpn: Option<Qpn>,
}

impl Streams {
    /// The two ends of a queue pair's connection, ours first.
    pub(crate) fn ends_of(&self, qpn: Qpn) -> Option<(SocketAddr, SocketAddr)> {
        let connection = self.connections.get(*self.by_qpn.get(&qpn)?)?;
        Some((connection.local, connection.remote))
    }

    /// How many connections there are.
    pub(crate) fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// How many listeners there are.
    pub(crate) fn listener_count(&self) -> usize {
        self.listeners.len()
    }

    /// Shows the connections in the `slots` slots from `from` on; answers where to go on, `None` at the end.
    pub(crate) fn view_connections(
        &self,
        from: usize,
        slots: usize,
        show: &mut dyn FnMut(StreamView),
    ) -> Option<usize> {
        let all = self.connections.capacity();
        let end = from.saturating_add(slots).min(all);
        let portion = (from..end).filter_map(|slot| self.connections.get(slot));
        portion.for_each(|connection| show(connection.view()));
        (end < all).then_some(end)
    }

    /// The listeners.
    pub(crate) fn view_listeners(&self) -> Vec<ListenerView> {
        let listeners = self.listeners.values().map(|listener| ListenerView {
            service_id: listener.service_id,
            address: None,
            pending: listener.waiting,
            backlog: listener.backlog,
        });
        listeners.collect()
    }
}

impl Connection {
    fn view(&self) -> StreamView {
        StreamView {
            id: self.id,
            phase: match &self.phase {
                Phase::Connecting(_) => "Connecting",
                Phase::Refused(_) => "Refused",
                Phase::Starting { .. } => "Starting",
                Phase::Attached(_) => "Established",
                Phase::Ending => "Ending",
            },
            active: self.opened_for.is_none(),
            service_id: self.opened_for,
            local: self.local,
            remote: self.remote,
            qpn: self.qpn,
        }
    }
}
