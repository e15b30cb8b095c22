//! The passive side of a connection: listens, and accepts or rejects requests.

use super::cm_listener::CmListener;
use super::{ConnectError, Connection, ConnectionHandle};
use crate::device::Device;
use crate::endpoint::Endpoint;
use crate::private_data::PrivateData;
use crate::queue_pair::{ConnectOptions, FetchLimits, QueuePairBuilder};
use crate::transport::Connected;
use futures_core::Stream;
use nonic_core::Service;
use nonic_core::cm::{AcceptParams, CmError, CmEvent, ConnectRequest};
pub use nonic_engine::ListenError;
use nonic_wire::cm::{PortSpace, RejectReason};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Waits for peers to connect to a port: a thread by [`accept`](Listener::accept), a task by [`incoming`](Listener::incoming), or by
/// taking it as a stream.
///
/// ```
/// use futures_util::StreamExt;
/// use nonic::{Device, Listener, connect};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let device = Device::open("roce_lo")?;
/// let domain = device.domain();
/// let mut listener = Listener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let client = connect(domain.pair_builder::<nonic::Rc>(), listener.local_addr(), b"")?;
/// while let Some(incoming) = listener.next().await {
///     let connection = incoming.accept(domain.pair_builder::<nonic::Rc>(), b"welcome")?;
///     println!("{} is here", connection.peer_addr());
///     # break;
/// }
/// # Ok(()) })
/// # }
/// ```
#[derive(Debug)]
pub struct Listener {
    listener: CmListener,
}

impl Listener {
    /// Listens at one of the device's addresses, or at all of a family (`0.0.0.0`, `[::]`). Port 0 is any free one.
    ///
    /// All are those of this device: to be reached through others too, listen on each of [`Device::list`], as
    /// `nonic_stream::RdmaListener` does.
    #[doc(alias("rdma_bind_addr", "rdma_listen"))]
    pub fn bind(device: &Device, address: SocketAddr) -> Result<Self, ListenError> {
        let listener = CmListener::open(device, PortSpace::Tcp, address)?;
        Ok(Listener { listener })
    }

    /// The device whose address it is.
    pub fn device(&self) -> &Device {
        &self.listener.device
    }

    /// Where it listens.
    #[doc(alias("rdma_get_local_addr", "rdma_get_src_port"))]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.address
    }

    /// Waits for the next request.
    #[doc(alias("rdma_get_request", "rdma_get_cm_event"))]
    pub fn accept(&self) -> Result<Incoming, ConnectError> {
        let request = self
            .listener
            .channel
            .wait(None, request)
            .expect("no time limit was given");
        Ok(self.take(request))
    }

    /// The same, for at most `timeout`.
    #[doc(alias("rdma_get_request", "rdma_get_cm_event"))]
    pub fn accept_within(&self, timeout: Duration) -> Option<Incoming> {
        let request = self.listener.channel.wait(Some(timeout), request)?;
        Some(self.take(request))
    }

    /// The same, in a task.
    #[doc(alias("rdma_get_request", "rdma_get_cm_event"))]
    pub async fn incoming(&self) -> Incoming {
        std::future::poll_fn(|context| self.poll_incoming(context)).await
    }

    /// The same, for hand-written futures.
    pub fn poll_incoming(&self, context: &mut Context<'_>) -> Poll<Incoming> {
        self.listener
            .channel
            .poll(context, request)
            .map(|request| self.take(request))
    }

    fn take(&self, mut request: Box<ConnectRequest>) -> Incoming {
        Incoming {
            handle: self.listener.handle(request.connection),
            private_data: PrivateData::new(std::mem::take(&mut request.private_data)),
            request,
        }
    }
}

/// All requests, without end.
impl Stream for Listener {
    type Item = Incoming;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Incoming>> {
        self.poll_incoming(context).map(Some)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Requests that the program did not take are rejected now.
        self.listener.close(request, |request| drop(self.take(request)));
    }
}

fn request(event: CmEvent) -> Option<Box<ConnectRequest>> {
    match event {
        CmEvent::Request(request) => Some(request),
        _ => None,
    }
}

