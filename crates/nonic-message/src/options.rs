//! What a program wants of its channels.

use crate::protocol::Greeting;
use nonic::{Access, ConnectOptions};
use std::time::Duration;

/// What a program wants of its channels.
///
/// ```
/// use nonic_message::{Node, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut options = Options::default();
/// options.credits = 4; // peers send four messages ahead
/// options.message_bytes = 1 << 20; // and none longer than this
/// let node = Node::new(&nonic::Device::open("roce_lo")?, options);
/// # Ok(()) }
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Messages that a peer may send before this program has taken any: from 1 to 1024.
    pub credits: u16,
    /// The longest frame, header included: messages in frames are shorter, and each channel has a buffer of this length for every
    /// credit and some more. From 32 bytes to 1 MiB.
    pub frame_bytes: u32,
    /// The longest message that this program takes.
    pub message_bytes: u64,
    /// Bytes of long messages that are read before the program asks for them. One message may be longer.
    pub read_ahead: u64,
    /// Bytes of unused buffers that stay registered, of all channels together.
    pub cached_bytes: usize,
    /// Up to which length messages are sent in frames; without one that is measured when a channel is made.
    pub cutoff: Option<u64>,
    /// How long a peer that we wait for may be silent before its NIC is probed.
    pub probe_interval: Duration,
    /// How long the answer to a probe may take. Over RoCE the queue pair's retries usually end before.
    pub silence_limit: Duration,
    /// How long the queue pair waits for acknowledgements, and how often it repeats.
    pub connect: ConnectOptions,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            credits: 32,
            frame_bytes: 16 << 10,
            message_bytes: 1 << 30,
            read_ahead: 64 << 20,
            cached_bytes: 256 << 20,
            cutoff: None,
            probe_interval: Duration::from_secs(1),
            silence_limit: Duration::from_secs(10),
            connect: ConnectOptions {
                // Peers read what they are offered. They never write, and have no key to anything else.
                access: Access::REMOTE_READ,
                ..ConnectOptions::default()
            },
        }
    }
}

impl Options {
    pub(crate) fn greeting(&self) -> Greeting {
        Greeting {
            credits: self.credits,
            frame_bytes: self.frame_bytes,
            message_bytes: self.message_bytes,
        }
    }
}
