//! The struggle for UDP port 4791 of an address: one process holds it, the others wait for it to die.
//!
//! The holder also listens on an abstract stream socket, its *door*. Everybody else keeps a connection to
//! the door, and the kernel ends it when the holder dies; then all try to bind the port, one wins, the rest
//! connect to the winner's door. A holder that leaves in good order does better: it sends the port's socket itself
//! to one of those who wait, with everything that is queued in it, so that not a packet is lost.
//!
//! There is no moment at which nobody tries. A seat is always in one of three states, and each has
//! something that ends it: a holder owns the port; a waiter has a connection to a process that owned the
//! port when it opened the door, and port and door end together; everything else (the winner has not opened
//! its door yet, the door's queue is full, a foreign program has the port) is a retry with a deadline.
//!
//! This module reads no clock and never blocks: the caller brings the time and waits on [`Seat::fd`] and
//! [`Seat::next_deadline_ns`]. It does not notice a holder that is alive but stuck, such as a stopped
//! process: to the kernel that is a healthy owner of its port.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use super::abstract_name;
use crate::netdev::LocalAddress;
use crate::socket::{ROCE_PORT, WireSocket, peer_pid};

/// The first wait after finding the port taken and the door closed; doubles with each further refusal.
const SHORT_RETRY_NS: u64 = 1_000_000;
/// After this many refusals (about 0.2 s) the owner of the port is no holder of ours: it is foreign.
const REFUSALS_UNTIL_FOREIGN: u32 = 8;
/// The wait while a foreign program has the port, or the address is missing.
const LONG_RETRY_NS: u64 = 1_000_000_000;
/// How many waiters may queue at the door before it is answered; the system's limit is often lower.
const DOOR_QUEUE: i32 = 4096;
/// How many waiters one poll lets in, so that a crowd cannot hold the caller.
const MAX_ACCEPTS_PER_POLL: usize = 64;

/// Binds UDP port 4791 of an address; `None` if somebody has it.
pub fn try_hold(address: LocalAddress) -> io::Result<Option<WireSocket>> {
    match WireSocket::bind(address.with_port(ROCE_PORT)) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// Who has port 4791 of an address, as far as one can tell without joining the struggle for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupant {
    /// Nobody.
    Nobody,
    /// A process of ours.
    Holder {
        /// Which one; `None` if it is outside this process's PID namespace.
        pid: Option<u32>,
    },
    /// A program that is not ours, such as a kernel's own RoCE driver.
    Foreign,
}

/// Looks who has port 4791 of an address. Binds the port for a moment if no holder answers the door.
pub fn occupant(address: LocalAddress) -> io::Result<Occupant> {
    match connect(address) {
        Ok(line) => Ok(Occupant::Holder { pid: peer_pid(&line) }),
        // The queue at the door is full, so there is a holder.
        Err(Errno::AGAIN) => Ok(Occupant::Holder { pid: None }),
        Err(_) => Ok(match try_hold(address)? {
            Some(_) => Occupant::Nobody,
            None => Occupant::Foreign,
        }),
    }
}

/// This process's place in the struggle for one address. Dropping it gives the port to the next.
#[derive(Debug)]
pub struct Seat {
    address: LocalAddress,
    state: State,
    /// How often in a row the port was taken and nobody answered the door.
    refusals: u32,
}

#[derive(Debug)]
enum State {
    /// Fields drop in order: the port is free before waiters learn that the door has closed.
    Holder {
        socket: WireSocket,
        door: Door,
    },
    Waiting {
        line: OwnedFd,
        holder_pid: Option<u32>,
    },
    Retry {
        at_ns: u64,
        reason: RetryReason,
    },
}

/// How a seat stands, for people and tests to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// This process holds the port.
    Holder,
    /// Another process holds it and will be replaced when it dies.
    Waiting {
        /// Which process; `None` if it is outside this process's PID namespace.
        holder_pid: Option<u32>,
    },
    /// Nobody is known to hold it for us; another attempt is due.
    Retry {
        /// Why not.
        reason: RetryReason,
    },
}

/// Why the port is neither ours nor a known holder's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryReason {
    /// The port changes hands at this moment.
    Settling,
    /// A program that is not ours has the port, such as a kernel's own RoCE driver.
    Foreign,
    /// The port cannot be bound for another reason, such as an address that the host lost.
    Unavailable(io::ErrorKind),
}

impl Seat {
    /// Makes a first attempt, which cannot fail: see [`standing`](Self::standing) for what became of it.
    pub fn take(address: LocalAddress, now_ns: u64) -> Self {
        let state = State::Retry {
            at_ns: now_ns,
            reason: RetryReason::Settling,
        };
        let mut seat = Seat {
            address,
            state,
            refusals: 0,
        };
        seat.attempt(now_ns);
        seat
    }

