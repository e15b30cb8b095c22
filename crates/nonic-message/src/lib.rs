//! Messages of any size between two programs, over RDMA with no NIC.

#![forbid(unsafe_code)]

#[cfg(feature = "channel")]
mod call;
#[cfg(feature = "channel")]
mod channel;
#[cfg(feature = "channel")]
mod cutoff;
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
pub mod protocol;
#[cfg(feature = "channel")]
mod registration_cache;
#[cfg(feature = "channel")]
mod timer;

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
pub use node::{Connect, Node, Options};
#[cfg(feature = "channel")]
pub use registration_cache::{CacheStatistics, RegistrationCache};
