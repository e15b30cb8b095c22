//! The server: a thread that sleeps until a client asks, and never touches the data path but to look.
//!
//! It has one conversation at a time, each with an end: a request is short and must come soon, and it gives up an answer
//! that the client does not read. It hangs up on a client of another user without a word, and not so fast that this keeps a
//! processor busy.

use super::answer;
use super::gate::Gate;
use super::name::ProcessName;
use super::record::Line;
use super::request::{END, GREETING, MAX_REQUEST, REFUSAL, Request};
use crate::eventfd::EventFd;
use crate::host::abstract_name;
use crate::log::tell;
use crate::os::descriptors::InternalFd;
use crate::os::peer_socket::{PeerSocket, close_listener};
use crate::os::poller::timespec;
use crate::os::signals::with_signals_blocked;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Conversations that may wait to be taken.
const BACKLOG: i32 = 16;
/// A request must be whole after this.
const REQUEST_PATIENCE: Duration = Duration::from_secs(1);
/// A client that reads nothing of an answer for so long is given up.
const READER_PATIENCE: Duration = Duration::from_secs(2);
/// No answer takes longer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait after a client was hung up on, or could not be accepted.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a thread that closes the last device waits for the server's to end. The server sleeps nowhere that a signal
/// does not end.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Answers are formatted and sent; the deepest call writes a line of text.
const STACK_BYTES: usize = 256 << 10;

/// Lists the devices that are open.
pub(super) type Devices = fn() -> Vec<Arc<Gate>>;

/// A thread that answers, until it is stopped.
pub(super) struct Server {
    stop: Arc<EventFd>,
    /// Hangs up when the thread has ended.
    ended: Receiver<()>,
}

impl Server {
    pub(super) fn start(name: &ProcessName, devices: Devices) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let listener = InternalFd::from(listener);
        rustix::net::bind(&listener, &abstract_name(name)?)?;
        rustix::net::listen(&listener, BACKLOG)?;
        let stop = Arc::new(EventFd::internal()?);
        let answering = Answering {
            listener: Some(listener),
            stop: Arc::clone(&stop),
            devices,
        };
        let (end, ended) = channel::<()>();
        let builder = std::thread::Builder::new()
            .name("nonic-inspect".to_owned())
            .stack_size(STACK_BYTES);
        with_signals_blocked(|| {
            builder.spawn(move || {
                answering.run();
                drop(answering);
                drop(end);
            })
        })?;
        Ok(Server { stop, ended })
    }

    /// Ends the thread and waits for its end, which does not take long: whatever it waits for, it waits for this as well.
    /// If it takes long all the same, the caller is not kept: the thread has nothing of the device.
    pub(super) fn stop(self) {
        // A program that has closed the descriptor has a thread that sleeps for ever.
        if self.stop.signal().is_ok()
            && self.ended.recv_timeout(END_PATIENCE) == Err(RecvTimeoutError::Timeout)
        {
            tell!(
                WARN,
                "nonic::inspect",
                "the thread that answers `nonic ps` has not ended in {END_PATIENCE:?}"
            );
        }
    }

    /// Forgets a thread that is not of this process: a child of `fork` has none of its parent's.
    pub(super) fn forget(self) {
        std::mem::forget(self);
    }
}

/// What the thread has.
struct Answering {
    /// There until this is dropped.
    listener: Option<InternalFd>,
    stop: Arc<EventFd>,
    devices: Devices,
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take() {
            close_listener(listener);
        }
    }
}

/// Why the thread goes on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Woken {
    Ready,
    TimedOut,
    /// The process has no device any more, or the program closed our descriptors.
    Stopped,
}