    /// Does what is due: call it when [`fd`](Self::fd) is readable or the deadline has come. Calling it at
    /// other times is harmless.
    ///
    /// Returns true if [`socket`](Self::socket), [`fd`](Self::fd) or [`standing`](Self::standing) may have
    /// changed since the last call, and so need to be asked again.
    pub fn poll(&mut self, now_ns: u64) -> bool {
        match &mut self.state {
            State::Holder { door, .. } => door.poll(self.address, now_ns),
            State::Waiting { line, .. } => match news_of(line, self.address) {
                News::Nothing => false,
                News::Ended => {
                    self.refusals = 0;
                    self.attempt(now_ns);
                    true
                }
                News::Inherited(socket) => {
                    self.refusals = 0;
                    self.state = State::Holder {
                        socket,
                        door: Door::open(self.address, now_ns),
                    };
                    true
                }
            },
            State::Retry { at_ns, .. } => {
                let due = now_ns >= *at_ns;
                if due {
                    self.attempt(now_ns);
                }
                due
            }
        }
    }

    /// When [`poll`](Self::poll) must be called even if nothing happens. Changes only in `poll`.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        match &self.state {
            State::Holder { door, .. } => door.next_deadline_ns(),
            State::Waiting { .. } => None,
            State::Retry { at_ns, .. } => Some(*at_ns),
        }
    }

    /// What to wait on (readable) for the next [`poll`](Self::poll), besides the deadline. This is not the
    /// port's own socket.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Holder { door, .. } => door.fd(),
            State::Waiting { line, .. } => Some(line.as_fd()),
            State::Retry { .. } => None,
        }
    }

    /// The port, while this process holds it.
    pub fn socket(&self) -> Option<&WireSocket> {
        match &self.state {
            State::Holder { socket, .. } => Some(socket),
            _ => None,
        }
    }

    /// Gives the port to the next who waits for it, if we hold it. Until this process ends, both read from it.
    pub(crate) fn bequeath(&mut self) {
        if let State::Holder { socket, door } = &mut self.state {
            door.bequeath(socket);
        }
    }

    /// How this seat stands.
    pub fn standing(&self) -> Standing {
        match &self.state {
            State::Holder { .. } => Standing::Holder,
            State::Waiting { holder_pid, .. } => Standing::Waiting {
                holder_pid: *holder_pid,
            },
            State::Retry { reason, .. } => Standing::Retry { reason: *reason },
        }
    }

    /// Tries for the port, and failing that for a connection to its holder.
    fn attempt(&mut self, now_ns: u64) {
        self.state = match try_hold(self.address) {
            Ok(Some(socket)) => {
                self.refusals = 0;
                State::Holder {
                    socket,
                    door: Door::open(self.address, now_ns),
                }
            }
            Ok(None) => self.knock(now_ns),
            Err(error) => retry(now_ns, LONG_RETRY_NS, RetryReason::Unavailable(error.kind())),
        };
    }

    fn knock(&mut self, now_ns: u64) -> State {
        match connect(self.address) {
            Ok(line) => {
                self.refusals = 0;
                let holder_pid = peer_pid(&line);
                State::Waiting { line, holder_pid }
            }
            // Somebody is at home, and the queue at the door is full.
            Err(Errno::AGAIN) => retry(now_ns, SHORT_RETRY_NS, RetryReason::Settling),
            Err(Errno::CONNREFUSED) if self.refusals < REFUSALS_UNTIL_FOREIGN => {
                let wait_ns = SHORT_RETRY_NS << self.refusals.min(6);
                self.refusals += 1;
                retry(now_ns, wait_ns, RetryReason::Settling)
            }
            Err(Errno::CONNREFUSED) => retry(now_ns, LONG_RETRY_NS, RetryReason::Foreign),
            Err(error) => {
                let reason = RetryReason::Unavailable(io::Error::from(error).kind());
                retry(now_ns, LONG_RETRY_NS, reason)
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.bequeath();
    }
}

fn retry(now_ns: u64, wait_ns: u64, reason: RetryReason) -> State {
    State::Retry {
        at_ns: now_ns.saturating_add(wait_ns),
        reason,
    }
}

/// The holder's side: the listening socket and the connections of those who wait.
#[derive(Debug)]
struct Door {
    /// `None` while the name cannot be had: a predecessor that is still being torn down has it.
    listener: Option<OwnedFd>,
    /// Connections are kept only to be closed when this process ends.
    waiters: Vec<OwnedFd>,
    /// Waiters leave without a word; the dead are swept out when this many have gathered.
    sweep_at: usize,
    /// When to try again what did not work: opening, or letting in while out of descriptors.
    again_ns: Option<u64>,
    /// How long to wait before the next attempt to open; doubles with each failure.
    open_wait_ns: u64,
}

impl Door {
    fn open(address: LocalAddress, now_ns: u64) -> Self {
        let mut door = Door {
            listener: None,
            waiters: Vec::new(),
            sweep_at: 16,
            again_ns: None,
            open_wait_ns: SHORT_RETRY_NS,
        };
        door.try_open(address, now_ns);
        door
    }

    /// Leaves the port to the first of those who wait that can be reached. The door is closed by then: the heir
    /// opens its own under the same name.
    fn bequeath(&mut self, port: &WireSocket) {
        // Those who knocked and were not let in yet could inherit as well.
        self.let_in(0);
        self.listener = None;
        for waiter in &self.waiters {
            if send_socket(waiter, port).is_ok() {
                return;
            }
        }
    }

    /// Returns true if the descriptor to wait on has changed.
    fn poll(&mut self, address: LocalAddress, now_ns: u64) -> bool {
        let was_waitable = self.fd().is_some();
        if self.again_ns.is_some_and(|at_ns| now_ns < at_ns) {
            return false;
        }
        self.again_ns = None;
        if self.listener.is_none() {
            self.try_open(address, now_ns);
        }
        self.let_in(now_ns);
        self.fd().is_some() != was_waitable
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        self.again_ns
    }

    /// Not offered while new waiters cannot be let in: it would be readable without end. They do not mind,
    /// since being in the queue is as good as being in.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        if self.again_ns.is_some() {
            None
        } else {
            self.listener.as_ref().map(AsFd::as_fd)
        }
    }

    fn try_open(&mut self, address: LocalAddress, now_ns: u64) {
        match listen(address) {
            Ok(listener) => self.listener = Some(listener),
            Err(_) => {
                self.again_ns = Some(now_ns.saturating_add(self.open_wait_ns));
                self.open_wait_ns = (2 * self.open_wait_ns).min(LONG_RETRY_NS);
            }
        }
    }

    fn let_in(&mut self, now_ns: u64) {
        let Some(listener) = &self.listener else { return };
        for _ in 0..MAX_ACCEPTS_PER_POLL {
            match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(waiter) => self.waiters.push(waiter),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => {
                    self.again_ns = Some(now_ns.saturating_add(LONG_RETRY_NS));
                    break;
                }
            }
        }
        if self.waiters.len() >= self.sweep_at || self.again_ns.is_some() {
            self.waiters.retain(|waiter| !line_ended(waiter));
            self.sweep_at = (2 * self.waiters.len()).max(16);
        }
    }
}

