//! Writing to other processes' inboxes, without ever waiting for them; and hearing when one of them ends.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use super::message::Message;
use super::{InboxName, abstract_name, inbox};
use crate::socket::grow_buffers;

/// Unread messages count against a line's buffer: what a slow reader may be behind by.
const BUFFER_BYTES: usize = 4 << 20;
/// The most lines kept open. A process that talks to more opens lines again and again, which costs a little.
const MAX_LINES: usize = 128;
/// How often a line is opened again to learn whether its owner has ended.
const MAX_DOUBTS: u8 = 4;

/// Sends to any inbox on this host, over a line to each that stays open.
///
/// A message that does not fit is dropped and counted, like a packet on a congested wire: what needs to arrive is
/// sent again by those above. A slow reader fills its own line and nobody else's.
#[derive(Debug)]
pub struct Outbox {
    lines: HashMap<InboxName, Line>,
    /// Watches the lines: readable when one of them has ended.
    watch: OwnedFd,
    /// The number of the line opened last; none is used twice.
    latest: u64,
    dropped: u64,
}

#[derive(Debug)]
struct Line {
    socket: OwnedFd,
    number: u64,
    /// How many lines before this one ended although the owner of the name was there.
    doubts: u8,
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
    pub fn new() -> io::Result<Self> {
        Ok(Outbox {
            lines: HashMap::new(),
            watch: epoll::create(CreateFlags::CLOEXEC)?,
            latest: 0,
            dropped: 0,
        })
    }

    /// Sends a message to the owner of a name. Errors are for what no peer can cause.
    pub fn post(&mut self, to: impl Into<InboxName>, message: &Message<'_>) -> io::Result<Delivery> {
        let to = to.into();
        let outcome = match self.lines.get(&to).map(|line| send(&line.socket, message)) {
            Some(Err(error)) if error != Errno::AGAIN => {
                // The owner of the name has ended, or closed the line. The name may have another owner by now.
                self.hang_up(to);
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

    /// The next of those we have a line to whose process has ended, or gave the name back. A process that merely
    /// closed our line is none.
    pub fn poll_gone(&mut self) -> Option<InboxName> {
        loop {
            let mut events = [MaybeUninit::<Event>::uninit(); 1];
            let now = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let (ended, _) = epoll::wait(&self.watch, &mut events, Some(&now)).ok()?;
            let number = ended.first()?.data.u64();
            let (name, line) = self.lines.iter().find(|(_, line)| line.number == number)?;
            let (name, doubts) = (*name, line.doubts + 1);
            self.hang_up(name);
            match connect(name) {
                Err(Errno::CONNREFUSED) => return Some(name),
                // It has too many lines and closed ours; or it is about to end and has not come to its name yet, for
                // the kernel closes what was opened last first. Then it ends the new line too.
                Ok(socket) if doubts < MAX_DOUBTS => {
                    // Without a watch nobody would learn of the end; nobody does then.
                    let _ = self.keep(name, socket, doubts);
                }
                _ => {}
            }
        }
    }

    fn open_and_send(&mut self, to: InboxName, message: &Message<'_>) -> rustix::io::Result<()> {
        let socket = connect(to)?;
        grow_buffers(&socket, BUFFER_BYTES);
        let outcome = send(&socket, message);
        if self.lines.len() >= MAX_LINES {
            // What is in them stays readable.
            let all: Vec<InboxName> = self.lines.keys().copied().collect();
            all.into_iter().for_each(|name| self.hang_up(name));
        }
        self.keep(to, socket, 0)?;
        outcome
    }

    /// Keeps a line and watches for its end.
    fn keep(&mut self, to: InboxName, socket: OwnedFd, doubts: u8) -> rustix::io::Result<()> {
        self.latest += 1;
        let number = self.latest;
        epoll::add(
            &self.watch,
            &socket,
            EventData::new_u64(number),
            EventFlags::RDHUP,
        )?;
        self.lines.insert(
            to,
            Line {
                socket,
                number,
                doubts,
            },
        );
        Ok(())
    }

    fn hang_up(&mut self, name: InboxName) {
        if let Some(line) = self.lines.remove(&name) {
            // A forked child may still have the descriptor: closing ours would not be enough.
            let _ = epoll::delete(&self.watch, &line.socket);
        }
    }
}

impl AsFd for Outbox {
    /// Readable when [`Outbox::poll_gone`] has something to say.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

fn connect(to: InboxName) -> rustix::io::Result<OwnedFd> {
    let line = inbox::new_socket()?;
    let name = abstract_name(&to)?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&line, &name))?;
    Ok(line)
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
