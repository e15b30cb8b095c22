//! The poller, on which the background thread or a waiting thread of the program's sleeps: every descriptor whose
//! readability means work.

use super::descriptors::InternalFd;
use rustix::event::{Timespec, epoll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// How it names the descriptor that ends a sleep, and everything else.
const WAKER: u64 = 0;
const OTHERS: u64 = 1;

/// Descriptors that are watched. Closing one ends that.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: InternalFd,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poller { epoll: epoll.into() })
    }

    /// Watches the descriptor that ends a sleep.
    pub(crate) fn watch_waker(&self, fd: impl AsFd) -> io::Result<()> {
        self.add(fd, WAKER)
    }

    /// Watches a descriptor.
    pub(crate) fn watch(&self, fd: impl AsFd) -> io::Result<()> {
        self.add(fd, OTHERS)
    }

    fn add(&self, fd: impl AsFd, name: u64) -> io::Result<()> {
        let name = epoll::EventData::new_u64(name);
        match epoll::add(&self.epoll, fd, name, epoll::EventFlags::IN) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sleeps until something is readable or the time is over. Whether the waker is. Fails if it is no epoll any more,
    /// and so would never sleep again.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
        let timeout = timeout.map(timespec);
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => Ok(events.iter().any(|event| event.data.u64() == WAKER)),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether something is readable.
    pub(crate) fn is_readable(&self) -> bool {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 1];
        let found = epoll::wait(&self.epoll, &mut events, Some(&timespec(Duration::ZERO)));
        found.is_ok_and(|(events, _)| !events.is_empty())
    }

    /// What can be polled in its place: readable while one of the descriptors is.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Whether the program has closed it.
    pub(crate) fn is_lost(&self) -> bool {
        self.epoll.is_lost()
    }
}

/// A duration as the kernel takes it.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).unwrap_or(Timespec {
        tv_sec: i64::MAX,
        tv_nsec: 0,
    })
}
