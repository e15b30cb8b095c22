//! Datagram services by address and port: a client asks for the queue pair that serves there.
//!
//! No connection is made: the answer is a queue pair number and a Q_Key, and every process that has them may send. The
//! two ends use SIDR, as Linux does for rdma_cm's UDP port space.

use super::cm_listener::CmListener;
use super::{ConnectError, ConnectionHandle, ListenError};
use crate::device::Device;
use crate::private_data::PrivateData;
use crate::queue_pair::{Peer, QueuePair};
use crate::transport::Datagram;
use futures_core::Stream;
use nonic_core::Qpn;
use nonic_core::cm::{AnswerParams, CmEvent, ResolveParams, Route, SidrRequest, SidrResponse};
use nonic_wire::cm::{IpHeader, PortSpace, RejectReason, ServiceId, SidrStatus};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A listener that answers which queue pair serves at a port.
///
/// ```
/// use nonic::{DatagramListener, Ud, resolve};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// let service = domain.pair::<Ud>()?.activate()?;
/// let listener = DatagramListener::bind(&device, "127.0.0.1:0".parse()?)?;
///
/// let client = domain.pair::<Ud>()?.activate()?;
/// let question = resolve(&client, listener.local_addr(), b"who is there?")?;
/// listener.accept().answer(&service, b"the service")?;
/// let found = question.wait()?;
/// client.send_to(domain.lease_from(b"a datagram")?, found.peer).wait()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DatagramListener {
    listener: CmListener,
}

impl DatagramListener {
    /// Listens at one of the device's addresses, or at all of a family (`0.0.0.0`, `[::]`). Port 0 is any free one.
    ///
    /// Datagram ports and those of a [`Listener`](super::Listener) are different ones, as with UDP and TCP.
    #[doc(alias("rdma_bind_addr", "rdma_listen"))]
    pub fn bind(device: &Device, address: SocketAddr) -> Result<Self, ListenError> {
        let listener = CmListener::open(device, PortSpace::Udp, address)?;
        Ok(DatagramListener { listener })
    }

    /// Where it listens.
    #[doc(alias("rdma_get_local_addr", "rdma_get_src_port"))]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.address
    }

    /// Waits for the next question.
    pub fn accept(&self) -> Inquiry {
        let question = self.listener.channel.wait(None, question);
        self.take(question.expect("no time limit was given"))
    }

    /// The same, for at most `timeout`.
    pub fn accept_within(&self, timeout: Duration) -> Option<Inquiry> {
        let question = self.listener.channel.wait(Some(timeout), question)?;
        Some(self.take(question))
    }

    /// The same, in a task.
    pub async fn inquiry(&self) -> Inquiry {
        std::future::poll_fn(|context| self.poll_inquiry(context)).await
    }

    /// The same, for hand-written futures.
    pub fn poll_inquiry(&self, context: &mut Context<'_>) -> Poll<Inquiry> {
        let question = self.listener.channel.poll(context, question);
        question.map(|question| self.take(question))
    }

    fn take(&self, mut request: Box<SidrRequest>) -> Inquiry {
        Inquiry {
            handle: self.listener.handle(request.connection),
            private_data: PrivateData::new(std::mem::take(&mut request.private_data)),
            request,
        }
    }
}

/// All questions, without end.
impl Stream for DatagramListener {
    type Item = Inquiry;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Inquiry>> {
        self.poll_inquiry(context).map(Some)
    }
}

impl Drop for DatagramListener {
    fn drop(&mut self) {
        // Requests that the program did not take are rejected now.
        self.listener
            .close(question, |question| drop(self.take(question)));
    }
}

fn question(event: CmEvent) -> Option<Box<SidrRequest>> {
    match event {
        CmEvent::SidrRequest(request) => Some(request),
        _ => None,
    }
}