struct DoorName(LocalAddress);

impl fmt::Display for DoorName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "nonic/2/{}/holder", self.0)
    }
}

fn listen(address: LocalAddress) -> rustix::io::Result<OwnedFd> {
    let listener = new_socket()?;
    rustix::net::bind(&listener, &abstract_name(&DoorName(address))?)?;
    rustix::net::listen(&listener, DOOR_QUEUE)?;
    Ok(listener)
}

fn connect(address: LocalAddress) -> rustix::io::Result<OwnedFd> {
    let line = new_socket()?;
    let name = abstract_name(&DoorName(address))?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&line, &name))?;
    Ok(line)
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// What a connection to the holder brings.
enum News {
    Nothing,
    Ended,
    /// The holder left us the port.
    Inherited(WireSocket),
}

fn news_of(line: &OwnedFd, address: LocalAddress) -> News {
    let mut byte = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut notes = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    match rustix::net::recvmsg(line, &mut [IoSliceMut::new(&mut byte)], &mut notes, flags) {
        Ok(message) if message.bytes == 0 => return News::Ended,
        Ok(_) => {}
        Err(Errno::AGAIN | Errno::INTR) => return News::Nothing,
        Err(_) => return News::Ended,
    }
    let sockets = notes.drain().filter_map(|note| match note {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    // Anybody may have opened a door under the holder's name: what is not our port is nothing to us.
    let port = sockets
        .flatten()
        .find_map(|socket| WireSocket::adopt(socket).ok());
    match port.filter(|port| port.local_addr() == address.with_port(ROCE_PORT)) {
        Some(port) => News::Inherited(port),
        None => News::Nothing,
    }
}

fn send_socket(to: &OwnedFd, port: &WireSocket) -> rustix::io::Result<()> {
    let sockets = [port.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut notes = SendAncillaryBuffer::new(&mut space);
    notes.push(SendAncillaryMessage::ScmRights(&sockets));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(to, &[IoSlice::new(&[1])], &mut notes, flags).map(drop)
}

/// Whether the other side is gone. Those who wait never say anything, so whatever does arrive is read and
/// forgotten, in bounded portions.
fn line_ended(line: &OwnedFd) -> bool {
    let mut forgotten = [0; 256];
    match rustix::net::recv(line, &mut forgotten, RecvFlags::DONTWAIT) {
        Ok((_, 0)) => true,
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => false,
        Err(_) => true,
    }
}
