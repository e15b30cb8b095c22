//! The inbox: reads what other processes of this host write to us.
//!
//! An inbox is a listening Unix socket of packets (`SOCK_SEQPACKET`) with a name, and the *lines* that senders have opened
//! to it. Lines rather than one datagram socket for all, because a datagram socket holds ten messages
//! (`net.unix.max_dgram_qlen`) however small they are, while a line holds what the sender's buffer does: hundreds of
//! requests to connect may arrive at once. And a sender whose line is not read fills that line alone.
//!
//! Any process on this host may open a line, and what comes over it deserves the trust of what comes over the network. How
//! many lines are kept, and of which users, is limited ([`super::lines`]). A sender without a place is heard all the same,
//! one turn at a time.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::lines::{LineBudget, Senders, new_socket, receive, send};
use super::message::{MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES, Message};
use super::{InboxName, abstract_name};
use crate::os::descriptors::InternalFd;
use crate::os::peer_socket::{PeerSocket, close_listener};
use crate::socket::Credentials;

/// How many unreadable messages and ended lines one [`Inbox::recv`] skips before it lets the caller do other work.
const MAX_JUNK_PER_RECV: usize = 16;
/// How many messages one line may bring before the others have their turn.
const MESSAGES_PER_TURN: usize = 16;
/// How many senders may queue before they are let in; the system's limit is often lower.
const QUEUE: i32 = 4096;
/// The number of the listening socket among the lines.
const LISTENER: u64 = 0;

/// Where other processes of this host write to us.
#[derive(Debug)]
pub struct Inbox {
    /// There until the inbox is dropped.
    listener: Option<InternalFd>,
    lines: HashMap<u64, Line>,
    senders: Senders,
    /// Watches the listener and all lines: readable when one of them is.
    watch: InternalFd,
    /// The name of the line opened last; names are never used twice.
    latest: u64,
    /// The line being read, and how many more messages it may bring before another has its turn.
    turn: Option<(u64, usize)>,
    /// A line that is closed after its turn, for want of a place. Closing an older one instead would have them push
    /// each other out without end.
    guest: Option<u64>,
    /// The line that the last message came on.
    last: u64,
    /// A line has ended since the caller last asked.
    ended: bool,
    /// Kept lines that have ended and that the caller has not taken yet.
    ended_lines: Vec<u64>,
    /// Given up for a moment to turn away a sender for which there is no descriptor left: it would keep us awake.
    spare: Option<InternalFd>,
}

#[derive(Debug)]
struct Line {
    socket: PeerSocket,
    /// The user it was admitted for, and the right to keep it; none for a guest's.
    place: Option<(u32, LineBudget)>,
    /// The caller wants to hear of its end.
    kept: bool,
}

