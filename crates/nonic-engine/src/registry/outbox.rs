//! Writing to other processes' inboxes, without ever waiting for them.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use super::message::Message;
use super::{InboxName, abstract_name, inbox};
use crate::socket::grow_buffers;

/// Unread messages count against a line's buffer: what a slow reader may be behind by.
const BUFFER_BYTES: usize = 4 << 20;
/// The most lines kept open. A process that talks to more opens lines again and again, which costs a little.
const MAX_LINES: usize = 128;

/// Sends to any inbox on this host, over a line to each that stays open.
///
/// A message that does not fit is dropped and counted, like a packet on a congested wire: what needs to arrive is
/// sent again by those above. A slow reader fills its own line and nobody else's.
#[derive(Debug, Default)]
pub struct Outbox {
    lines: HashMap<InboxName, OwnedFd>,
    dropped: u64,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a message can be lost"]
pub enum Delivery {
    /// It is in the inbox.
    Sent,
    /// The line to the inbox, or the queue of those who want one, is full; the message is dropped and counted.
    Full,
    /// Nobody owns the name.
    Gone,
}

impl Outbox {
    /// A new outbox. It has no name of its own, so nothing can be sent to it.
    pub fn new() -> Self {
        Outbox::default()
    }

    /// Sends a message to the owner of a name. Errors are for what no peer can cause.
    pub fn post(&mut self, to: impl Into<InboxName>, message: &Message<'_>) -> io::Result<Delivery> {
        let to = to.into();
        let outcome = match self.lines.get(&to).map(|line| send(line, message)) {
            Some(Err(error)) if error != Errno::AGAIN => {
                // The owner of the name has ended, or closed the line. The name may have another owner by now.
                self.lines.remove(&to);
                self.open_and_send(to, message)
            }
            Some(outcome) => outcome,
            None => self.open_and_send(to, message),
        };
        match outcome {
            Ok(()) => Ok(Delivery::Sent),
            Err(Errno::AGAIN | Errno::NOBUFS) => {
                self.dropped += 1;
                Ok(Delivery::Full)
            }
            // The last two mean that the name is taken by something that is no inbox.
            Err(
                Errno::CONNREFUSED
                | Errno::NOENT
                | Errno::PIPE
                | Errno::CONNRESET
                | Errno::PERM
                | Errno::PROTOTYPE,
            ) => Ok(Delivery::Gone),
            Err(error) => Err(error.into()),
        }
    }

    /// How many messages were dropped because they did not fit.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn open_and_send(&mut self, to: InboxName, message: &Message<'_>) -> rustix::io::Result<()> {
        let line = inbox::new_socket()?;
        grow_buffers(&line, BUFFER_BYTES);
        let name = abstract_name(&to)?;
        rustix::io::retry_on_intr(|| rustix::net::connect(&line, &name))?;
        let outcome = send(&line, message);
        if self.lines.len() >= MAX_LINES {
            // What is in them stays readable.
            self.lines.clear();
        }
        self.lines.insert(to, line);
        outcome
    }
}

fn send(line: &OwnedFd, message: &Message<'_>) -> rustix::io::Result<()> {
    let (header, payload) = message.encode();
    let pieces = [IoSlice::new(header.as_bytes()), IoSlice::new(payload)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(line, &pieces, &mut SendAncillaryBuffer::default(), flags)
    })
    .map(drop)
}
