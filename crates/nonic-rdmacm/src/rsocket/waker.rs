//! Wakers: how a thread that waits for sockets is woken by others.
//!
//! Several threads may wait for one socket, and one thread for many. A thread that changes a socket wakes all that wait
//! for it: it may take a completion that only another thread needs. So each thread has a descriptor of its own. It puts
//! it in the socket's list under the lock under which it found that it must wait, and polls it beside the others.

use crate::descriptor::{Audience, Descriptor};
use libc::{nfds_t, pollfd};
use nonic_abi::errno::{self, Errno, of_io};
use nonic_abi::eventfd;
use nonic_abi::fork::Birth;
use std::cell::RefCell;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A thread's own descriptor.
pub(crate) struct Waker {
    fd: Descriptor,
    /// A child of fork has its own: the parent's would wake the parent.
    made_in: Birth,
}

thread_local! {
    static OWN: RefCell<Option<Rc<Waker>>> = const { RefCell::new(None) };
}

impl Waker {
    /// This thread's.
    pub(crate) fn own() -> Result<Rc<Waker>, Errno> {
        let made_in = Birth::now();
        let kept = OWN.try_with(|own| {
            let mut own = own.borrow_mut();
            if let Some(waker) = own.as_ref().filter(|waker| !waker.made_in.is_elsewhere()) {
                return Ok(Rc::clone(waker));
            }
            let fd = Descriptor::eventfd(libc::EFD_NONBLOCK, Audience::Library)?;
            Ok(Rc::clone(own.insert(Rc::new(Waker { fd, made_in }))))
        });
        // A thread that is at its end, as in a handler of `atexit`, keeps nothing any more.
        kept.unwrap_or_else(|_| {
            let fd = Descriptor::eventfd(libc::EFD_NONBLOCK, Audience::Library)?;
            Ok(Rc::new(Waker { fd, made_in }))
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Waits for any of the descriptors or to be woken; says whether something happened in time.
    pub(crate) fn wait(&self, polled: &mut Vec<pollfd>, deadline: Option<Instant>) -> Result<bool, Errno> {
        polled.push(readable(self.fd()));
        let timeout_ms = deadline.map_or(-1, |deadline| {
            // Rounded up: to wake too early is to wait twice.
            let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
            left.as_millis().min(i32::MAX as u128) as i32
        });
        // SAFETY: the structures are the caller's.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as nfds_t, timeout_ms) };
        let failure = errno::last();
        let own = polled.pop();
        if ready < 0 {
            return Err(of_io("poll", &std::io::Error::from_raw_os_error(failure)));
        }
        if own.is_some_and(|own| own.revents != 0) {
            eventfd::drain(self.fd());
        }
        Ok(ready > 0)
    }
}

/// The threads that wait for a socket.
#[derive(Default)]
pub(crate) struct Waiters(Vec<RawFd>);

impl Waiters {
    pub(crate) fn add(&mut self, waker: &Waker) {
        self.0.push(waker.fd());
    }

    pub(crate) fn remove(&mut self, waker: &Waker) {
        self.0.retain(|fd| *fd != waker.fd());
    }

    /// Wakes all of them.
    pub(crate) fn wake(&mut self) {
        for fd in self.0.drain(..) {
            // It is open: a thread takes its descriptor out of the list before it closes it.
            eventfd::signal(fd);
        }
    }
}

/// To wait until a descriptor can be read.
pub(crate) fn readable(fd: RawFd) -> pollfd {
    pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}
