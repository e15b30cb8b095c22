//! Readiness: which of many sockets have something to do.
//!
//! This is an epoll of its own, watched by the shard's: any of the sockets wakes a thread that sleeps there, and a thread
//! that is awake asks here which. It reports edges, once each; the caller remembers an edge until it has been dealt with.
//! So a connection that may not be read from costs nothing while it waits.

use crate::os::descriptors::InternalFd;
use rustix::event::{Timespec, epoll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Edges that are taken with one system call.
const BATCH: usize = 64;

/// An edge.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Edge {
    /// What the socket was registered as.
    pub(super) token: u64,
    /// There may be something to read, or to accept, or the peer is gone.
    pub(super) readable: bool,
    /// There may be room to write.
    pub(super) writable: bool,
    /// The peer sends no more, or is gone: a reader comes to the end.
    pub(super) hung_up: bool,
}

/// Watches sockets. Closing one ends that.
#[derive(Debug)]
pub(super) struct Readiness {
    epoll: InternalFd,
}

impl Readiness {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Readiness { epoll: epoll.into() })
    }

    /// Watches a socket.
    pub(super) fn watch(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            socket,
            epoll::EventData::new_u64(token),
            flags,
        )?)
    }

    /// Adds the edges there were since the last time to `edges`: some of them, if there are many. Whether there may be more.
    pub(super) fn take(&self, edges: &mut Vec<Edge>) -> io::Result<bool> {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; BATCH];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let events = match epoll::wait(&self.epoll, &mut events, Some(&at_once)) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        let gone = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        edges.extend(events.iter().map(|event| {
            let flags = event.flags;
            Edge {
                token: event.data.u64(),
                readable: flags.intersects(epoll::EventFlags::IN | gone),
                writable: flags.intersects(epoll::EventFlags::OUT | gone),
                hung_up: flags.intersects(gone),
            }
        }));
        Ok(events.len() == BATCH)
    }

    /// Whether the program has closed it.
    pub(super) fn is_lost(&self) -> bool {
        self.epoll.is_lost()
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
