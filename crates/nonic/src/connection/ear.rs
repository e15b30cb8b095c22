//! What all listeners have in common: a port, and a mailbox for what is asked there.

use super::Line;
use crate::device::Device;
use crate::switchboard::Mailbox;
use nonic_core::cm::{CmEvent, ConnectionId, ListenerId};
use nonic_engine::ListenError;
use nonic_wire::cm::{PortSpace, ServiceId};
use std::net::SocketAddr;
use std::sync::Arc;

/// Requests that wait for the program at a time; the peers of others ask again.
const BACKLOG: usize = 1024;
/// Where ports that nobody asked for by number are looked for.
const FREE_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// Listens at a port. Dropped, it no longer does; whoever drops it answers what `mailbox` still holds.
#[derive(Debug)]
pub(super) struct Ear {
    pub(super) device: Device,
    pub(super) address: SocketAddr,
    pub(super) mailbox: Arc<Mailbox>,
    id: ListenerId,
}

impl Ear {
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
        Ok(Ear {
            device: device.clone(),
            id,
            address,
            mailbox: device.switchboard.listener(id),
        })
    }

    /// The line of somebody who asked.
    pub(super) fn line(&self, id: ConnectionId) -> Line {
        Line {
            device: self.device.clone(),
            id,
            mailbox: self.device.switchboard.connection(id),
        }
    }

    /// Stops listening. Those who asked and were not heard are picked out of the mailbox, to be told.
    pub(super) fn close<R>(&self, pick: impl Fn(CmEvent) -> Option<R>, tell: impl Fn(R)) {
        self.device.engine.unlisten(self.id);
        self.device.switchboard.forget_listener(self.id);
        while let Some(unheard) = self.mailbox.take(&pick) {
            tell(unheard);
        }
    }
}

/// Tries ports from a random one on.
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