impl Answering {
    fn run(&self) {
        let Some(listener) = &self.listener else { return };
        loop {
            match self.wait(listener, PollFlags::IN, None) {
                Woken::Ready => {}
                Woken::TimedOut => continue,
                Woken::Stopped => return,
            }
            if listener.is_lost() {
                // The number is the program's by now, and so are the clients that connect there.
                return;
            }
            match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(line) => {
                    let line = PeerSocket::new(line.into());
                    if !may_ask(&line) || self.converse(&line).is_err() {
                        drop(line);
                        self.pause();
                    }
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => self.pause(),
                // It is no socket of ours any more.
                Err(_) => return,
            }
        }
    }

    fn pause(&self) {
        self.wait(&self.stop, PollFlags::IN, Some(PAUSE));
    }

    /// Sleeps until the descriptor is ready, the thread is to end, or the time is over.
    fn wait(&self, fd: &impl AsFd, wanted: PollFlags, timeout: Option<Duration>) -> Woken {
        let timeout = timeout.map(timespec);
        let mut fds = [PollFd::new(fd, wanted), PollFd::new(&*self.stop, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => Woken::TimedOut,
            // The caller goes on and finds that nothing is there.
            Err(Errno::INTR) => Woken::Ready,
            Err(_) => Woken::Stopped,
            Ok(_) if !fds[1].revents().is_empty() => Woken::Stopped,
            Ok(_) if fds[0].revents().contains(PollFlags::NVAL) => Woken::Stopped,
            Ok(_) => Woken::Ready,
        }
    }

    fn converse(&self, line: &PeerSocket) -> io::Result<()> {
        let deadline = Instant::now() + ANSWER_PATIENCE;
        let request = match Request::parse(&self.read_request(line)?) {
            Ok(request) => request,
            Err(reason) => return self.refuse(line, reason, deadline),
        };
        self.write(line, &format!("{GREETING}\n"), deadline)?;
        let mut sink = |text: &str| self.write(line, text, deadline);
        match answer::answer(request, &(self.devices)(), &mut sink) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.refuse(
                line,
                "a thread of the program keeps the device; ask again",
                deadline,
            ),
            Err(error) => Err(error),
            Ok(()) => self.write(line, &format!("{END}\n"), deadline),
        }
    }

    fn refuse(&self, line: &PeerSocket, reason: &str, deadline: Instant) -> io::Result<()> {
        let mut out = String::new();
        Line::new(&mut out, REFUSAL).text("reason", reason).end();
        self.write(line, &out, deadline)
    }

    /// The first line, without its end.
    fn read_request(&self, line: &PeerSocket) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + REQUEST_PATIENCE;
        let mut request = Vec::with_capacity(MAX_REQUEST);
        loop {
            let mut bytes = [0; MAX_REQUEST];
            let room = MAX_REQUEST - request.len();
            match rustix::net::recv(line, &mut bytes[..room], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((length, _)) => request.extend_from_slice(&bytes[..length]),
                Err(Errno::AGAIN | Errno::INTR) => self.wait_until(line, PollFlags::IN, deadline)?,
                Err(error) => return Err(error.into()),
            }
            if let Some(end) = request.iter().position(|byte| *byte == b'\n') {
                request.truncate(end);
                return Ok(request);
            }
            if request.len() == MAX_REQUEST {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    fn write(&self, line: &PeerSocket, text: &str, deadline: Instant) -> io::Result<()> {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match rustix::net::send(line, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(length) => rest = &rest[length..],
                Err(Errno::AGAIN | Errno::INTR) => {
                    let patience = deadline.min(Instant::now() + READER_PATIENCE);
                    self.wait_until(line, PollFlags::OUT, patience)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn wait_until(&self, line: &PeerSocket, wanted: PollFlags, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.wait(line, wanted, Some(left)) {
            Woken::Ready => Ok(()),
            Woken::TimedOut => Err(io::ErrorKind::TimedOut.into()),
            Woken::Stopped => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

/// Our own user, and root, which can look into the process anyway.
fn may_ask(line: &PeerSocket) -> bool {
    line.is_of_our_user() || line.peer().is_some_and(|peer| peer.uid == 0)
}
