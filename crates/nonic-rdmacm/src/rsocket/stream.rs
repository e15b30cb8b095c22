//! Stream sockets, from creation to the end of their connection.

use super::backlog::Backlog;
use super::identifier::Identifier;
use super::protocol::{Ending, Stream};
use super::settings::{LINGER, Settings};
use super::stream_queue_pair::{StreamQueuePair, parameters};
use super::vector::Vector;
use super::wait::{Progress, Waitable, wait};
use super::wait_limit::WaitLimit;
use super::waker::{Waiters, readable};
use super::{service, table};
use crate::address;
use crate::connection;
use crate::convert::mapped;
use crate::descriptor::{Audience, Descriptor};
use crate::refusal;
use crate::refusal::not_connected;
use libc::{c_int, c_void, off_t, pollfd};
use nonic_abi::errno::{Errno, expected, refused};
use nonic_abi::rdma_cma::{RDMA_PS_TCP, rdma_cm_id};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// A stream socket.
pub(crate) struct StreamSocket {
    /// Its number; nothing is ever read from it.
    fd: Descriptor,
    is_v6: bool,
    state: Mutex<StreamState>,
}

/// What its lock protects.
pub(crate) struct StreamState {
    pub(crate) settings: Settings,
    pub(crate) phase: Phase,
    pub(crate) waiters: Waiters,
    /// `SO_ERROR`.
    pub(crate) error: c_int,
    /// How often a connection was asked for again.
    pub(super) attempts: u32,
}

/// How far it has come.
pub(crate) enum Phase {
    /// Perhaps bound.
    Idle(Option<Identifier>),
    Listening(Backlog<StreamSocket>),
    Connecting(StreamQueuePair),
    /// Made by a listener that will be told.
    Accepting(StreamQueuePair, Weak<StreamSocket>),
    /// Connected, or it was.
    Open(StreamQueuePair),
    /// It could not be connected.
    Failed(c_int),
    /// The program has closed it.
    Closed,
}

impl Phase {
    pub(crate) fn queue_pair(&mut self) -> Option<&mut StreamQueuePair> {
        match self {
            Phase::Open(queue_pair) => Some(queue_pair),
            _ => None,
        }
    }

    pub(super) fn is_opening(&self) -> bool {
        matches!(self, Phase::Connecting(_) | Phase::Accepting(..))
    }

    /// The identifier, while there is one.
    pub(crate) fn identifier(&self) -> Option<&Identifier> {
        match self {
            Phase::Idle(identifier) => identifier.as_ref(),
            Phase::Listening(listening) => Some(listening.identifier()),
            Phase::Connecting(queue_pair) | Phase::Accepting(queue_pair, _) | Phase::Open(queue_pair) => {
                Some(&queue_pair.identifier)
            }
            Phase::Failed(_) | Phase::Closed => None,
        }
    }

    /// Whether an event of this identifier is for it.
    pub(super) fn is_of(&self, id: *mut rdma_cm_id) -> bool {
        self.identifier()
            .is_some_and(|identifier| identifier.as_c() == id)
    }
}

impl StreamState {
    pub(super) fn stream(&mut self) -> Option<&mut Stream> {
        self.phase.queue_pair().and_then(StreamQueuePair::stream_mut)
    }

    /// Its queues are made, as large as was wanted then.
    pub(super) fn has_queues(&self) -> bool {
        !matches!(
            self.phase,
            Phase::Idle(_) | Phase::Listening(_) | Phase::Failed(_)
        )
    }

    /// The queue pair, of a socket that is or was connected.
    pub(crate) fn open(&mut self) -> Result<&mut StreamQueuePair, Errno> {
        match &mut self.phase {
            Phase::Open(queue_pair) => Ok(queue_pair),
            Phase::Failed(_) | Phase::Idle(_) | Phase::Listening(_) => Err(refusal::socket_not_connected()),
            Phase::Connecting(_) | Phase::Accepting(..) => Err(expected(libc::EAGAIN)),
            Phase::Closed => Err(refusal::socket_closed()),
        }
    }
}

