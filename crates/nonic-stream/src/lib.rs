//! Byte streams over RDMA with no NIC, in the shape of tokio's TCP types: what is written for [`tokio::net::TcpStream`] and
//! [`tokio::net::TcpListener`] runs over queue pairs when it takes [`RdmaStream`] and [`RdmaListener`] instead. hyper, axum, tonic and
//! the codecs of tokio-util do.
//!
//! Each write leaves at once as one message of a [`nonic_message::Channel`], and a read takes bytes out of the message
//! at hand. There is no framing of its own, no thread that copies, and nothing of TCP that has no meaning here: no
//! urgent data, no keep-alive (the channel asks a silent peer by itself), no Nagle.
//!
//! ```
//! use nonic_stream::{RdmaListener, RdmaStream};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> std::io::Result<()> {
//!     let listener = RdmaListener::bind("127.0.0.1:0").await?;
//!     let connecting = RdmaStream::connect(listener.local_addr()?);
//!     let (client, accepted) = tokio::join!(connecting, listener.accept());
//!     let (mut client, (mut server, _peer)) = (client?, accepted?);
//!     client.write_all(b"hello").await?;
//!     client.shutdown().await?;
//!     let mut text = String::new();
//!     server.read_to_string(&mut text).await?;
//!     assert_eq!(text, "hello");
//!     Ok(())
//! }
//! ```
//!
//! What differs from TCP, and how fast it is: [docs/streams.md](https://github.com/nonic-rdma/nonic/blob/main/docs/streams.md).

#![forbid(unsafe_code)]

#[cfg(feature = "axum")]
mod axum_listener;
mod error;
mod linger;
mod listener;
mod nodes;
#[cfg(any(feature = "axum", feature = "tonic"))]
mod peer_addr;
mod reader;
mod split;
mod stream;
#[cfg(feature = "tonic")]
mod tonic_connected;
mod traits;
mod writer;

pub use listener::{Incoming, RdmaListener};
pub use nonic_message::{Node, Options};
#[cfg(any(feature = "axum", feature = "tonic"))]
pub use peer_addr::PeerAddr;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReuniteError};
pub use stream::RdmaStream;
