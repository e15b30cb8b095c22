//! Connecting by address and service: the device's side of the connection manager.
//!
//! Every call is made under the shard's lock and sends what it has to say before it returns. What becomes of a
//! connection is told to the device's [`ConnectionSink`].

use super::Device;
use crate::registry::{ServiceClaim, ServiceName};
use crate::shard::{ConnectionSink, Effort, Shard};
use nonic_core::Time;
use nonic_core::cm::{
    AcceptParams, AnswerParams, CmError, ConnectParams, ConnectionId, ListenerId, RejectParams, ResolveParams,
};
use nonic_wire::cm::ServiceId;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long listening waits for the kernel to sort by the new service. With a stopped process among those at the port it
/// takes two rounds of waiting for an answer.
const STEERING_PATIENCE: Duration = Duration::from_millis(250);

/// Why listening failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Somebody listens there already, in this process or another.
    #[error("somebody listens on that port already")]
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

impl Device {
    /// Names who hears of connections from now on.
    pub fn set_connection_sink(&self, sink: Arc<dyn ConnectionSink>) {
        self.inner.progress.turn().connection_sink = Some(sink);
    }

    /// Takes requests for a service: at one address, at all of a family (the unspecified one), or at all. At
    /// most `backlog` wait for an answer at a time. One process per address and service can do so.
    pub fn listen(
        &self,
        service_id: ServiceId,
        address: Option<IpAddr>,
        backlog: usize,
    ) -> Result<ListenerId, ListenError> {
        let mut shard = self.inner.progress.turn();
        let wanted: Vec<usize> = (0..shard.attachments.len())
            .filter(|index| is_meant(address, shard.attachments[*index].address.ip))
            .collect();
        if let (Some(address), true) = (address, wanted.is_empty()) {
            return Err(ListenError::NoAddress(address));
        }
        let claims: io::Result<Vec<ServiceClaim>> = wanted
            .iter()
            .map(|index| {
                ServiceClaim::claim(ServiceName {
                    address: shard.attachments[*index].address,
                    service_id: service_id.0,
                })
            })
            .collect();
        let claims = claims.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse,
            _ => error.into(),
        })?;
        for claim in &claims {
            self.inner.progress.watch(claim.inbox())?;
        }
        let listener = match shard.gsi.cm.listen(service_id, address, backlog) {
            Ok(listener) => listener,
            Err(CmError::InUse) => return Err(ListenError::InUse),
            Err(error) => return Err(ListenError::Refused(error)),
        };
        for (index, claim) in wanted.into_iter().zip(claims) {
            shard.attachments[index].services.push((listener, claim));
            shard.attachments[index].steering.want_again();
        }
        drop(shard);
        self.await_steering();
        Ok(listener)
    }

    /// Waits briefly until the kernel knows that requests for a new service are for this process: one that came before
    /// could go to a process that is stopped.
    fn await_steering(&self) {
        let deadline = Instant::now() + STEERING_PATIENCE;
        loop {
            let mut shard = self.inner.progress.turn();
            shard.drive(Effort::Full);
            if shard.is_steered() || Instant::now() >= deadline {
                return;
            }
            drop(shard);
            std::thread::yield_now();
        }
    }

    /// Takes no more requests. Those already told of stay to be answered. Answers whether there was a listener.
    pub fn unlisten(&self, listener: ListenerId) -> bool {
        let mut shard = self.inner.progress.turn();
        // What lies in its inboxes would be lost with them.
        shard.drive(Effort::Full);
        for attachment in &mut shard.attachments {
            attachment.services.retain(|(owner, _)| *owner != listener);
        }
        shard.gsi.cm.unlisten(listener)
    }

    /// Asks a peer for a connection.
    pub fn connect(&self, params: &ConnectParams<'_>) -> Result<ConnectionId, CmError> {
        self.manage(|shard, now| shard.gsi.cm.connect(now, params))
    }

    /// Accepts a request to connect.
    pub fn accept(&self, connection: ConnectionId, params: &AcceptParams<'_>) -> Result<(), CmError> {
        self.manage(|shard, now| shard.gsi.cm.accept(now, connection, params))
    }

    /// Rejects a request to connect, or a peer that accepted ours.
    pub fn reject(&self, connection: ConnectionId, params: &RejectParams<'_>) -> Result<(), CmError> {
        self.manage(|shard, now| shard.gsi.cm.reject(now, connection, params))
    }

    /// Tells a peer that accepted that our queue pair is ready.
    pub fn establish(&self, connection: ConnectionId, private_data: &[u8]) -> Result<(), CmError> {
        self.manage(|shard, now| shard.gsi.cm.establish(now, connection, private_data))
    }

    /// Ends a connection.
    pub fn disconnect(&self, connection: ConnectionId, private_data: &[u8]) -> Result<(), CmError> {
        self.manage(|shard, now| shard.gsi.cm.disconnect(now, connection, private_data))
    }

    /// Gives a connection up in whatever state it is; the sink hears no more of it.
    pub fn abandon(&self, connection: ConnectionId) -> Result<(), CmError> {
        self.manage(|shard, now| shard.gsi.cm.abandon(now, connection))
    }

    /// Asks a peer for a datagram service.
    pub fn resolve_service(&self, params: &ResolveParams<'_>) -> Result<ConnectionId, CmError> {
        self.manage(|shard, now| shard.gsi.cm.resolve(now, params))
    }

    /// Answers a request for a datagram service.
    pub fn answer_service(&self, connection: ConnectionId, params: &AnswerParams<'_>) -> Result<(), CmError> {
        self.manage(|shard, now| shard.gsi.cm.answer(now, connection, params))
    }

    /// Makes a call of the connection manager and sends what it leads to.
    fn manage<T>(&self, call: impl FnOnce(&mut Shard, Time) -> Result<T, CmError>) -> Result<T, CmError> {
        let mut shard = self.inner.progress.turn();
        let now = shard.clock.now();
        call(&mut shard, now)
    }
}

/// Whether somebody who listens at `address` listens at `own`.
fn is_meant(address: Option<IpAddr>, own: IpAddr) -> bool {
    address.is_none_or(|address| {
        address == own || (address.is_unspecified() && address.is_ipv4() == own.is_ipv4())
    })
}
