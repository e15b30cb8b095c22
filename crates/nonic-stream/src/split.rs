//! The two halves of a stream, for different tasks.

use crate::reader::Reader;
use crate::stream::RdmaStream;
use crate::writer::Writer;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// The half that reads.
///
/// ```
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let listener = nonic_stream::RdmaListener::bind("127.0.0.1:0").await?;
/// # let address = listener.local_addr()?;
/// # let (client, accepted) = tokio::join!(nonic_stream::RdmaStream::connect(address), listener.accept());
/// # let (mut client, (server, _)) = (client?, accepted?);
/// let (mut read, _write) = server.into_split();
/// let reading = tokio::spawn(async move {
///     let mut text = String::new();
///     read.read_to_string(&mut text).await.map(|_| text)
/// });
/// client.write_all(b"hello").await?;
/// client.shutdown().await?;
/// assert_eq!(reading.await??, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OwnedReadHalf {
    pub(crate) reader: Reader,
    stream: Arc<SocketAddr>,
}

/// The half that writes. Dropped, it lets the peer read the end.
///
/// ```
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let listener = nonic_stream::RdmaListener::bind("127.0.0.1:0").await?;
/// # let address = listener.local_addr()?;
/// # let (client, accepted) = tokio::join!(nonic_stream::RdmaStream::connect(address), listener.accept());
/// # let (client, (mut server, _)) = (client?, accepted?);
/// let (_read, mut write) = client.into_split();
/// write.write_all(b"hello").await?;
/// drop(write);
/// let mut text = String::new();
/// server.read_to_string(&mut text).await?;
/// assert_eq!(text, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OwnedWriteHalf {
    pub(crate) writer: Writer,
    stream: Arc<SocketAddr>,
}

/// Two halves that are not of one stream. Here they are again.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let listener = nonic_stream::RdmaListener::bind("127.0.0.1:0").await?;
/// # let address = listener.local_addr()?;
/// # let (client, accepted) = tokio::join!(nonic_stream::RdmaStream::connect(address), listener.accept());
/// # let (client, (server, _)) = (client?, accepted?);
/// let ((read, write), (other, _)) = (client.into_split(), server.into_split());
/// let nonic_stream::ReuniteError(_other, write) = other.reunite(write).expect_err("not of one stream");
/// let client = read.reunite(write).expect("of one stream");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl RdmaStream {
    /// Its two halves, for different tasks. When the half that writes is dropped, the peer reads the end.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        split(self)
    }
}

fn split(stream: RdmaStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let RdmaStream { reader, writer } = stream;
    // Which stream a half is of is known by the place of this.
    let stream = Arc::new(writer.peer_addr());
    let read = OwnedReadHalf {
        reader,
        stream: Arc::clone(&stream),
    };
    (read, OwnedWriteHalf { writer, stream })
}

impl OwnedReadHalf {
    /// Puts the halves together again.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<RdmaStream, ReuniteError> {
        if !Arc::ptr_eq(&self.stream, &other.stream) {
            return Err(ReuniteError(self, other));
        }
        Ok(RdmaStream {
            reader: self.reader,
            writer: other.writer,
        })
    }

    /// The peer's address, as [`RdmaStream::peer_addr`] says it.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(*self.stream)
    }
}

impl OwnedWriteHalf {
    /// Puts the halves together again.
    pub fn reunite(self, other: OwnedReadHalf) -> Result<RdmaStream, ReuniteError> {
        other.reunite(self)
    }

    /// The peer's address, as [`RdmaStream::peer_addr`] says it.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(*self.stream)
    }
}

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these halves are not of one stream")
    }
}

impl std::error::Error for ReuniteError {}