impl StreamSocket {
    pub(crate) fn new(settings: Settings, is_v6: bool) -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(StreamSocket {
            fd: Descriptor::eventfd(libc::EFD_NONBLOCK, Audience::Socket)?,
            is_v6,
            state: Mutex::new(StreamState {
                settings,
                phase: Phase::Idle(None),
                waiters: Waiters::default(),
                error: 0,
                attempts: 0,
            }),
        }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// It was made for addresses of IPv6.
    pub(crate) fn is_v6(&self) -> bool {
        self.is_v6
    }

    /// The identifier of a socket that is not connected; a new one if there is none.
    fn take_identifier(&self, state: &mut StreamState) -> Result<Identifier, Errno> {
        match &mut state.phase {
            Phase::Idle(identifier) => match identifier.take() {
                Some(identifier) => Ok(identifier),
                None => self.new_identifier(),
            },
            Phase::Failed(_) => self.new_identifier(),
            Phase::Connecting(_) => Err(expected(libc::EALREADY)),
            Phase::Open(_) | Phase::Accepting(..) => Err(refused(
                libc::EISCONN,
                "the socket is connected",
                "make another socket for another connection",
            )),
            Phase::Listening(_) => Err(refused(
                libc::EINVAL,
                "the socket listens",
                "make another socket to connect",
            )),
            Phase::Closed => Err(refusal::socket_closed()),
        }
    }

    /// A new identifier, whose events go to the service.
    pub(super) fn new_identifier(&self) -> Result<Identifier, Errno> {
        Identifier::new(&*service::channel()?, self.fd(), RDMA_PS_TCP)
    }

    pub(crate) fn bind(&self, local: SocketAddr) -> Result<(), Errno> {
        let mut state = self.lock();
        let identifier = self.take_identifier(&mut state)?;
        let bound = address::bind(&identifier.id(), local);
        state.phase = Phase::Idle(Some(identifier));
        bound
    }

    pub(crate) fn listen(&self, backlog: c_int) -> Result<(), Errno> {
        let mut state = self.lock();
        if let Phase::Listening(listening) = &mut state.phase {
            listening.set_backlog(backlog);
            return Ok(());
        }
        let identifier = self.take_identifier(&mut state)?;
        identifier.id().state().own_family_only = state.settings.own_family_only;
        // How many wait is decided here: the connection manager's own queue only has to be long enough.
        match connection::listen(&identifier.id(), 0) {
            Ok(()) => {
                state.phase = Phase::Listening(Backlog::new(identifier, backlog));
                Ok(())
            }
            Err(errno) => {
                state.phase = Phase::Idle(Some(identifier));
                Err(errno)
            }
        }
    }

    pub(crate) fn connect(&self, remote: SocketAddr) -> Result<(), Errno> {
        let mut state = self.lock();
        let identifier = self.take_identifier(&mut state)?;
        // An identifier that cannot be used has no events yet, so it may go under the lock.
        state.phase = Phase::Idle(None);
        state.attempts = 0;
        state.phase = Phase::Connecting(ask(identifier, remote, &state.settings)?);
        let limit = state.settings.send_limit(0);
        let state = wait(self, state, limit, |state| !state.phase.is_opening());
        let mut state = state.map_err(|errno| match errno.is(libc::EAGAIN) {
            true => expected(libc::EINPROGRESS),
            false => errno,
        })?;
        state.error = 0;
        match state.phase {
            Phase::Open(_) => Ok(()),
            Phase::Failed(errno) => Err(not_connected(errno)),
            _ => Err(refusal::socket_closed()),
        }
    }

    /// Waits for a connection under way, if it may.
    fn connected<'a>(
        &'a self,
        state: MutexGuard<'a, StreamState>,
        limit: WaitLimit,
    ) -> Result<MutexGuard<'a, StreamState>, Errno> {
        let mut state = match state.phase.is_opening() {
            true => wait(self, state, limit, |state| !state.phase.is_opening())?,
            false => state,
        };
        state.open()?;
        Ok(state)
    }

    /// Sends; tells how much.
    pub(crate) fn send(&self, vector: &mut Vector<'_>, flags: c_int) -> Result<usize, Errno> {
        self.write(flags, Stream::can_send, |queue_pair| {
            let sent = match queue_pair.send_iomappings() {
                true => queue_pair.send(vector),
                false => 0,
            };
            (sent, vector.left() == 0)
        })
    }

    /// Calls `step`, which answers what it has sent and whether that was all, until it was all or the call may not wait.
    pub(super) fn write(
        &self,
        flags: c_int,
        can_send: fn(&Stream) -> bool,
        mut step: impl FnMut(&mut StreamQueuePair) -> (usize, bool),
    ) -> Result<usize, Errno> {
        let state = self.lock();
        let limit = state.settings.send_limit(flags);
        let mut state = self.connected(state, limit)?;
        let mut sent = 0;
        loop {
            let queue_pair = state.open()?;
            let stream = queue_pair.stream().ok_or_else(refusal::socket_not_connected)?;
            if !stream.is_writable() {
                let errno = match stream.is_connected() {
                    true => refused(
                        libc::EPIPE,
                        "this side or the peer has shut the connection down for what is sent",
                        "expect it when a peer closes; send no more",
                    ),
                    false => refused(
                        libc::ECONNRESET,
                        "the connection broke, or the peer closed it",
                        "see what the line of its queue pair says, and what the peer says",
                    ),
                };
                return if sent > 0 { Ok(sent) } else { Err(errno) };
            }
            let (more, done) = step(queue_pair);
            sent += more;
            if done {
                return Ok(sent);
            }
            let ready = |state: &mut StreamState| {
                state
                    .stream()
                    .is_none_or(|stream| can_send(stream) || !stream.is_writable())
            };
            state = match wait(self, state, limit, ready) {
                Ok(state) => state,
                Err(_) if sent > 0 => return Ok(sent),
                Err(errno) => return Err(errno),
            };
        }
    }

    /// Receives; tells how much, 0 at the end.
    pub(crate) fn receive(&self, vector: &mut Vector<'_>, flags: c_int) -> Result<usize, Errno> {
        let state = self.lock();
        let limit = state.settings.receive_limit(flags);
        let mut state = self.connected(state, limit)?;
        let (peek, all) = (flags & libc::MSG_PEEK != 0, flags & libc::MSG_WAITALL != 0);
        let mut received = 0;
        while vector.left() > 0 {
            let queue_pair = state.open()?;
            let more = queue_pair.receive(vector, peek);
            received += more;
            if more > 0 && (peek || !all) || vector.left() == 0 {
                break;
            }
            let stream = queue_pair.stream().ok_or_else(refusal::socket_not_connected)?;
            if more == 0 && stream.unread() == 0 && !stream.is_readable() {
                if stream.is_broken() && received == 0 {
                    return Err(refused(
                        libc::ECONNRESET,
                        "the connection broke, or the peer closed it",
                        "see what the line of its queue pair says, and what the peer says",
                    ));
                }
                break;
            }
            let ready = |state: &mut StreamState| {
                state
                    .stream()
                    .is_none_or(|stream| stream.unread() > 0 || !stream.is_readable())
            };
            state = match wait(self, state, limit, ready) {
                Ok(state) => state,
                Err(_) if received > 0 => break,
                Err(errno) => return Err(errno),
            };
        }
        Ok(received)
    }

    /// Ends one direction or both, and waits until the peer has what was sent.
    pub(crate) fn shut_down(&self, ending: Ending) -> Result<(), Errno> {
        let mut state = self.lock();
        match &mut state.phase {
            Phase::Listening(listening) => {
                listening.is_shut_down = true;
                state.waiters.wake();
                return Ok(());
            }
            Phase::Open(_) => {}
            _ => {
                return Err(refusal::socket_not_connected());
            }
        }
        state.progress();
        if let Some(stream) = state.stream() {
            stream.shut_down(ending);
        }
        // Threads that wait to read or write need wait no longer.
        state.waiters.wake();
        if ending == Ending::Reading {
            state.progress();
            return Ok(());
        }
        let linger = state.settings.linger.unwrap_or(LINGER);
        let waited = wait(self, state, WaitLimit::new(true, Some(linger)), |state| {
            state
                .stream()
                .is_none_or(|stream| stream.is_idle() || !stream.is_connected())
        });
        waited.map(drop).or(Ok(()))
    }

    /// Ends everything. The number is not known any more.
    pub(crate) fn close(&self) {
        // A socket that is not connected has nothing to end.
        let _ = self.shut_down(Ending::Both);
        self.end_connection();
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.phase, Phase::Closed);
        state.waiters.wake();
        drop(state);
        if let Phase::Listening(listening) = before {
            listening.established.iter().for_each(|socket| socket.abandon());
        }
    }

    /// Where it takes the end of the connection to know that the peer has everything, ends it and waits.
    fn end_connection(&self) {
        let mut state = self.lock();
        let linger = state.settings.linger.unwrap_or(LINGER);
        match &mut state.phase {
            Phase::Open(queue_pair) if queue_pair.ends_with_connection() => queue_pair.end_connection(),
            _ => return,
        }
        // However that ends, there is nothing more to be done.
        let waited = wait(self, state, WaitLimit::new(true, Some(linger)), |state| {
            state
                .phase
                .queue_pair()
                .is_none_or(|queue_pair| queue_pair.is_flushed())
        });
        drop(waited);
    }

    /// Ends a connection that no program has heard of.
    pub(super) fn abandon(&self) {
        drop(table::remove(self.fd()));
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.phase, Phase::Closed);
        drop(state);
        // Not under the lock: destroying an identifier may wait for the service.
        drop(before);
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        let state = self.lock();
        let local = state.phase.identifier()?.id().state().local?;
        Some(self.presentable(local))
    }

    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        let state = self.lock();
        let remote = state.phase.identifier()?.id().state().remote?;
        Some(self.presentable(remote))
    }

    /// As the family of the socket has it.
    fn presentable(&self, address: SocketAddr) -> SocketAddr {
        match self.is_v6() {
            true => mapped(address),
            false => address,
        }
    }

    pub(crate) fn map(
        &self,
        buffer: *mut c_void,
        len: usize,
        prot: c_int,
        offset: off_t,
    ) -> Result<off_t, Errno> {
        self.lock().open()?.map(buffer, len, prot, offset)
    }

    pub(crate) fn unmap(&self, buffer: *mut c_void, len: usize) -> Result<(), Errno> {
        self.lock().open()?.unmap(buffer, len)
    }

    pub(crate) fn write_at(
        &self,
        vector: &mut Vector<'_>,
        offset: off_t,
        flags: c_int,
    ) -> Result<usize, Errno> {
        let mut offset = offset as u64;
        self.write(flags, Stream::can_send_directly, |queue_pair| {
            let (sent, done) = queue_pair.send_directly(vector, offset);
            offset += sent as u64;
            (sent, done)
        })
    }
}

