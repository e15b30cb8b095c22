//! The side that is asked for connections.

use super::{ConnectError, Connection, Line, MAX_FETCHES, Mailbox};
use crate::device::Device;
use crate::endpoint::Endpoint;
use crate::queue_pair::{ConnectOptions, QueuePairBuilder};
use crate::transport::Connected;
use nonic_core::cm::{AcceptParams, CmEvent, ConnectRequest, ListenerId, RejectParams};
pub use nonic_engine::ListenError;
use nonic_wire::cm::{PortSpace, ServiceId};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Requests that wait for the program at a time; the peers of others ask again.
const BACKLOG: usize = 1024;
/// Where ports that nobody asked for by number are looked for.
const FREE_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// Waits for peers to connect to a port.
#[derive(Debug)]
pub struct Listener {
    device: Device,
    id: ListenerId,
    address: SocketAddr,
    mailbox: Arc<Mailbox>,
}

impl Listener {
    /// Listens at one of the device's addresses, or at all of a family (`0.0.0.0`, `[::]`). Port 0 is any free one.
    pub fn bind(device: &Device, address: SocketAddr) -> Result<Self, ListenError> {
        let listen = |port| {
            let service_id = ServiceId::from_port(PortSpace::Tcp, port);
            device.engine.listen(service_id, Some(address.ip()), BACKLOG)
        };
        let (port, id) = match address.port() {
            0 => first_free(listen)?,
            port => (port, listen(port)?),
        };
        Ok(Listener {
            device: device.clone(),
            id,
            address: SocketAddr::new(address.ip(), port),
            mailbox: device.switchboard.listener(id),
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next request.
    pub fn accept(&self) -> Result<Incoming, ConnectError> {
        let request = self.mailbox.wait(None, request).expect("no time limit was given");
        Ok(self.incoming(request))
    }

    /// The same, for at most `timeout`.
    pub fn accept_within(&self, timeout: Duration) -> Option<Incoming> {
        let request = self.mailbox.wait(Some(timeout), request)?;
        Some(self.incoming(request))
    }

    /// The same, in a task.
    pub async fn next(&self) -> Incoming {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The same, for whoever writes futures by hand.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Incoming> {
        self.mailbox
            .poll(context, request)
            .map(|request| self.incoming(request))
    }

    fn incoming(&self, request: Box<ConnectRequest>) -> Incoming {
        let line = Line {
            device: self.device.clone(),
            id: request.connection,
            mailbox: self.device.switchboard.connection(request.connection),
        };
        Incoming { request, line }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.device.engine.unlisten(self.id);
        self.device.switchboard.forget_listener(self.id);
        // Those who asked and were not heard learn of it now.
        while let Some(request) = self.mailbox.take(request) {
            drop(self.incoming(request));
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

fn request(event: CmEvent) -> Option<Box<ConnectRequest>> {
    match event {
        CmEvent::Request(request) => Some(request),
        _ => None,
    }
}

/// A peer that wants to connect. Accept it or reject it; dropped, it is rejected.
pub struct Incoming {
    request: Box<ConnectRequest>,
    line: Line,
}

impl Incoming {
    /// The peer's address, and its port as far as it told.
    pub fn peer_addr(&self) -> SocketAddr {
        let port = self.request.ip.as_ref().map_or(0, |ip| ip.source_port);
        SocketAddr::new(self.request.route.remote, port)
    }

    /// What the peer's program said, with zeros behind it.
    pub fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    /// Accepts with a queue pair of ours. At most 196 bytes of private data reach the peer's program.
    ///
    /// The connection can be used at once. A peer that sends before a receive is posted waits for one.
    pub fn accept<T: Connected>(
        self,
        builder: QueuePairBuilder<T>,
        private_data: &[u8],
    ) -> Result<Connection<T>, ConnectError> {
        self.accept_with(builder, &ConnectOptions::default(), private_data)
    }

    /// The same, with other than the usual options.
    pub fn accept_with<T: Connected>(
        self,
        builder: QueuePairBuilder<T>,
        options: &ConnectOptions,
        private_data: &[u8],
    ) -> Result<Connection<T>, ConnectError> {
        let peer = self.peer_addr();
        let Incoming { request, line } = self;
        if request.service != T::SERVICE {
            return Err(nonic_core::cm::CmError::Service(request.service).into());
        }
        let local = request.route.local;
        let gid_index = line.device.gids().iter().position(|gid| gid.address.ip == local);
        let gid_index = gid_index.and_then(|index| u8::try_from(index).ok());
        let gid_index = gid_index.ok_or(ConnectError::NoRoute(peer))?;
        let prepared = builder.gid_index(gid_index).build()?;
        let own = prepared.endpoint();
        let limit = options.fetches.min(MAX_FETCHES);
        let fetches = request
            .initiator_depth
            .min(request.responder_resources)
            .min(limit);
        let endpoint = Endpoint {
            ip: request.route.remote,
            qpn: request.remote_qpn,
            psn: request.remote_psn,
            mtu: request.path_mtu,
            qkey: 0,
        };
        let options = ConnectOptions {
            retries: request.retry_count,
            rnr_retries: request.rnr_retry_count,
            timeout: request.ack_timeout,
            fetches,
            ..*options
        };
        let pair = prepared.connect_with(&endpoint, &options)?;
        let params = AcceptParams {
            responder_resources: fetches,
            initiator_depth: fetches,
            rnr_retry_count: options.rnr_retries,
            private_data,
            ..AcceptParams::new(own.qpn, own.psn)
        };
        line.device.engine.accept(line.id, &params)?;
        Ok(Connection {
            pair,
            private_data: request.private_data,
            peer,
            line,
        })
    }

    /// Says no. At most 148 bytes of private data reach the peer's program.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        let params = RejectParams {
            private_data,
            ..RejectParams::default()
        };
        Ok(self.line.device.engine.reject(self.line.id, &params)?)
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming")
            .field("peer", &self.peer_addr())
            .finish_non_exhaustive()
    }
}
