//! A wake-up call between threads as a file descriptor, so that it can be waited for next to sockets.
//!
//! Read first: [`EventFd`]. It refuses to carry data: any number of signals before a drain are one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::os::descriptors::InternalFd;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// A non-blocking `eventfd`: readable from the first [`signal`](Self::signal) until the next
/// [`drain`](Self::drain).
///
/// A program may have closed it and opened something else under its number. That is neither written nor read: both
/// fail with `EBADF`.
#[derive(Debug)]
pub struct EventFd(InternalFd);

impl EventFd {
    /// A new one for a program to wait on, not signalled. Closed on `exec`, so that a child program does not
    /// inherit it.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(EventFd(InternalFd::seen_by_the_program(fd)))
    }

    /// A new one that no program sees.
    pub(crate) fn internal() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(EventFd(fd.into()))
    }

    /// Whether the program has closed it.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    fn check(&self) -> io::Result<()> {
        match self.is_lost() {
            true => Err(Errno::BADF.into()),
            false => Ok(()),
        }
    }

    /// Makes it readable.
    pub fn signal(&self) -> io::Result<()> {
        self.check()?;
        match rustix::io::retry_on_intr(|| rustix::io::write(&self.0, &1_u64.to_ne_bytes())) {
            // A counter at its maximum is as readable as can be.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes it unreadable; says whether it had been signalled since the last drain.
    pub fn drain(&self) -> io::Result<bool> {
        self.check()?;
        let mut count = [0; 8];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut count)) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn readable(event: &EventFd) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&now)).expect("poll works") == 1
    }

    #[test]
    fn signals_merge_until_drained() {
        let event = EventFd::new().expect("an eventfd");
        assert!(!readable(&event));
        assert!(!event.drain().expect("drain"));
        event.signal().expect("signal");
        event.signal().expect("signal");
        assert!(readable(&event));
        assert!(event.drain().expect("drain"));
        assert!(!readable(&event));
        assert!(!event.drain().expect("drain"));
    }

    #[test]
    fn a_full_counter_is_still_signalled() {
        let event = EventFd::new().expect("an eventfd");
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).expect("the largest count");
        event.signal().expect("signal");
        assert!(event.drain().expect("drain"));
    }
}