/// A peer that wants to know where to send. Answer or reject; dropped, it is rejected.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let patience = std::time::Duration::from_secs(10);
/// # let service = domain.pair::<nonic::Ud>()?.activate()?;
/// # let client = domain.pair::<nonic::Ud>()?.activate()?;
/// # let listener = nonic::DatagramListener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let question = nonic::resolve(&client, listener.local_addr(), b"the clock")?;
/// let inquiry = listener.accept_within(patience).ok_or("nobody asked")?;
/// match inquiry.private_data().trimmed() {
///     b"the clock" => inquiry.answer(&service, b"")?,
///     _ => inquiry.reject(b"no such service")?,
/// }
/// # question.wait_within(patience)?;
/// # Ok(()) }
/// ```
pub struct Inquiry {
    request: Box<SidrRequest>,
    private_data: PrivateData,
    handle: ConnectionHandle,
}

impl Inquiry {
    /// The peer's address, and its port, which is 0 if its request does not carry one.
    pub fn peer_addr(&self) -> SocketAddr {
        let port = self.request.ip.as_ref().map_or(0, |ip| ip.source_port);
        SocketAddr::new(self.request.route.remote, port)
    }

    /// The private data that the peer sent with its question.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// Names the queue pair that serves. At most 136 bytes of private data reach the peer's program.
    #[doc(alias = "rdma_accept")]
    pub fn answer<T: Datagram>(self, pair: &QueuePair<T>, private_data: &[u8]) -> Result<(), ConnectError> {
        let endpoint = pair.endpoint();
        self.reply(SidrStatus::VALID, endpoint.qpn, endpoint.qkey, private_data)
    }

    /// Rejects it. At most 136 bytes of private data reach the peer's program.
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        self.reply(SidrStatus::REJECT, Qpn::default(), 0, private_data)
    }

    fn reply(self, status: SidrStatus, qpn: Qpn, qkey: u32, private_data: &[u8]) -> Result<(), ConnectError> {
        let params = AnswerParams {
            status,
            qpn,
            qkey,
            info: &[],
            private_data,
        };
        Ok(self
            .handle
            .device
            .engine
            .answer_service(self.handle.id, &params)?)
    }
}

impl std::fmt::Debug for Inquiry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inquiry")
            .field("peer", &self.peer_addr())
            .finish_non_exhaustive()
    }
}

/// Asks where the datagram service at `service` is, from the address that `pair` sends from. At most 180 bytes of
/// private data reach its program.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let patience = std::time::Duration::from_secs(10);
/// # let service = domain.pair::<nonic::Ud>()?.activate()?;
/// # let client = domain.pair::<nonic::Ud>()?.activate()?;
/// # let listener = nonic::DatagramListener::bind(&device, "127.0.0.1:0".parse()?)?;
/// let question = nonic::resolve(&client, listener.local_addr(), b"who is there?")?;
/// # listener.accept_within(patience).ok_or("nobody asked")?.answer(&service, b"")?;
/// let found = question.wait()?; // or `question.await?`
/// # Ok(()) }
/// ```
pub fn resolve<T: Datagram>(
    pair: &QueuePair<T>,
    service: SocketAddr,
    private_data: &[u8],
) -> Result<Resolving, ConnectError> {
    let device = pair.device().clone();
    let local = pair.endpoint().ip;
    if local.is_ipv4() != service.is_ipv4() {
        return Err(ConnectError::NoRoute(service));
    }
    let id = device.engine.resolve_service(&ResolveParams {
        route: Route {
            local,
            remote: service.ip(),
        },
        service_id: ServiceId::from_port(PortSpace::Udp, service.port()),
        ip: Some(IpHeader {
            source_port: 0,
            source: local,
            destination: service.ip(),
        }),
        private_data,
    })?;
    let channel = device.cm_dispatcher.connection(id);
    Ok(Resolving {
        handle: ConnectionHandle { device, id, channel },
        service,
    })
}

