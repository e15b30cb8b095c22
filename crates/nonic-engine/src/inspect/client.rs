//! Asking a process of this user what is in it. Nothing a process does, or does not do, holds who asks up for longer than said.

use super::name::{ProcessName, names_in};
use super::record::{MAX_LINE, Record};
use super::request::{END, GREETING, REFUSAL, Request};
use crate::host::abstract_name;
use crate::os::poller::timespec;
use crate::socket::peer_credentials;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of an answer, at most: a million queue pairs.
const MAX_ANSWER: usize = 1 << 30;
/// The same of a process of another user, which need not be what it seems.
const MAX_OTHERS_ANSWER: usize = 64 << 20;
/// Bytes that are read at once.
const READ_SIZE: usize = 256 << 10;
/// How long to wait before a process that has too many questions waiting is tried again.
const CROWDED: Duration = Duration::from_millis(5);

/// Why a process did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// It is of another user.
    #[error("process {pid} is of another user; ask as that user")]
    OtherUser {
        /// Its number.
        pid: u32,
    },
    /// It has ended, or closed its last device.
    #[error("process {pid} has ended, or closed its last device")]
    Gone {
        /// Its number.
        pid: u32,
    },
    /// It is there and says nothing.
    #[error("process {pid} does not answer; it may be stopped (`kill -CONT {pid}`) or short of processors")]
    Silent {
        /// Its number.
        pid: u32,
    },
    /// It says why not.
    #[error("process {pid} does not say: {reason}")]
    Refused {
        /// Its number.
        pid: u32,
        /// In its words.
        reason: String,
    },
    /// What it says makes no sense.
    #[error("process {pid} answers with something else than records; is its nonic of another version?")]
    Nonsense {
        /// Its number.
        pid: u32,
    },
    /// The operating system refused.
    #[error("cannot ask process {pid}: {error}")]
    Io {
        /// Its number.
        pid: u32,
        /// What it said.
        error: io::Error,
    },
}

/// A process with an open device.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Process {
    name: ProcessName,
}

/// What a process answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its number, as this process counts; its own number if it is in a PID namespace that we do not see.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// What tells it from another one with the same number, in another PID namespace.
    pub nonce: u64,
    /// What it said.
    pub records: Vec<Record>,
}

/// The processes of this network namespace that have a device open, of all users.
pub fn processes() -> io::Result<Vec<Process>> {
    let table = std::fs::read("/proc/net/unix")?;
    let names = names_in(&String::from_utf8_lossy(&table));
    Ok(names.into_iter().map(|name| Process { name }).collect())
}

impl Process {
    /// Its number, as it calls itself.
    pub fn pid(&self) -> u32 {
        self.name.pid
    }

    /// Asks it, and waits no longer than `patience`.
    pub fn ask(&self, request: Request, patience: Duration) -> Result<Answer, InspectError> {
        let mut asking = Asking {
            pid: self.name.pid,
            uid: own_uid(),
            deadline: Instant::now() + patience,
            unread: Vec::new(),
            taken: 0,
        };
        let socket = asking.connect(&self.name)?;
        let line = request.line();
        let sent = rustix::net::send(
            &socket,
            line.as_bytes(),
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        );
        match sent {
            // A fresh socket has room for a line.
            Ok(_) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(InspectError::Gone { pid: asking.pid }),
            Err(error) => return Err(asking.io(error)),
        }
        let records = asking.read_answer(&socket)?;
        Ok(Answer {
            pid: asking.pid,
            uid: asking.uid,
            nonce: self.name.nonce,
            records,
        })
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A question under way.
struct Asking {
    pid: u32,
    uid: u32,
    deadline: Instant,
    /// The beginning of a line whose end has not come.
    unread: Vec<u8>,
    /// Bytes so far.
    taken: usize,
}

impl Asking {
    fn io(&self, error: Errno) -> InspectError {
        InspectError::Io {
            pid: self.pid,
            error: error.into(),
        }
    }

    fn connect(&mut self, name: &ProcessName) -> Result<OwnedFd, InspectError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|error| self.io(error))?;
        let address = abstract_name(name).map_err(|error| self.io(error))?;
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                Err(Errno::CONNREFUSED) => return Err(InspectError::Gone { pid: self.pid }),
                // As many ask already as it lets wait.
                Err(Errno::AGAIN) if Instant::now() < self.deadline => std::thread::sleep(CROWDED),
                Err(Errno::AGAIN) => return Err(InspectError::Silent { pid: self.pid }),
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.io(error)),
            }
        }
        let peer = peer_credentials(&socket).map_err(|error| InspectError::Io { pid: self.pid, error })?;
        // Anybody may have the name, and would be believed. Root asks everybody, and shows whose answer it is.
        if peer.uid != own_uid() && own_uid() != 0 {
            return Err(InspectError::OtherUser { pid: self.pid });
        }
        self.uid = peer.uid;
        if let Some(pid) = peer.pid {
            self.pid = pid;
            // A child that was forked without `exec` keeps the name when its parent has ended.
            if !Path::new("/proc").join(pid.to_string()).exists() {
                return Err(InspectError::Gone { pid });
            }
        }
        Ok(socket)
    }

    fn read_answer(&mut self, socket: &OwnedFd) -> Result<Vec<Record>, InspectError> {
        let mut records = Vec::new();
        let mut greeted = false;
        let mut buffer = vec![0; READ_SIZE];
        loop {
            let length = self.read(socket, &mut buffer)?;
            self.taken += length;
            self.unread.extend_from_slice(&buffer[..length]);
            let unread = std::mem::take(&mut self.unread);
            let mut rest = unread.as_slice();
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = &rest[..end];
                rest = &rest[end + 1..];
                if line == END.as_bytes() && greeted {
                    return Ok(records);
                }
                if line == GREETING.as_bytes() && !greeted {
                    greeted = true;
                    continue;
                }
                let record = Record::parse(line).ok_or(InspectError::Nonsense { pid: self.pid })?;
                if record.kind() == REFUSAL {
                    let reason = record.text("reason").to_owned();
                    return Err(InspectError::Refused {
                        pid: self.pid,
                        reason,
                    });
                }
                records.push(record);
            }
            self.unread = rest.to_vec();
            let most = match self.uid == own_uid() {
                true => MAX_ANSWER,
                false => MAX_OTHERS_ANSWER,
            };
            if self.unread.len() > MAX_LINE || self.taken > most {
                return Err(InspectError::Nonsense { pid: self.pid });
            }
        }
    }

    fn read(&self, socket: &OwnedFd, buffer: &mut [u8]) -> Result<usize, InspectError> {
        loop {
            match rustix::net::recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Err(InspectError::Gone { pid: self.pid }),
                Ok((length, _)) => return Ok(length),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = self.deadline.saturating_duration_since(Instant::now());
                    let mut fds = [PollFd::new(socket, PollFlags::IN)];
                    match poll(&mut fds, Some(&timespec(left))) {
                        Ok(0) => return Err(InspectError::Silent { pid: self.pid }),
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(self.io(error)),
                    }
                }
                Err(error) => return Err(self.io(error)),
            }
        }
    }
}
