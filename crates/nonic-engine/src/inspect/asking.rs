//! One question under way: connecting, asking, and reading the answer as it comes, without ever waiting.

use super::name::ProcessName;
use super::outcome::{Answer, InspectError};
use super::record::{MAX_LINE, Names, Record};
use super::request::{END, GREETING, REFUSAL, Request};
use crate::host::abstract_name;
use crate::os::descriptors::InternalFd;
use crate::os::peer_socket::PeerSocket;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Bytes that are read at once, before other processes have their turn.
const READ_SIZE: usize = 256 << 10;

/// A question under way.
pub(super) struct Asking {
    name: ProcessName,
    request: Request,
    pid: u32,
    uid: u32,
    /// None before it is connected.
    socket: Option<PeerSocket>,
    /// The beginning of a line whose end has not come.
    unread: Vec<u8>,
    greeted: bool,
    names: Names,
    records: Vec<Record>,
    /// Memory that more records may take, and what it is for another user.
    room: usize,
    others_room: usize,
    state: State,
}

enum State {
    Open,
    Whole,
    /// It says more than there is room for.
    Cut,
    Failed(InspectError),
}

/// Why nothing more is read for now.
enum Pause {
    NothingThere,
    Ended(State),
}

impl From<InspectError> for Pause {
    fn from(error: InspectError) -> Self {
        Pause::Ended(State::Failed(error))
    }
}

impl Asking {
    pub(super) fn new(name: ProcessName, request: Request, room: usize, others_room: usize) -> Self {
        Asking {
            pid: name.pid,
            uid: own_uid(),
            name,
            request,
            socket: None,
            unread: Vec::new(),
            greeted: false,
            names: Names::default(),
            records: Vec::new(),
            room,
            others_room,
            state: State::Open,
        }
    }

    /// Whether more may come.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// What is readable when something has come. None before it is connected.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// What was answered. A process that has not ended its answer is silent.
    pub(super) fn outcome(self) -> Result<Answer, InspectError> {
        let cut = match self.state {
            State::Whole => false,
            State::Cut => true,
            State::Open => return Err(InspectError::Silent { pid: self.pid }),
            State::Failed(error) => return Err(error),
        };
        Ok(Answer {
            pid: self.pid,
            uid: self.uid,
            nonce: self.name.nonce,
            records: self.records,
            cut,
        })
    }

    /// Does what can be done without waiting, and no more than reading once. Whether a process of our user has said something.
    pub(super) fn go_on(&mut self, buffer: &mut Vec<u8>) -> bool {
        if !self.is_open() {
            return false;
        }
        let step = match self.socket {
            None => self.ask(),
            Some(_) => self.read(buffer),
        };
        let has_read = step.is_ok() && self.greeted;
        if let Err(Pause::Ended(state)) = step {
            self.state = state;
            self.socket = None;
            self.unread = Vec::new();
        }
        has_read && self.uid == own_uid()
    }

    fn io(&self, error: Errno) -> InspectError {
        InspectError::Io {
            pid: self.pid,
            error: error.into(),
        }
    }

    /// Connects, and says what is wanted.
    fn ask(&mut self) -> Result<(), Pause> {
        let socket = self.connect()?;
        let line = self.request.line();
        let sent = rustix::net::send(
            &socket,
            line.as_bytes(),
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        );
        self.socket = Some(socket);
        match sent {
            // A fresh socket has room for a line.
            Ok(_) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(InspectError::Gone { pid: self.pid }.into()),
            Err(error) => Err(self.io(error).into()),
        }
    }

    fn connect(&mut self) -> Result<PeerSocket, Pause> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) {
            Ok(socket) => InternalFd::from(socket),
            // Until others have answered.
            Err(Errno::MFILE | Errno::NFILE) => return Err(Pause::NothingThere),
            Err(error) => return Err(self.io(error).into()),
        };
        let address = abstract_name(&self.name).map_err(|error| self.io(error))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {}
            Err(Errno::CONNREFUSED) => return Err(InspectError::Gone { pid: self.pid }.into()),
            // Its queue of clients is full.
            Err(Errno::AGAIN | Errno::INTR) => return Err(Pause::NothingThere),
            Err(error) => return Err(self.io(error).into()),
        }
        let socket = PeerSocket::new(socket);
        let Some(peer) = socket.peer() else {
            return Err(InspectError::Gone { pid: self.pid }.into());
        };
        // A process of any user may have the name, and would be believed. Root asks processes of all users, and shows whose
        // answer it is.
        if !socket.is_of_our_user() {
            if own_uid() != 0 {
                return Err(InspectError::OtherUser { pid: self.pid }.into());
            }
            self.room = self.room.min(self.others_room);
        }
        self.uid = peer.uid;
        if let Some(pid) = peer.pid {
            self.pid = pid;
            // A child that was forked without `exec` keeps the name when its parent has ended.
            if !Path::new("/proc").join(pid.to_string()).exists() {
                return Err(InspectError::Gone { pid }.into());
            }
        }
        Ok(socket)
    }

    fn read(&mut self, buffer: &mut Vec<u8>) -> Result<(), Pause> {
        let Some(socket) = &self.socket else {
            return Err(Pause::NothingThere);
        };
        buffer.resize(READ_SIZE, 0);
        let most = match socket.is_of_our_user() {
            true => Ok(READ_SIZE),
            false => socket.refuse_descriptors(buffer),
        };
        let received =
            most.and_then(|most| rustix::net::recv(socket, &mut buffer[..most], RecvFlags::DONTWAIT));
        match received {
            Ok((0, _)) | Err(Errno::CONNRESET) => Err(InspectError::Gone { pid: self.pid }.into()),
            Ok((length, _)) => self.take(&buffer[..length]),
            Err(Errno::AGAIN | Errno::INTR) => Err(Pause::NothingThere),
            Err(Errno::BADMSG) => Err(InspectError::Nonsense { pid: self.pid }.into()),
            Err(error) => Err(self.io(error).into()),
        }
    }

    /// Takes what has come: whole lines, and the beginning of one.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Pause> {
        let mut unread = std::mem::take(&mut self.unread);
        unread.extend_from_slice(bytes);
        let mut rest = unread.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.take_line(&rest[..end])?;
            rest = &rest[end + 1..];
        }
        if rest.len() > MAX_LINE {
            return Err(InspectError::Nonsense { pid: self.pid }.into());
        }
        self.unread = rest.to_vec();
        Ok(())
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), Pause> {
        if line == END.as_bytes() && self.greeted {
            return Err(Pause::Ended(State::Whole));
        }
        if line == GREETING.as_bytes() && !self.greeted {
            self.greeted = true;
            return Ok(());
        }
        let pid = self.pid;
        let record = self.names.parse(line).ok_or(InspectError::Nonsense { pid })?;
        if record.kind() == REFUSAL {
            let reason = record.text("reason").to_owned();
            return Err(InspectError::Refused { pid, reason }.into());
        }
        self.room = match self.room.checked_sub(record.memory()) {
            Some(room) => room,
            None => return Err(Pause::Ended(State::Cut)),
        };
        self.records.push(record);
        Ok(())
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
