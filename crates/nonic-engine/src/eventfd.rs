//! A wake-up call between threads as a file descriptor, so that it can be waited for next to sockets.
//!
//! Read first: [`EventFd`]. It refuses to carry data: any number of signals before a drain are one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// A non-blocking `eventfd`: readable from the first [`signal`](Self::signal) until the next
/// [`drain`](Self::drain).
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new one, not signalled. Closed on `exec`, so that a child program does not inherit it.
    pub fn new() -> io::Result<Self> {
        Ok(EventFd(eventfd(
            0,
            EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC,
        )?))
    }

    /// Makes it readable.
    pub fn signal(&self) -> io::Result<()> {
        match rustix::io::retry_on_intr(|| rustix::io::write(&self.0, &1_u64.to_ne_bytes())) {
            // A counter at its maximum is as readable as can be.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes it unreadable; says whether it had been signalled since the last drain.
    pub fn drain(&self) -> io::Result<bool> {
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

impl From<EventFd> for OwnedFd {
    fn from(event: EventFd) -> Self {
        event.0
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