impl Inbox {
    /// Opens the inbox of a name; [`io::ErrorKind::AddrInUse`] if another process has it.
    pub(super) fn open(name: impl Into<InboxName>) -> io::Result<Self> {
        let listener = new_socket()?;
        rustix::net::bind(&listener, &abstract_name(&name.into())?)?;
        rustix::net::listen(&listener, QUEUE)?;
        let watch = InternalFd::from(epoll::create(CreateFlags::CLOEXEC)?);
        epoll::add(&watch, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let spare = spare(&watch);
        Ok(Inbox {
            listener: Some(listener),
            lines: HashMap::new(),
            senders: Senders::default(),
            watch,
            latest: LISTENER,
            turn: None,
            guest: None,
            last: LISTENER,
            ended: false,
            ended_lines: Vec::new(),
            spare,
        })
    }

    /// The next message, or `None` when there is nothing to read for now.
    ///
    /// What cannot be read as a message is dropped and counted in the buffer. After a run of it this
    /// returns `None` early while the descriptor stays readable, so that a flood of junk cannot hold the
    /// caller.
    pub fn recv<'b>(&mut self, buffer: &'b mut InboxBuffer) -> io::Result<Option<Message<'b>>> {
        for _ in 0..MAX_JUNK_PER_RECV {
            let Some((line, turn)) = self.next_line()? else {
                return Ok(None);
            };
            buffer.fds.clear();
            let received = receive(&self.lines[&line].socket, &mut buffer.bytes);
            self.turn = turn.checked_sub(1).map(|turn| (line, turn));
            let length = match received {
                Err(Errno::AGAIN) => {
                    self.turn = None;
                    continue;
                }
                // The sender closed its end without having read an answer of ours. That is said once, before what it had
                // written to us.
                Err(Errno::CONNRESET) => continue,
                // An empty message looks like the end, and no sender has a reason to send one. Nor has a sender of another
                // user a reason to attach descriptors.
                Ok((0, _)) | Err(_) => {
                    self.ended = true;
                    self.close(line);
                    continue;
                }
                Ok((length, fds)) => {
                    buffer.fds = fds;
                    length
                }
            };
            self.last = line;
            if buffer.bytes.get(..length).and_then(Message::decode).is_some() {
                // Decoded a second time because the borrow checker will not let the first result out of
                // the loop; the header is all that is looked at.
                return Ok(Message::decode(&buffer.bytes[..length]));
            }
            buffer.junk += 1;
        }
        Ok(None)
    }

    /// Answers the last message, on the line that it came on. An answer that does not fit, or whose asker has left, is
    /// lost, as it would be on a wire.
    pub fn reply(&self, answer: &Message<'_>) {
        self.reply_with(answer, &[]);
    }

    /// The same with descriptors.
    pub(crate) fn reply_with(&self, answer: &Message<'_>, fds: &[BorrowedFd<'_>]) {
        if let Some(line) = self.lines.get(&self.last) {
            let _ = send(&line.socket, answer, fds);
        }
    }

    /// The line that the last message came on now carries a lane: its end is remembered. Its number, and the process at its
    /// other end; `None` if that is another user's, or the line will be closed soon for want of a place.
    pub(crate) fn keep_last(&mut self) -> Option<(u64, Credentials)> {
        let line = self.lines.get_mut(&self.last)?;
        if line.place.is_none() || !line.socket.is_of_our_user() {
            return None;
        }
        let who = line.socket.peer()?;
        line.kept = true;
        Some((self.last, who))
    }

    /// Whether the line that the last message came on is one that is kept.
    pub(crate) fn last_is_kept(&self) -> bool {
        self.lines.get(&self.last).is_some_and(|line| line.kept)
    }

    /// A kept line that has ended, if there is one.
    pub(crate) fn take_ended_line(&mut self) -> Option<u64> {
        self.ended_lines.pop()
    }

    /// Whether there is a sender to be hung up on at the next look, for want of a place.
    pub(crate) fn has_guest(&self) -> bool {
        self.guest.is_some()
    }

    /// Whether a sender has ended, or hung up, since this was last asked.
    pub(crate) fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.ended)
    }

    /// The line to read from next, accepting senders that wait; `None` if no line has anything.
    fn next_line(&mut self) -> io::Result<Option<(u64, usize)>> {
        for _ in 0..2 {
            if let Some((line, turn)) = self.turn {
                if self.lines.contains_key(&line) {
                    return Ok(Some((line, turn)));
                }
            }
            if let Some(guest) = self.guest.take() {
                self.close(guest);
            }
            let mut events = [MaybeUninit::<Event>::uninit(); 1];
            let now = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let found = match epoll::wait(&self.watch, &mut events, Some(&now)) {
                Ok((found, _)) => found,
                Err(Errno::INTR) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            match found.first().map(|event| event.data.u64()) {
                None => return Ok(None),
                Some(LISTENER) => self.let_in()?,
                Some(line) => self.turn = Some((line, MESSAGES_PER_TURN)),
            }
        }
        Ok(self.turn)
    }

    /// Opens a line to one sender that waits, and reads from it next.
    fn let_in(&mut self) -> io::Result<()> {
        let line = match self.accept() {
            Ok(line) => line,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
            Err(Errno::MFILE | Errno::NFILE) => return self.turn_away(),
            Err(error) => return Err(error.into()),
        };
        self.latest += 1;
        epoll::add(
            &self.watch,
            &line,
            EventData::new_u64(self.latest),
            EventFlags::IN,
        )?;
        let place = self.place_for(&line);
        if place.is_none() {
            self.guest = Some(self.latest);
        }
        self.lines.insert(
            self.latest,
            Line {
                socket: line,
                place,
                kept: false,
            },
        );
        self.turn = Some((self.latest, MESSAGES_PER_TURN));
        Ok(())
    }

    /// A place among those whose lines stay open, if there is one for this sender.
    fn place_for(&mut self, line: &PeerSocket) -> Option<(u32, LineBudget)> {
        let uid = line.peer()?.uid;
        let budget = LineBudget::take()?;
        self.senders.admit(uid).then_some((uid, budget))
    }

    /// Closes a new line at once, so that its sender knows that it was not heard.
    fn turn_away(&mut self) -> io::Result<()> {
        self.spare = None;
        drop(self.accept());
        self.spare = spare(&self.watch);
        Ok(())
    }

    fn accept(&self) -> rustix::io::Result<PeerSocket> {
        let listener = self.listener.as_ref().ok_or(Errno::BADF)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let line = rustix::net::accept_with(listener, flags)?;
        Ok(PeerSocket::new(line.into()))
    }

    fn close(&mut self, line: u64) {
        let number = line;
        if let Some(line) = self.lines.remove(&number) {
            if line.kept {
                self.ended_lines.push(number);
            }
            // A forked child may still have the descriptor: closing ours would not be enough.
            let _ = epoll::delete(&self.watch, &line.socket);
            if let Some((uid, _)) = line.place {
                self.senders.leave(uid);
            }
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take() {
            close_listener(listener);
        }
    }
}

impl AsFd for Inbox {
    /// Readable when there is something to read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

/// Where messages land: allocated once, shared by all inboxes of a thread.
#[derive(Debug)]
pub struct InboxBuffer {
    bytes: Box<[u8]>,
    /// What came with the last message.
    fds: Vec<OwnedFd>,
    junk: u64,
}

impl InboxBuffer {
    /// A buffer for the longest message.
    pub fn new() -> Self {
        InboxBuffer {
            bytes: vec![0; MAX_HEADER_BYTES + MAX_PAYLOAD_BYTES].into_boxed_slice(),
            fds: Vec::new(),
            junk: 0,
        }
    }

    /// The descriptors that came with the last message.
    pub(crate) fn take_fds(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }

    /// How many messages were dropped because they could not be read.
    pub fn junk(&self) -> u64 {
        self.junk
    }
}

impl Default for InboxBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// Another descriptor for the same, of no use but to be given up.
fn spare(watch: &InternalFd) -> Option<InternalFd> {
    rustix::io::fcntl_dupfd_cloexec(watch, 0)
        .ok()
        .map(InternalFd::from)
}
