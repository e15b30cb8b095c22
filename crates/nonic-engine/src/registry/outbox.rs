//! Writing to other processes' inboxes, without ever waiting for them.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg_addr};

use super::message::Message;
use super::{abstract_name, inbox};
use crate::socket::grow_buffers;

/// Unread messages count against the sender's buffer, so it must hold full inboxes of several processes.
const BUFFER_BYTES: usize = 4 << 20;

/// Sends to any inbox on this host.
///
/// An inbox holds about ten messages (`net.unix.max_dgram_qlen`). A message that does not fit is dropped
/// and counted, like a packet on a congested wire: what needs to arrive is sent again by those above.
///
/// One slow reader takes up to ten messages' worth of this outbox's buffer, so a few of them can crowd
/// out everybody. A process that serves very many others should spread them over several outboxes.
#[derive(Debug)]
pub struct Outbox {
    socket: OwnedFd,
    dropped: AtomicU64,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a message can be lost"]
pub enum Delivery {
    /// It is in the inbox.
    Sent,
    /// The inbox, or our buffer, is full; the message is dropped and counted.
    Full,
    /// Nobody owns the name.
    Gone,
}

impl Outbox {
    /// A new outbox. It has no name of its own, so nothing can be sent to it.
    pub fn new() -> io::Result<Self> {
        let socket = inbox::new_socket()?;
        grow_buffers(&socket, BUFFER_BYTES);
        Ok(Outbox {
            socket,
            dropped: AtomicU64::new(0),
        })
    }

    /// Sends a message to the owner of a name, a [`BlockName`](super::BlockName) or a
    /// [`ServiceName`](super::ServiceName). Errors are for what no peer can cause.
    pub fn post(&self, to: &impl fmt::Display, message: &Message<'_>) -> io::Result<Delivery> {
        let (header, payload) = message.encode();
        let pieces = [IoSlice::new(header.as_bytes()), IoSlice::new(payload)];
        let name = abstract_name(to)?;
        let sent = rustix::io::retry_on_intr(|| {
            let mut nothing = SendAncillaryBuffer::default();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            sendmsg_addr(&self.socket, &name, &pieces, &mut nothing, flags)
        });
        match sent {
            Ok(_) => Ok(Delivery::Sent),
            Err(Errno::AGAIN | Errno::NOBUFS) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                Ok(Delivery::Full)
            }
            // The last two mean that the name is taken by something that is no inbox.
            Err(Errno::CONNREFUSED | Errno::NOENT | Errno::PERM | Errno::PROTOTYPE) => Ok(Delivery::Gone),
            Err(error) => Err(error.into()),
        }
    }

    /// How many messages were dropped because an inbox or the buffer was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