/// A question that is not answered yet. Wait for it or await it; dropped, it is given up.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let patience = std::time::Duration::from_secs(10);
/// # let service = domain.pair::<nonic::Ud>()?.activate()?;
/// # let client = domain.pair::<nonic::Ud>()?.activate()?;
/// # let listener = nonic::DatagramListener::bind(&device, "127.0.0.1:0".parse()?)?;
/// let question = nonic::resolve(&client, listener.local_addr(), b"")?;
/// # listener.accept_within(patience).ok_or("nobody asked")?.answer(&service, b"")?;
/// let found = question.wait_within(patience)?; // or `question.await?`
/// # Ok(()) }
/// ```
#[must_use = "the answer is not there yet"]
pub struct Resolving {
    handle: ConnectionHandle,
    service: SocketAddr,
}

impl Resolving {
    /// Waits until the peer has answered, or is given up.
    pub fn wait(self) -> Result<DatagramService, ConnectError> {
        let answer = self.handle.channel.wait(None, answer);
        self.finish(answer.expect("no time limit was given"))
    }

    /// The same, for at most `timeout`: a peer that has not answered then is given up as unreachable.
    pub fn wait_within(self, timeout: Duration) -> Result<DatagramService, ConnectError> {
        let answer = self.handle.channel.wait(Some(timeout), answer);
        self.finish(answer.unwrap_or(Answer::Silence))
    }

    fn finish(&self, answer: Answer) -> Result<DatagramService, ConnectError> {
        let response = match answer {
            Answer::Response(response) => response,
            Answer::PortUnreachable => return Err(ConnectError::PortUnreachable(self.service)),
            Answer::Silence => return Err(ConnectError::Unreachable(self.service)),
        };
        let private_data = PrivateData::new(response.private_data);
        if response.status != SidrStatus::VALID {
            return Err(ConnectError::Rejected {
                peer: self.service,
                reason: reason(response.status),
                private_data,
            });
        }
        Ok(DatagramService {
            peer: Peer::new(self.service.ip(), response.qpn, response.qkey),
            private_data,
        })
    }
}

impl Future for Resolving {
    type Output = Result<DatagramService, ConnectError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.handle.channel.poll(context, answer);
        answer.map(|answer| self.finish(answer))
    }
}

impl std::fmt::Debug for Resolving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolving")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// A datagram service that was found.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let patience = std::time::Duration::from_secs(10);
/// # let service = domain.pair::<nonic::Ud>()?.activate()?;
/// # let client = domain.pair::<nonic::Ud>()?.activate()?;
/// # let listener = nonic::DatagramListener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let question = nonic::resolve(&client, listener.local_addr(), b"")?;
/// # listener.accept_within(patience).ok_or("nobody asked")?.answer(&service, b"version 1")?;
/// let found = question.wait()?;
/// assert_eq!(found.private_data.trimmed(), b"version 1");
/// client.send_to(domain.lease_from(b"a datagram")?, found.peer).wait()?;
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DatagramService {
    /// Where its datagrams go.
    pub peer: Peer,
    /// The private data that it answered with.
    pub private_data: PrivateData,
}

/// A peer's answer to a question.
enum Answer {
    Response(Box<SidrResponse>),
    /// From the peer's host: no process holds the port.
    PortUnreachable,
    Silence,
}

fn answer(event: CmEvent) -> Option<Answer> {
    match event {
        CmEvent::SidrResponse(response) => Some(Answer::Response(response)),
        CmEvent::Unreachable { refused: true, .. } => Some(Answer::PortUnreachable),
        CmEvent::Unreachable { .. } => Some(Answer::Silence),
        _ => None,
    }
}

/// A refusal in the words of connections, which have more of them.
fn reason(status: SidrStatus) -> RejectReason {
    match status {
        SidrStatus::UNSUPPORTED => RejectReason::INVALID_SERVICE_ID,
        SidrStatus::NO_QP => RejectReason::NO_QP,
        _ => RejectReason::CONSUMER_DEFINED,
    }
}
