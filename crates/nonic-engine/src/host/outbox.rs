//! The outbox: writes to other processes' inboxes without ever waiting for them, reads their answers, and notices when one
//! of them ends.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::lines::{LineBudget, new_socket, receive, send};
use super::message::Message;
use super::{InboxName, abstract_name};
use crate::os::descriptors::InternalFd;
use crate::os::peer_socket::PeerSocket;
use crate::socket::{Credentials, grow_buffers};

/// Unread messages count against a line's buffer: what a slow reader may be behind by.
const BUFFER_BYTES: usize = 4 << 20;
/// How often a line is opened again to learn whether its owner has ended.
const MAX_DOUBTS: u8 = 4;
/// Longer than any answer. A longer message is none, and cut off here.
const ANSWER_BYTES: usize = 16;

/// Sends to any inbox on this host, over a line to each that stays open.
///
/// A message that does not fit is dropped and counted, like a packet on a congested wire: the layers above retransmit what
/// needs to arrive. A slow reader fills its own line and no other.
#[derive(Debug)]
pub struct Outbox {
    lines: HashMap<InboxName, Line>,
    /// Watches the lines: readable when one of them has something to say, or has ended.
    watch: InternalFd,
    /// The number of the line opened last; none is used twice.
    latest: u64,
    /// Counts uses of lines: the line that was used longest ago makes room for another.
    uses: u64,
    /// What came with the last answer.
    fds: Vec<OwnedFd>,
    dropped: u64,
}

#[derive(Debug)]
struct Line {
    socket: PeerSocket,
    number: u64,
    /// How many lines before this one ended although the owner of the name was there.
    doubts: u8,
    /// Questions that were not answered yet. A peer may not answer more than was asked: each answer wakes us.
    asked: u32,
    /// A lane was offered, and that was not answered yet.
    offered: bool,
    /// Memory that was asked for, and not answered yet.
    asked_for_memory: u32,
    /// A lane was taken. It ends with the line.
    has_lane: bool,
    used: u64,
    _budget: LineBudget,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a message can be lost"]
pub enum Delivery {
    /// It is in the inbox.
    Sent,
    /// The line to the inbox, or the inbox's queue of senders that want one, is full; the message is dropped and counted.
    Full,
    /// No process owns the name.
    Gone,
}

/// What an outbox hears from processes it wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// The owner of the name listens on this UDP port.
    IAm {
        /// The owner that was asked.
        who: InboxName,
        /// Its own port, on the address of its name.
        udp_port: u16,
    },
    /// What became of a lane that was offered. What came with the answer is in `Outbox::take_fds`.
    Lane {
        /// The owner that answered.
        who: InboxName,
        /// Whether it was taken.
        taken: bool,
    },
    /// What became of memory that was asked for. If it was given, its descriptor is in `Outbox::take_fds`.
    Memory {
        /// The owner that answered.
        who: InboxName,
        /// Its number.
        number: u64,
        /// Whether it was given.
        given: bool,
    },
    /// The line that a lane hung on was closed, though its owner has not ended.
    LaneEnded(InboxName),
    /// The process that owned the name has ended, or gave the name back.
    Gone(InboxName),
}

impl Outbox {
    /// A new outbox. It has no name of its own, so nothing can be sent to it but answers.
    pub fn new() -> io::Result<Self> {
        Ok(Outbox {
            lines: HashMap::new(),
            watch: epoll::create(CreateFlags::CLOEXEC)?.into(),
            latest: 0,
            uses: 0,
            fds: Vec::new(),
            dropped: 0,
        })
    }

    /// Sends a message to the owner of a name. Errors are for what no peer can cause.
    pub fn post(&mut self, to: impl Into<InboxName>, message: &Message<'_>) -> io::Result<Delivery> {
        self.post_with(to, message, &[])
    }

