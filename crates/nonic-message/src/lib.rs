//! Messages of any size between two programs, over RDMA with no NIC.
//!
//! ```
//! use nonic_message::{Error, Node};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let node = Node::open("roce_lo")?;
//!     let listener = node.listen("127.0.0.1:0".parse()?)?;
//!     let address = listener.local_addr();
//!
//!     let server = std::thread::spawn(move || {
//!         let mut channel = listener.accept().wait()?; // or `.await?`, here and below, on any runtime
//!         let mut lengths = Vec::new();
//!         while let Some(message) = channel.recv().wait()? {
//!             lengths.push(message.len());
//!         }
//!         Ok::<_, Error>(lengths)
//!     });
//!
//!     let mut channel = node.connect(address).wait()?;
//!     channel.send(b"short: travels in a frame").wait()?;
//!     let mut picture = channel.buffer(1_000_000)?; // registered memory
//!     picture.fill(7);
//!     channel.send(picture).wait()?; // long: read by the receiver, without a copy
//!     channel.close().wait()?; // all has arrived
//!     assert_eq!(server.join().expect("no panic")?, [25, 1_000_000]);
//!     Ok(())
//! }
//! ```
//!
//! Everything that a thread waits for (`.wait()`, `.wait_within(timeout)`) is a future as well. The two ends are
//! usually two programs: one listens, the other one gets its address.
//!
//! # What to read first
//!
//! - [`Node`]: a device with memory for messages; it connects and listens.
//! - [`Channel`]: sends and receives; [`Channel::split`] for two tasks or threads. Hand-written futures use the `poll_`
//!   methods of [`Sender`], [`Receiver`] and [`ChannelListener`].
//! - [`Buffer`] and [`Message`]: registered memory that is sent and received without a copy.
//! - [`Caller`] and [`Responder`]: requests and responses.
//! - [`protocol`]: the machine behind it, without I/O. `docs/messages.md` has it in plain words and byte by byte.
//!
//! # What cannot happen
//!
//! A message is not lost, doubled, cut or overtaken while its channel lives, whenever the program drops a future. A
//! peer reads no memory of yours that it was not offered, and none after it has said that it is done. A peer that dies,
//! or sends nonsense, is an error; it is no hang, no panic and no growing memory.

#![forbid(unsafe_code)]

#[cfg(feature = "channel")]
mod call;
#[cfg(feature = "channel")]
mod channel;
#[cfg(feature = "channel")]
mod cutoff;
#[cfg(feature = "channel")]
mod cutoff_trials;
#[cfg(feature = "channel")]
mod driver;
#[cfg(feature = "channel")]
mod error;
#[cfg(feature = "channel")]
mod listener;
#[cfg(feature = "channel")]
mod message;
#[cfg(feature = "channel")]
mod node;
#[cfg(feature = "channel")]
mod options;
pub mod protocol;
#[cfg(feature = "channel")]
mod registration_cache;

#[cfg(feature = "channel")]
pub use call::{Call, Caller, NextRequest, Request, Responder, Response};
#[cfg(feature = "channel")]
pub use channel::{Channel, Close, Flush, Receiver, Recv, Send, Sender, TrySendError};
#[cfg(feature = "channel")]
pub use cutoff::{Cutoff, CutoffSource};
#[cfg(feature = "channel")]
pub use error::{Error, Lost};
#[cfg(feature = "channel")]
pub use listener::{Accept, ChannelListener};
#[cfg(feature = "channel")]
pub use message::{Buffer, Message, Outbound};
#[cfg(feature = "channel")]
pub use node::{Connect, Node};
#[cfg(feature = "channel")]
pub use options::Options;
#[cfg(feature = "channel")]
pub use registration_cache::{CacheStatistics, RegistrationCache};
