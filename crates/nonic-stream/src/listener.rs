//! The listener: accepts streams that peers open.

use crate::error::io_error;
use crate::nodes;
use crate::stream::RdmaStream;
use futures_core::Stream;
use nonic_message::{Channel, ChannelListener, Error, Node};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::ToSocketAddrs;

/// Peers that are turned away before other tasks have their turn.
const REFUSED_AT_A_TIME: usize = 32;

/// Takes streams at an address and port. It is to RDMA what [`tokio::net::TcpListener`] is to TCP.
///
/// ```
/// use nonic_stream::{RdmaListener, RdmaStream};
/// use tokio::io::copy;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let listener = RdmaListener::bind("127.0.0.1:0").await?;
/// # let address = listener.local_addr()?;
/// # let client = tokio::spawn(async move { RdmaStream::connect(address).await });
/// loop {
///     let (stream, peer) = listener.accept().await?;
///     println!("{peer} is here");
///     tokio::spawn(async move {
///         let (mut read, mut write) = stream.into_split();
///         copy(&mut read, &mut write).await
///     });
///     # break client.await??;
/// }
/// # ;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RdmaListener {
    /// One for each device, at least one.
    listeners: Vec<(Node, ChannelListener)>,
    address: SocketAddr,
}

impl RdmaListener {
    /// Listens at an address of this host, or at all of a family (`0.0.0.0` or `::`) on every interface that is up. Port 0 is any
    /// free one. Of several addresses the first is taken that can be listened at.
    pub async fn bind<A: ToSocketAddrs>(address: A) -> io::Result<Self> {
        let mut last = None;
        for address in tokio::net::lookup_host(address).await? {
            let nodes = match address.ip().is_unspecified() {
                true => nodes::of_all(address.ip()),
                false => nodes::of_address(address.ip()).map(|node| vec![node]),
            };
            match nodes.and_then(|nodes| Self::listen(&nodes, address)) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "the name of the host has no address")
        }))
    }

    /// The same on a device of the program's choice, with options of its choice.
    pub fn bind_on(node: &Node, address: SocketAddr) -> io::Result<Self> {
        Self::listen(std::slice::from_ref(node), address)
    }

    /// On all nodes at the same port, which the first one chooses if it is 0.
    fn listen(nodes: &[Node], mut address: SocketAddr) -> io::Result<Self> {
        let mut listeners = Vec::with_capacity(nodes.len());
        for node in nodes {
            let listener = node.listen(address).map_err(io_error)?;
            address.set_port(listener.local_addr().port());
            listeners.push((node.clone(), listener));
        }
        if listeners.is_empty() {
            let kind = io::ErrorKind::AddrNotAvailable;
            return Err(io::Error::new(
                kind,
                "no interface that is up has an address of this family",
            ));
        }
        Ok(RdmaListener { listeners, address })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    /// The next stream, and its peer's address. Dropped before it is done, it takes none. A peer that does not speak
    /// the protocol, or is gone before it was accepted, is passed over: it must not end a server's loop.
    pub async fn accept(&self) -> io::Result<(RdmaStream, SocketAddr)> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// The same, for hand-written futures.
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(RdmaStream, SocketAddr)>> {
        let mut refused = 0;
        let mut waiting = 0;
        for (node, listener) in self.listeners.iter().cycle() {
            match listener.poll_accept(context) {
                Poll::Ready(Ok(channel)) => {
                    nodes::drive_on_runtime(node);
                    return Poll::Ready(Ok(accepted(channel)));
                }
                Poll::Ready(Err(Error::Greeting(_) | Error::Connect(_) | Error::Lost(_))) => {
                    (refused, waiting) = (refused + 1, 0);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(io_error(error))),
                Poll::Pending => waiting += 1,
            }
            if waiting == self.listeners.len() {
                return Poll::Pending;
            }
            if refused == REFUSED_AT_A_TIME {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        Poll::Pending
    }

    /// All streams to come, one after the other, for servers that take a stream of connections.
    pub fn incoming(self) -> Incoming {
        Incoming { listener: self }
    }
}

fn accepted(channel: Channel) -> (RdmaStream, SocketAddr) {
    let peer = channel.peer_addr();
    (RdmaStream::from(channel), peer)
}

/// The streams of a listener. It never ends.
///
/// ```
/// use futures_core::Stream;
/// use nonic_stream::RdmaListener;
/// use std::pin::pin;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let listener = RdmaListener::bind("127.0.0.1:0").await?;
/// # let address = listener.local_addr()?;
/// # let client = tokio::spawn(async move { nonic_stream::RdmaStream::connect(address).await });
/// let mut incoming = pin!(listener.incoming());
/// let next = std::future::poll_fn(|context| incoming.as_mut().poll_next(context)).await;
/// let stream = next.expect("it never ends")?;
/// println!("{} is here", stream.peer_addr()?);
/// # client.await??;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Incoming {
    listener: RdmaListener,
}

impl Stream for Incoming {
    type Item = io::Result<RdmaStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let accepted = self.listener.poll_accept(context);
        accepted.map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}
