//! The active side of a connection: asks a listener for it.

use super::{ConnectError, Connection, ConnectionHandle};
use crate::device::Device;
use crate::endpoint::Endpoint;
use crate::private_data::PrivateData;
use crate::queue_pair::{ConnectOptions, FetchLimits, Prepared, QueuePairBuilder};
use crate::route::source_of;
use crate::span::Span;
use crate::transport::Connected;
use nonic_core::cm::{CmError, CmEvent, ConnectParams, ConnectResponse, Route};
use nonic_core::{ModifyError, QpState, Service};
use nonic_wire::cm::{IpHeader, PortSpace, RejectReason, ServiceId};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Asks the listener at `peer` for a connection. At most 56 bytes of private data reach its program.
///
/// It is asked from the address that the kernel would send from, or from the one with the builder's `gid_index`.
///
/// ```
/// use nonic::{Rc, connect};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let listener = nonic::Listener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// let asked = connect(domain.pair_builder::<Rc>(), listener.local_addr(), b"hello")?;
/// # let incoming = listener.accept_within(patience).ok_or("nobody came")?;
/// # let server = incoming.accept(domain.pair_builder::<Rc>(), b"")?;
/// let connection = asked.wait()?; // or `asked.await?`
/// # Ok(()) }
/// ```
pub fn connect<T: Connected>(
    builder: QueuePairBuilder<T>,
    peer: SocketAddr,
    private_data: &[u8],
) -> Result<Connecting<T>, ConnectError> {
    connect_with(builder, peer, &ConnectOptions::default(), private_data)
}

/// The same, with other than the usual options.
///
/// ```
/// use nonic::{ConnectOptions, Rc, connect_with};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// let options = ConnectOptions {
///     patience: Duration::from_secs(1),
///     keepalive: Some(Duration::from_secs(5)),
///     ..ConnectOptions::default()
/// };
/// let server = "127.0.0.1:7471".parse()?;
/// match connect_with(domain.pair_builder::<Rc>(), server, &options, b"hello")?.wait() {
///     Ok(connection) => println!("{connection:?}"),
///     Err(error) => println!("{error}"),
/// }
/// # Ok(()) }
/// ```
pub fn connect_with<T: Connected>(
    builder: QueuePairBuilder<T>,
    peer: SocketAddr,
    options: &ConnectOptions,
    private_data: &[u8],
) -> Result<Connecting<T>, ConnectError> {
    // Its two ends are different things, which a connection of ours does not know.
    if T::SERVICE == Service::Xrc {
        return Err(CmError::Service(T::SERVICE).into());
    }
    let device = builder.device().clone();
    let gid_index = match builder.chosen_gid() {
        Some(index) => index,
        None => route(&device, peer)?,
    };
    let prepared = builder.gid_index(gid_index).room_for_probes(options).build()?;
    prepared.permit(options)?;
    let own = prepared.endpoint();
    if own.ip.is_ipv4() != peer.is_ipv4() {
        return Err(ConnectError::NoRoute(peer));
    }
    let port_mtu = device.port_mtu();
    let fetches = options.fetches.min(device.engine.config().max_rd_atomic);
    let route = Route {
        local: own.ip,
        remote: peer.ip(),
    };
    let service_id = ServiceId::from_port(PortSpace::Tcp, peer.port());
    let id = device.engine.connect(&ConnectParams {
        service: T::SERVICE,
        responder_resources: fetches,
        initiator_depth: fetches,
        retry_count: options.retries,
        rnr_retry_count: options.rnr_retries,
        path_mtu: options.mtu.unwrap_or(port_mtu).min(port_mtu),
        ack_timeout: options.timeout,
        ip: Some(IpHeader {
            source_port: 0,
            source: own.ip,
            destination: peer.ip(),
        }),
        private_data,
        patience: Some(options.patience),
        ..ConnectParams::new(route, service_id, own.qpn, own.psn)
    })?;
    let channel = device.cm_dispatcher.connection(id);
    Ok(Connecting {
        prepared: Some(prepared),
        options: *options,
        peer,
        handle: Some(ConnectionHandle { device, id, channel }),
        span: Span::of_connecting(peer),
    })
}

/// A connection that the peer has not answered yet. Wait for it or await it; dropped, it is given up.
///
/// ```
/// use nonic::{Rc, connect};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let listener = nonic::Listener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// let connecting = connect(domain.pair_builder::<Rc>(), listener.local_addr(), b"")?;
/// # let incoming = listener.accept_within(patience).ok_or("nobody came")?;
/// # let server = incoming.accept(domain.pair_builder::<Rc>(), b"")?;
/// let connection = connecting.wait_within(patience)?; // or `connecting.await?`
/// println!("connected to {}", connection.peer_addr());
/// # Ok(()) }
/// ```
#[must_use = "the connection is not there yet"]
pub struct Connecting<T: Connected> {
    /// Both are there until the connection is.
    prepared: Option<Prepared<T>>,
    handle: Option<ConnectionHandle>,
    options: ConnectOptions,
    peer: SocketAddr,
    span: Span,
}

