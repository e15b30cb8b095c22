//! Connecting by address and service: the device's side of the connection manager.
//!
//! Every call holds the first shard's lock and sends its messages before it returns. The device's [`ConnectionSink`]
//! receives the events of connections.

use super::Device;
use crate::shard::{ConnectionSink, Effort};
use crate::stream::Streams;
use nonic_core::cm::{
    AcceptParams, AnswerParams, Cm, CmError, ConnectParams, ConnectionId, ListenerId, RejectParams,
    ResolveParams,
};
use nonic_core::{Nic, Time};
use nonic_wire::cm::ServiceId;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long listening waits for the kernel to steer by the new service. With a stopped process among those at the port it
/// takes two rounds of waiting for an answer.
const STEERING_PATIENCE: Duration = Duration::from_millis(250);

/// Why listening failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another listener has the service already, in this process or another.
    #[error("somebody listens on that port already; stop it, or choose another port")]
    InUse,
    /// The device does not have the address.
    #[error("the device has no address {0}")]
    NoAddress(IpAddr),
    /// There are too many listeners.
    #[error(transparent)]
    Refused(CmError),
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// As a sentence: it is what a program prints that ends with it.
impl fmt::Debug for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Device {
    /// Sets the sink that receives the events of connections from now on.
    pub fn set_connection_sink(&self, sink: Arc<dyn ConnectionSink>) {
        self.inner.common.connections.set_sink(sink);
    }

    /// Takes requests for a service: at one address, at all of a family (the unspecified one), or at all. At
    /// most `backlog` wait for an answer at a time. One process per address and service can do so.
    pub fn listen(
        &self,
        service_id: ServiceId,
        address: Option<IpAddr>,
        backlog: usize,
    ) -> Result<ListenerId, ListenError> {
        let mut turn = self.inner.home();
        let wanted = |own| is_meant(address, own);
        if let Some((streams, _)) = turn.streams() {
            return listen_to_streams(streams, service_id, address, backlog);
        }
        if let (Some(address), true) = (
            address,
            !turn.presences().any(|presence| wanted(presence.address().ip)),
        ) {
            return Err(ListenError::NoAddress(address));
        }
        let connections = &self.inner.common.connections;
        let listener = connections.with(|cm| cm.listen(service_id, address, backlog));
        let listener = listener.map_err(|error| match error {
            CmError::InUse => ListenError::InUse,
            error => ListenError::Refused(error),
        })?;
        let refused = turn
            .presences_mut()
            .filter(|presence| wanted(presence.address().ip))
            .find_map(|presence| presence.listen(listener, service_id.0).err());
        if let Some(error) = refused {
            turn.presences_mut()
                .for_each(|presence| presence.unlisten(listener));
            connections.with(|cm| cm.unlisten(listener));
            return Err(match error.kind() {
                io::ErrorKind::AddrInUse => ListenError::InUse,
                _ => error.into(),
            });
        }
        drop(turn);
        self.await_steering();
        Ok(listener)
    }

    /// Waits briefly until the kernel knows that requests for a new service are for this process: one that came before
    /// could go to a process that is stopped.
    fn await_steering(&self) {
        let deadline = Instant::now() + STEERING_PATIENCE;
        loop {
            let mut turn = self.inner.home();
            let now = turn.now();
            turn.drive(now, Effort::Full);
            let steered = turn.presences().all(|presence| presence.is_steered(now));
            if steered || Instant::now() >= deadline {
                return;
            }
            drop(turn);
            // The other shards are asked too.
            self.progress();
            std::thread::yield_now();
        }
    }

    /// Takes no more requests. Those that the sink has received stay to be answered. Answers whether there was a listener.
    pub fn unlisten(&self, listener: ListenerId) -> bool {
        let mut turn = self.inner.home();
        let now = turn.now();
        if let Some((streams, _)) = turn.streams() {
            return streams.unlisten(listener);
        }
        // What lies in its inboxes would be lost with them.
        turn.drive(now, Effort::Full);
        turn.presences_mut()
            .for_each(|presence| presence.unlisten(listener));
        self.inner.common.connections.with(|cm| cm.unlisten(listener))
    }

