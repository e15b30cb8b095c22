//! What listeners for connections and for datagrams share: a port, and a channel for the requests that come there.

use super::ConnectionHandle;
use crate::cm_dispatcher::EventChannel;
use crate::device::Device;
use nonic_core::cm::{CmEvent, ConnectionId, ListenerId};
use nonic_engine::ListenError;
use nonic_wire::cm::{PortSpace, ServiceId};
use std::net::SocketAddr;
use std::sync::Arc;

/// Requests that wait for the program at a time; the peers of others ask again.
const BACKLOG: usize = 1024;
/// Where a free port is looked for if the program asks for port 0.
const FREE_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// Listens at a port until [`close`](CmListener::close), by which its owner answers what `channel` still holds.
#[derive(Debug)]
pub(super) struct CmListener {
    pub(super) device: Device,
    pub(super) address: SocketAddr,
    pub(super) channel: Arc<EventChannel>,
    id: ListenerId,
}

impl CmListener {
    /// Listens at an address, or at all of a family (the unspecified one); port 0 is any free one.
    pub(super) fn open(device: &Device, space: PortSpace, address: SocketAddr) -> Result<Self, ListenError> {
        let listen = |port| {
            let service_id = ServiceId::from_port(space, port);
            device.engine.listen(service_id, Some(address.ip()), BACKLOG)
        };
        let (port, id) = match address.port() {
            0 => first_free(listen)?,
            port => (port, listen(port)?),
        };
        let mut address = address;
        address.set_port(port);
        Ok(CmListener {
            device: device.clone(),
            id,
            address,
            channel: device.cm_dispatcher.listener(id),
        })
    }

    /// The connection that a request asks for.
    pub(super) fn handle(&self, id: ConnectionId) -> ConnectionHandle {
        ConnectionHandle {
            device: self.device.clone(),
            id,
            channel: self.device.cm_dispatcher.connection(id),
        }
    }

    /// Stops listening. Requests that the program did not take go through `pick` to `tell`, which answers them.
    pub(super) fn close<R>(&self, pick: impl Fn(CmEvent) -> Option<R>, tell: impl Fn(R)) {
        self.device.engine.unlisten(self.id);
        self.device.cm_dispatcher.forget_listener(self.id);
        while let Some(unheard) = self.channel.take(&pick) {
            tell(unheard);
        }
    }
}

/// Tries ports one after the other, beginning at one that depends on the process.
fn first_free(
    listen: impl Fn(u16) -> Result<ListenerId, ListenError>,
) -> Result<(u16, ListenerId), ListenError> {
    let count = FREE_PORTS.len() as u32;
    // A listener's name is no secret: any spread will do.
    let start = std::process::id().wrapping_mul(0x9e37_79b9) >> 8;
    for step in 0..count {
        let port = FREE_PORTS.start() + ((start.wrapping_add(step)) % count) as u16;
        match listen(port) {
            Err(ListenError::InUse) => {}
            other => return other.map(|id| (port, id)),
        }
    }
    Err(ListenError::InUse)
}