impl Waitable for StreamSocket {
    type State = StreamState;

    fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for StreamState {
    fn advance(&mut self) -> bool {
        self.phase.queue_pair().is_some_and(StreamQueuePair::progress)
    }

    fn arm(&mut self, polled: &mut Vec<pollfd>) {
        if let Some(queue_pair) = self.phase.queue_pair() {
            queue_pair.arm();
            polled.push(readable(queue_pair.event_fd()));
        }
    }

    fn disarm(&mut self, _polled: &[pollfd]) {
        if let Some(queue_pair) = self.phase.queue_pair() {
            queue_pair.take_event();
        }
    }

    fn waiters(&mut self) -> &mut Waiters {
        &mut self.waiters
    }

    fn silence(&self) -> Option<Duration> {
        matches!(self.phase, Phase::Open(_)).then(|| self.settings.silence())
    }

    fn probe(&mut self) {
        if let Some(stream) = self.stream() {
            stream.probe();
        }
    }

    fn events(&mut self, wanted: i16) -> i16 {
        let both = wanted & (libc::POLLIN | libc::POLLOUT);
        match &mut self.phase {
            Phase::Idle(_) => both & libc::POLLOUT | libc::POLLHUP,
            Phase::Connecting(_) | Phase::Accepting(..) => 0,
            Phase::Listening(listening) => {
                match listening.established.is_empty() && !listening.is_shut_down {
                    true => 0,
                    false => both & libc::POLLIN,
                }
            }
            Phase::Failed(_) => both | libc::POLLERR | libc::POLLHUP,
            Phase::Closed => libc::POLLNVAL,
            Phase::Open(queue_pair) => queue_pair.stream().map_or(0, |stream| {
                let mut events = 0;
                if stream.unread() > 0 || !stream.is_readable() {
                    events |= libc::POLLIN | libc::POLLRDNORM;
                }
                if stream.can_send() || !stream.is_writable() {
                    events |= libc::POLLOUT | libc::POLLWRNORM;
                }
                if !stream.is_readable() {
                    events |= libc::POLLRDHUP;
                }
                events &= wanted;
                // Not before everything was read: programs take it for the end.
                if !stream.is_connected() && stream.unread() == 0 {
                    events |= match stream.is_broken() {
                        true => libc::POLLERR | libc::POLLHUP,
                        false => libc::POLLHUP,
                    };
                }
                events
            }),
        }
    }
}

/// Asks the peer for a connection.
pub(super) fn ask(
    identifier: Identifier,
    remote: SocketAddr,
    settings: &Settings,
) -> Result<StreamQueuePair, Errno> {
    let id = identifier.id();
    address::resolve(&id, None, remote)?;
    id.fill_path();
    let queue_pair = StreamQueuePair::new(identifier, settings)?;
    let hello = queue_pair.hello().emit();
    connection::connect(&id, &parameters(&hello, id.is_iwarp()))?;
    Ok(queue_pair)
}