    /// Asks a peer for a connection.
    pub fn connect(&self, params: &ConnectParams<'_>) -> Result<ConnectionId, CmError> {
        self.manage_either(
            |cm, now| cm.connect(now, params),
            |streams, _, now| streams.connect(now, params),
        )
    }

    /// Accepts a request to connect.
    pub fn accept(&self, connection: ConnectionId, params: &AcceptParams<'_>) -> Result<(), CmError> {
        self.manage_either(
            |cm, now| cm.accept(now, connection, params),
            |streams, nic, now| streams.accept(now, nic, connection, params),
        )
    }

    /// Rejects a request to connect, or a peer that accepted ours.
    pub fn reject(&self, connection: ConnectionId, params: &RejectParams<'_>) -> Result<(), CmError> {
        self.manage_either(
            |cm, now| cm.reject(now, connection, params),
            |streams, nic, now| streams.reject(now, nic, connection, params),
        )
    }

    /// Tells a peer that accepted that our queue pair is ready.
    pub fn establish(&self, connection: ConnectionId, private_data: &[u8]) -> Result<(), CmError> {
        self.manage_either(
            |cm, now| cm.establish(now, connection, private_data),
            // Start-up has done so.
            |_, _, _| Ok(()),
        )
    }

    /// Ends a connection.
    pub fn disconnect(&self, connection: ConnectionId, private_data: &[u8]) -> Result<(), CmError> {
        self.manage_either(
            |cm, now| cm.disconnect(now, connection, private_data),
            |streams, nic, now| streams.disconnect(now, nic, connection),
        )
    }

    /// Gives a connection up in whatever state it is; the sink hears no more of it.
    pub fn abandon(&self, connection: ConnectionId) -> Result<(), CmError> {
        self.manage_either(
            |cm, now| cm.abandon(now, connection),
            |streams, nic, now| streams.abandon(now, nic, connection),
        )
    }

    /// Asks a peer for a datagram service.
    pub fn resolve_service(&self, params: &ResolveParams<'_>) -> Result<ConnectionId, CmError> {
        self.manage(|cm, now| cm.resolve(now, params))
    }

    /// Answers a request for a datagram service.
    pub fn answer_service(&self, connection: ConnectionId, params: &AnswerParams<'_>) -> Result<(), CmError> {
        self.manage(|cm, now| cm.answer(now, connection, params))
    }

    /// Makes a call of the connection manager, or of the streams of an iWARP device.
    fn manage_either<T>(
        &self,
        roce: impl FnOnce(&mut Cm, Time) -> Result<T, CmError>,
        iwarp: impl FnOnce(&mut Streams, &mut Nic, Time) -> Result<T, CmError>,
    ) -> Result<T, CmError> {
        let mut turn = self.inner.home();
        let now = turn.now();
        match turn.streams() {
            Some((streams, nic)) => iwarp(streams, nic, now),
            None => self.inner.common.connections.with(|cm| roce(cm, now)),
        }
    }

    /// Makes a call of the connection manager. What it leads to is sent at the end of the turn.
    fn manage<T>(&self, call: impl FnOnce(&mut Cm, Time) -> Result<T, CmError>) -> Result<T, CmError> {
        let turn = self.inner.home();
        let now = turn.now();
        self.inner.common.connections.with(|cm| call(cm, now))
    }
}

fn listen_to_streams(
    streams: &mut Streams,
    service_id: ServiceId,
    address: Option<IpAddr>,
    backlog: usize,
) -> Result<ListenerId, ListenError> {
    let listener = streams.listen(service_id, |own| is_meant(address, own), backlog);
    listener.map_err(|error| match (error.kind(), address) {
        (io::ErrorKind::AddrInUse, _) => ListenError::InUse,
        (io::ErrorKind::AddrNotAvailable, Some(address)) => ListenError::NoAddress(address),
        _ => error.into(),
    })
}

/// Whether a listener at `address` listens at `own`.
fn is_meant(address: Option<IpAddr>, own: IpAddr) -> bool {
    address.is_none_or(|address| {
        address == own || (address.is_unspecified() && address.is_ipv4() == own.is_ipv4())
    })
}
