//! The stream: bytes in both directions, on a channel of messages.

use crate::error::io_error;
use crate::nodes;
use crate::reader::Reader;
use crate::writer::Writer;
use nonic_message::{Channel, Node};
use std::io;
use std::net::SocketAddr;
use tokio::net::ToSocketAddrs;

/// Bytes in both directions between two programs. It is to RDMA what [`tokio::net::TcpStream`] is to TCP.
///
/// A write leaves at once, and its bytes arrive in order or not at all. `flush` does nothing, since nothing is kept
/// back; `shutdown` is done when the peer's NIC has everything, and its program has read the long pieces. A dropped
/// stream goes on to send what was written to it in the background, as TCP does, while the process lives.
///
/// ```
/// use nonic_stream::RdmaStream;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let listener = nonic_stream::RdmaListener::bind("127.0.0.1:0").await?;
/// # let address = listener.local_addr()?;
/// # let echo = tokio::spawn(async move {
/// #     let (mut read, mut write) = listener.accept().await?.0.into_split();
/// #     tokio::io::copy(&mut read, &mut write).await
/// # });
/// let mut stream = RdmaStream::connect(address).await?;
/// stream.write_all(b"hello").await?;
/// let mut echoed = [0; 5];
/// stream.read_exact(&mut echoed).await?;
/// assert_eq!(&echoed, b"hello");
/// # drop(stream);
/// # echo.await??;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RdmaStream {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
}

impl RdmaStream {
    /// Connects to a [`RdmaListener`](crate::RdmaListener), from the device from which the kernel would send there. Of several
    /// addresses the first is taken that answers.
    pub async fn connect<A: ToSocketAddrs>(address: A) -> io::Result<Self> {
        let mut last = None;
        for peer in tokio::net::lookup_host(address).await? {
            let connected = match nodes::toward(peer) {
                Ok(node) => Self::connect_on(&node, peer).await,
                Err(error) => Err(error),
            };
            match connected {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "the name of the host has no address")
        }))
    }

    /// The same from a device of the program's choice, with options of its choice.
    pub async fn connect_on(node: &Node, peer: SocketAddr) -> io::Result<Self> {
        nodes::drive_on_runtime(node);
        Ok(Self::from(node.connect(peer).await.map_err(io_error)?))
    }

    /// The peer's address, and its port, which is 0 if its request did not carry one.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.writer.peer_addr())
    }
}

/// A channel whose messages are the pieces of a stream. The peer may be a program that sends messages.
impl From<Channel> for RdmaStream {
    fn from(channel: Channel) -> Self {
        let (sender, receiver) = channel.split();
        RdmaStream {
            reader: Reader::new(receiver),
            writer: Writer::new(sender),
        }
    }
}
