//! The listener: accepts channels that peers open.

use crate::channel::Channel;
use crate::driver::block_on;
use crate::error::Error;
use crate::node::Node;
use crate::protocol::{Greeting, Role};
use nonic::{Incoming, Listener};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Takes channels at an address and port.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let node = nonic_message::Node::open("roce_lo")?;
/// let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let address = listener.local_addr();
/// # let client = std::thread::spawn(move || node.connect(address).wait());
/// loop {
///     let channel = listener.accept().wait()?; // or `.await?`
///     println!("{} is here", channel.peer_addr());
///     # break client.join().expect("no panic").map(drop)?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ChannelListener {
    node: Node,
    listener: Listener,
}

impl Node {
    /// Listens for channels at one of the device's addresses, or at all of a family. Port 0 is any free one.
    pub fn listen(&self, address: SocketAddr) -> Result<ChannelListener, Error> {
        ChannelListener::bind(self, address)
    }
}

impl ChannelListener {
    fn bind(node: &Node, address: SocketAddr) -> Result<Self, Error> {
        let listener = Listener::bind(node.device(), address)?;
        let node = node.clone();
        Ok(ChannelListener { node, listener })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// The next channel. Await it or wait for it; dropped, it takes none. A peer that does not speak the protocol is rejected, and
    /// that is an error here; the listener goes on.
    pub fn accept(&self) -> Accept<'_> {
        Accept { listener: self }
    }

    /// The same, for hand-written futures.
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<Result<Channel, Error>> {
        self.listener
            .poll_incoming(context)
            .map(|incoming| self.take(incoming))
    }

    fn take(&self, incoming: Incoming) -> Result<Channel, Error> {
        let own = self.node.options().greeting();
        let theirs = match Greeting::parse(incoming.private_data()) {
            Ok(theirs) => theirs,
            Err(error) => {
                // Says which version this is.
                incoming.reject(&own.emit())?;
                return Err(error.into());
            }
        };
        let (builder, queue) = self.node.queue_pair(own)?;
        let options = &self.node.options().connect;
        let connection = incoming.accept_with(builder, options, &own.emit())?;
        self.node.channel(Role::Acceptor, theirs, connection, queue)
    }
}

/// The next channel of a listener.
///
/// ```
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// match listener.accept().wait_within(Duration::from_millis(1)) {
///     Some(channel) => println!("{} is here", channel?.peer_addr()),
///     None => println!("nobody came"),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "it is there to be awaited"]
pub struct Accept<'a> {
    listener: &'a ChannelListener,
}

impl Accept<'_> {
    /// Waits for it.
    pub fn wait(self) -> Result<Channel, Error> {
        block_on(self)
    }

    /// The same, for at most `timeout`; `None` if no peer came.
    pub fn wait_within(self, timeout: Duration) -> Option<Result<Channel, Error>> {
        let incoming = self.listener.listener.accept_within(timeout)?;
        Some(self.listener.take(incoming))
    }
}

impl Future for Accept<'_> {
    type Output = Result<Channel, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.listener.poll_accept(context)
    }
}