/// A peer that wants to connect. Accept it or reject it; dropped, it is rejected.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let listener = nonic::Listener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let connecting = nonic::connect(domain.pair_builder::<nonic::Rc>(), listener.local_addr(), b"password")?;
/// let incoming = listener.accept_within(patience).ok_or("nobody came")?;
/// println!("{} knocks", incoming.peer_addr());
/// if incoming.private_data().trimmed() == b"password" {
///     let connection = incoming.accept(domain.pair_builder::<nonic::Rc>(), b"welcome")?;
///     # assert_eq!(connecting.wait()?.private_data().trimmed(), b"welcome");
/// } else {
///     incoming.reject(b"wrong password")?;
/// }
/// # Ok(()) }
/// ```
pub struct Incoming {
    request: Box<ConnectRequest>,
    private_data: PrivateData,
    handle: ConnectionHandle,
}

impl Incoming {
    /// The peer's address, and its port, which is 0 if its request does not carry one.
    pub fn peer_addr(&self) -> SocketAddr {
        let port = self.request.ip.as_ref().map_or(0, |ip| ip.source_port);
        SocketAddr::new(self.request.route.remote, port)
    }

    /// Which of our addresses it asked.
    pub fn local_ip(&self) -> IpAddr {
        self.request.route.local
    }

    /// The private data that the peer sent with its request.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// Accepts with a queue pair of ours. At most 196 bytes of private data reach the peer's program.
    ///
    /// The connection can be used at once. A peer that sends before a receive is posted waits for one.
    #[doc(alias = "rdma_accept")]
    pub fn accept<T: Connected>(
        self,
        builder: QueuePairBuilder<T>,
        private_data: &[u8],
    ) -> Result<Connection<T>, ConnectError> {
        self.accept_with(builder, &ConnectOptions::default(), private_data)
    }

    /// The same, with other than the usual options.
    #[doc(alias = "rdma_accept")]
    pub fn accept_with<T: Connected>(
        self,
        builder: QueuePairBuilder<T>,
        options: &ConnectOptions,
        private_data: &[u8],
    ) -> Result<Connection<T>, ConnectError> {
        let peer = self.peer_addr();
        let Incoming {
            request,
            private_data: said,
            handle,
        } = self;
        if request.service != T::SERVICE || T::SERVICE == Service::Xrc {
            handle.reject(RejectReason::INVALID_TRANSPORT_TYPE, &[])?;
            return Err(CmError::Service(request.service).into());
        }
        // Packets of the peer's size must fit our interface: both ends use the same.
        if request.path_mtu > handle.device.port_mtu() {
            handle.reject(RejectReason::INVALID_MTU, &[])?;
            return Err(ConnectError::Mtu(request.path_mtu));
        }
        let gid_index = handle.device.gid_index(request.route.local);
        let gid_index = gid_index.ok_or(ConnectError::NoRoute(peer))?;
        let prepared = builder.gid_index(gid_index).room_for_probes(options).build()?;
        prepared.permit(options)?;
        let own = prepared.endpoint();
        let limit = options.fetches.min(handle.device.engine.config().max_rd_atomic);
        let fetches = FetchLimits {
            begun: request.initiator_depth.min(limit),
            answered: request.responder_resources.min(limit),
        };
        let endpoint = Endpoint {
            ip: request.route.remote,
            qpn: request.remote_qpn,
            psn: request.starting_psn,
            mtu: request.path_mtu,
            qkey: 0,
        };
        let options = ConnectOptions {
            mtu: Some(request.path_mtu),
            retries: request.retry_count,
            rnr_retries: request.rnr_retry_count,
            timeout: request.ack_timeout,
            ..*options
        };
        let pair = prepared.connect_by_cm(&endpoint, &options, fetches)?;
        let params = AcceptParams {
            responder_resources: fetches.answered,
            initiator_depth: fetches.begun,
            rnr_retry_count: options.rnr_retries,
            private_data,
            ..AcceptParams::new(own.qpn, own.psn)
        };
        handle.device.engine.accept(handle.id, &params)?;
        Ok(Connection::new(pair, &options, said, peer, handle))
    }

    /// Rejects it. At most 148 bytes of private data reach the peer's program.
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        self.reject_with(RejectReason::CONSUMER_DEFINED, private_data)
    }

    /// The same, for another reason than that the program does not want it.
    #[doc(alias = "rdma_reject")]
    pub fn reject_with(self, reason: RejectReason, private_data: &[u8]) -> Result<(), ConnectError> {
        self.handle.reject(reason, private_data)
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming")
            .field("peer", &self.peer_addr())
            .finish_non_exhaustive()
    }
}