    /// The same with descriptors.
    pub fn post_with(
        &mut self,
        to: impl Into<InboxName>,
        message: &Message<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<Delivery> {
        let to = to.into();
        self.uses += 1;
        let line = self.lines.get_mut(&to);
        let outcome = match line.map(|line| line.send(self.uses, message, fds)) {
            // A lane hangs on it. `poll` finds that it has ended, and says so; what is said before that is lost.
            Some(Err(_)) if self.lines.get(&to).is_some_and(|line| line.has_lane) => Err(Errno::AGAIN),
            Some(Err(error)) if error != Errno::AGAIN => {
                // The owner of the name has ended, or closed the line. The name may have another owner by now.
                self.hang_up(to);
                self.open_and_send(to, message, fds)
            }
            Some(outcome) => outcome,
            None => self.open_and_send(to, message, fds),
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

    /// The descriptors that came with what was heard last.
    pub fn take_fds(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }

    /// Whether we have a line to the owner of a name, and it is a process of our user.
    pub(crate) fn is_of_our_user(&self, name: impl Into<InboxName>) -> bool {
        self.lines
            .get(&name.into())
            .is_some_and(|line| line.socket.is_of_our_user())
    }

    /// The process that owned the name when our line to it was opened.
    pub(crate) fn owner(&self, name: impl Into<InboxName>) -> Option<Credentials> {
        self.lines.get(&name.into())?.socket.peer()
    }

    /// How many messages were dropped because they did not fit.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The next answer, or the end of a process that we have a line to. A process that merely closed our line has not
    /// ended.
    pub fn poll(&mut self) -> Option<Heard> {
        // Every round reads a message or closes a line, of which there are not many; we hang up on a peer that says too
        // much.
        loop {
            let mut events = [MaybeUninit::<Event>::uninit(); 1];
            let now = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let (ready, _) = epoll::wait(&self.watch, &mut events, Some(&now)).ok()?;
            let number = ready.first()?.data.u64();
            let (name, line) = self.lines.iter_mut().find(|(_, line)| line.number == number)?;
            let name = *name;
            match line.hear() {
                Ok(Some(Answer::Port(udp_port))) => return Some(Heard::IAm { who: name, udp_port }),
                Ok(Some(Answer::Lane { taken, fds })) => {
                    self.fds = fds;
                    return Some(Heard::Lane { who: name, taken });
                }
                Ok(Some(Answer::Memory { number, given, fds })) => {
                    self.fds = fds;
                    return Some(Heard::Memory {
                        who: name,
                        number,
                        given,
                    });
                }
                Ok(None) => {}
                Err(end) => {
                    let had_lane = line.has_lane;
                    let gone = match end {
                        LineEnd::Closed => self.is_gone(name),
                        LineEnd::Nonsense => self.hang_up(name).is_none(),
                    };
                    match (gone, had_lane) {
                        (true, _) => return Some(Heard::Gone(name)),
                        (false, true) => return Some(Heard::LaneEnded(name)),
                        (false, false) => {}
                    }
                }
            }
        }
    }

    /// A line has ended: whether its owner has, too. If not, another line is opened.
    fn is_gone(&mut self, name: InboxName) -> bool {
        let Some(line) = self.hang_up(name) else {
            return false;
        };
        let doubts = line.doubts + 1;
        match connect(name) {
            Err(Errno::CONNREFUSED) => true,
            // The name has passed to another process, so the one that had it has ended.
            Ok(socket) if socket.peer() != line.socket.peer() => true,
            // It has too many lines and closed ours; or it is about to end and has not come to its name yet, for
            // the kernel closes what was opened last first. Then it ends the new line too.
            Ok(socket) if doubts < MAX_DOUBTS => {
                // Without a watch, the end of the process goes unnoticed.
                let _ = self.keep(name, socket, doubts);
                false
            }
            _ => false,
        }
    }

    fn open_and_send(
        &mut self,
        to: InboxName,
        message: &Message<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> rustix::io::Result<()> {
        let socket = connect(to)?;
        grow_buffers(&socket, BUFFER_BYTES);
        let outcome = send(&socket, message, fds);
        self.keep(to, socket, 0)?;
        if let Some(line) = self.lines.get_mut(&to) {
            line.count_question(message, outcome);
        }
        outcome
    }

    /// Keeps a line, watching for answers and for its end, if there is room or can be made.
    fn keep(&mut self, to: InboxName, socket: PeerSocket, doubts: u8) -> rustix::io::Result<()> {
        let Some(budget) = LineBudget::take().or_else(|| self.make_room()) else {
            // What was sent stays readable when the line is closed.
            return Ok(());
        };
        self.latest += 1;
        let number = self.latest;
        let flags = EventFlags::IN | EventFlags::RDHUP;
        epoll::add(&self.watch, &socket, EventData::new_u64(number), flags)?;
        let line = Line {
            socket,
            number,
            doubts,
            asked: 0,
            offered: false,
            asked_for_memory: 0,
            has_lane: false,
            used: self.uses,
            _budget: budget,
        };
        self.lines.insert(to, line);
        Ok(())
    }

    /// Closes the line that was used longest ago and that no lane hangs on.
    fn make_room(&mut self) -> Option<LineBudget> {
        let lines = self.lines.iter().filter(|(_, line)| !line.has_lane);
        let oldest = lines.min_by_key(|(_, line)| line.used);
        let name = *oldest?.0;
        self.hang_up(name);
        LineBudget::take()
    }

    fn hang_up(&mut self, name: InboxName) -> Option<Line> {
        let line = self.lines.remove(&name)?;
        // A forked child may still have the descriptor: closing ours would not be enough.
        let _ = epoll::delete(&self.watch, &line.socket);
        Some(line)
    }
}

impl AsFd for Outbox {
    /// Readable when [`Outbox::poll`] has something to say.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

/// What was answered.
enum Answer {
    Port(u16),
    Lane {
        taken: bool,
        fds: Vec<OwnedFd>,
    },
    Memory {
        number: u64,
        given: bool,
        fds: Vec<OwnedFd>,
    },
}

/// Why nothing more is heard on a line.
enum LineEnd {
    Closed,
    Nonsense,
}

impl Line {
    fn send(
        &mut self,
        use_number: u64,
        message: &Message<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> rustix::io::Result<()> {
        self.used = use_number;
        let outcome = send(&self.socket, message, fds);
        self.count_question(message, outcome);
        outcome
    }

    fn count_question(&mut self, message: &Message<'_>, outcome: rustix::io::Result<()>) {
        match (outcome, message) {
            (Ok(()), Message::WhereAreYou) => self.asked = self.asked.saturating_add(1),
            (Ok(()), Message::OfferLane { .. }) => self.offered = true,
            (Ok(()), Message::MapMemory { .. }) => {
                self.asked_for_memory = self.asked_for_memory.saturating_add(1);
            }
            _ => {}
        }
    }

    /// Reads one answer.
    fn hear(&mut self) -> Result<Option<Answer>, LineEnd> {
        let mut bytes = [0; ANSWER_BYTES];
        match receive(&self.socket, &mut bytes) {
            Ok((0, _)) => Err(LineEnd::Closed),
            Ok((length, fds)) => match bytes.get(..length).and_then(Message::decode) {
                Some(Message::IAm { udp_port }) if self.asked > 0 => {
                    self.asked -= 1;
                    Ok(Some(Answer::Port(udp_port)))
                }
                Some(answer @ (Message::LaneTaken | Message::LaneRefused)) if self.offered => {
                    self.offered = false;
                    self.has_lane = answer == Message::LaneTaken;
                    Ok(Some(Answer::Lane {
                        taken: self.has_lane,
                        fds,
                    }))
                }
                Some(Message::MemoryGiven { number }) if self.asked_for_memory > 0 => {
                    self.asked_for_memory -= 1;
                    let given = true;
                    Ok(Some(Answer::Memory { number, given, fds }))
                }
                Some(Message::MemoryRefused { number }) if self.asked_for_memory > 0 => {
                    self.asked_for_memory -= 1;
                    let given = false;
                    Ok(Some(Answer::Memory { number, given, fds }))
                }
                _ => Err(LineEnd::Nonsense),
            },
            Err(Errno::AGAIN) => Ok(None),
            // A process of another user has attached descriptors that we did not ask for.
            Err(Errno::BADMSG) => Err(LineEnd::Nonsense),
            Err(_) => Err(LineEnd::Closed),
        }
    }
}

fn connect(to: InboxName) -> rustix::io::Result<PeerSocket> {
    let line = new_socket()?;
    let name = abstract_name(&to)?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&line, &name))?;
    // The name may pass to another owner; the line stays with this one.
    Ok(PeerSocket::new(line))
}