impl<T: Connected> Connecting<T> {
    /// Waits until the peer has answered, or is given up.
    #[doc(alias("RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_CONNECT_RESPONSE"))]
    pub fn wait(mut self) -> Result<Connection<T>, ConnectError> {
        let handle = self.handle.take().expect("not awaited to the end before");
        let answer = handle
            .channel
            .wait(None, answer)
            .expect("no time limit was given");
        self.finish(handle, answer)
    }

    /// The same, for at most `timeout`: a peer that has not answered then is given up as unreachable.
    ///
    /// Without a limit that takes [`ConnectOptions::patience`].
    #[doc(alias("RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_CONNECT_RESPONSE"))]
    pub fn wait_within(mut self, timeout: Duration) -> Result<Connection<T>, ConnectError> {
        let handle = self.handle.take().expect("not awaited to the end before");
        let answer = handle.channel.wait(Some(timeout), answer);
        self.finish(handle, answer.unwrap_or(Answer::Silence))
    }

    fn finish(&mut self, handle: ConnectionHandle, answer: Answer) -> Result<Connection<T>, ConnectError> {
        let connection = self.settle(handle, answer);
        match &connection {
            Ok(_) => self.span.end(&"connected"),
            Err(error) => self.span.end(error),
        }
        connection
    }

    fn settle(&mut self, handle: ConnectionHandle, answer: Answer) -> Result<Connection<T>, ConnectError> {
        let peer = self.peer;
        let response = match answer {
            Answer::Accepted(response) => response,
            Answer::Rejected(reason, private_data) => {
                let private_data = PrivateData::new(private_data);
                return Err(ConnectError::Rejected {
                    peer,
                    reason,
                    private_data,
                });
            }
            Answer::Silence => return Err(ConnectError::Unreachable(peer)),
            Answer::PortUnreachable => return Err(ConnectError::PortUnreachable(peer)),
        };
        let prepared = self.prepared.take().expect("taken only here");
        let endpoint = Endpoint {
            ip: self.peer.ip(),
            qpn: response.remote_qpn,
            psn: response.starting_psn,
            mtu: prepared.endpoint().mtu,
            qkey: 0,
        };
        let fetches = self
            .options
            .fetches
            .min(handle.device.engine.config().max_rd_atomic);
        let options = ConnectOptions {
            rnr_retries: response.rnr_retry_count,
            ..self.options
        };
        let fetches = FetchLimits {
            begun: response.initiator_depth.min(fetches),
            answered: response.responder_resources.min(fetches),
        };
        let pair = prepared.connect_by_cm(&endpoint, &options, fetches);
        let pair = pair.map_err(|error| match error {
            // A connection that the peer ends takes its queue pair to the error state, however far that had come.
            ModifyError::NoTransition {
                from: QpState::Error, ..
            } => ConnectError::Ended(peer),
            error => error.into(),
        })?;
        handle.device.engine.establish(handle.id, &[])?;
        handle.channel.establish();
        let said = PrivateData::new(response.private_data);
        Ok(Connection::new(pair, &options, said, self.peer, handle))
    }
}

impl<T: Connected> Future for Connecting<T> {
    type Output = Result<Connection<T>, ConnectError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let handle = self.handle.as_ref().expect("not polled after it was ready");
        let Poll::Ready(answer) = handle.channel.poll(context, answer) else {
            return Poll::Pending;
        };
        let handle = self.handle.take().expect("just seen");
        Poll::Ready(self.finish(handle, answer))
    }
}

// Nothing in it is ever borrowed by itself.
impl<T: Connected> Unpin for Connecting<T> {}

impl<T: Connected> std::fmt::Debug for Connecting<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connecting")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// A peer's answer to a connection request.
enum Answer {
    Accepted(Box<ConnectResponse>),
    Rejected(RejectReason, Vec<u8>),
    /// From the peer's host: no process holds the port.
    PortUnreachable,
    Silence,
}

/// What an event means to a thread or task that waits for an answer.
fn answer(event: CmEvent) -> Option<Answer> {
    match event {
        CmEvent::Response(response) => Some(Answer::Accepted(response)),
        CmEvent::Rejected {
            reason, private_data, ..
        } => Some(Answer::Rejected(reason, private_data)),
        CmEvent::Unreachable { refused: true, .. } => Some(Answer::PortUnreachable),
        CmEvent::Unreachable { .. } | CmEvent::Disconnected { .. } => Some(Answer::Silence),
        _ => None,
    }
}

/// Which of the device's addresses the kernel would send from.
fn route(device: &Device, peer: SocketAddr) -> Result<u8, ConnectError> {
    let source = source_of(peer).map_err(|_| ConnectError::NoRoute(peer))?;
    let index = device.gid_index(source);
    index.ok_or(ConnectError::NoRoute(peer))
}
