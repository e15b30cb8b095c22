//! The carried sockets that one epoll watches.

use crate::internal::InternalFd;
use crate::next;
use crate::table::{Carried, Flag, carried};
use libc::{c_int, c_short, epoll_event, pollfd};
use nonic_abi::{errno, eventfd};
use std::os::fd::IntoRawFd;
use std::sync::atomic::Ordering;

/// What poll and epoll call by the same number.
const COMMON: u32 = (libc::EPOLLIN
    | libc::EPOLLPRI
    | libc::EPOLLOUT
    | libc::EPOLLERR
    | libc::EPOLLHUP
    | libc::EPOLLRDNORM
    | libc::EPOLLRDBAND
    | libc::EPOLLWRNORM
    | libc::EPOLLWRBAND
    | libc::EPOLLRDHUP) as u32;

/// Events that are reported whether or not they were asked for.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// A carried socket that is watched.
pub(crate) struct Watch {
    pub(crate) fd: c_int,
    pub(crate) socket: &'static Carried,
    event: epoll_event,
    /// What has been told since the program last used it; only edge-triggered watches remember.
    told: u32,
    /// A one-shot watch that has fired is not.
    enabled: bool,
}

impl Watch {
    pub(crate) fn new(fd: c_int, socket: &'static Carried, event: &epoll_event) -> Self {
        Watch {
            fd,
            socket,
            event: *event,
            told: 0,
            enabled: true,
        }
    }

    pub(crate) fn is_edge_triggered(&self) -> bool {
        self.event.events & libc::EPOLLET as u32 != 0
    }

    /// What to ask rsockets.
    pub(crate) fn asked(&self) -> pollfd {
        // Errors and hang-ups are reported whether asked for or not, so the only way not to hear of them is not to ask.
        let silent = !self.enabled || self.told & ALWAYS != 0 || self.socket.is(Flag::Lost);
        pollfd {
            fd: if silent { -1 } else { self.socket.inner() },
            events: (self.event.events & COMMON & !self.told) as c_short,
            revents: 0,
        }
    }

    /// The event to tell, if there is news.
    pub(crate) fn tell(&mut self, revents: c_short) -> Option<epoll_event> {
        if !self.enabled || !still(self.fd, self.socket) {
            return None;
        }
        let mut ready = u32::from(revents as u16) & COMMON & (self.event.events | ALWAYS);
        if self.socket.error.load(Ordering::Acquire) != 0 {
            ready |= ALWAYS;
        }
        if ready & !self.told == 0 {
            return None;
        }
        if self.is_edge_triggered() {
            self.told |= ready;
        }
        if self.event.events & libc::EPOLLONESHOT as u32 != 0 {
            self.enabled = false;
        }
        Some(epoll_event {
            events: ready,
            u64: self.event.u64,
        })
    }

    /// The kernel watches it instead.
    pub(crate) fn hand_over(mut self, epoll: c_int) {
        if !self.enabled {
            self.event.events = 0;
        }
        // SAFETY: an event. If it fails, the epoll has just been closed.
        unsafe { next::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, self.fd, &raw mut self.event) };
    }
}

/// Whether the program asks for a carried socket that still is one.
fn still(fd: c_int, socket: &Carried) -> bool {
    carried(fd).is_some_and(|found| std::ptr::eq(found, socket))
}

/// All that one epoll watches.
pub(crate) struct Set {
    pub(crate) watches: Vec<Watch>,
    /// Threads that wait.
    pub(crate) waiting: usize,
    /// The eventfd that wakes them.
    wake_fd: InternalFd,
}

impl Set {
    /// A set beside an epoll, which watches the set's eventfd.
    pub(crate) fn open(epoll: c_int, mark: u64) -> Result<Self, c_int> {
        let mut event = epoll_event {
            events: libc::EPOLLIN as u32,
            u64: mark,
        };
        let wake_fd = InternalFd::new(
            eventfd::new(libc::EFD_NONBLOCK)
                .map_err(|errno| errno.number())?
                .into_raw_fd(),
        );
        let number = wake_fd.number();
        let set = Set {
            watches: Vec::new(),
            waiting: 0,
            wake_fd,
        };
        // SAFETY: an event.
        match unsafe { next::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, number, &raw mut event) } {
            0 => Ok(set),
            _ => Err(errno::last()),
        }
    }

    pub(crate) fn add(&mut self, watch: Watch) -> Result<(), c_int> {
        if self.watches.iter().any(|known| known.fd == watch.fd) {
            return Err(libc::EEXIST);
        }
        self.watches.push(watch);
        self.wake();
        Ok(())
    }

    pub(crate) fn replace(&mut self, watch: Watch) -> Result<(), c_int> {
        let known = self.watches.iter_mut().find(|known| known.fd == watch.fd);
        *known.ok_or(libc::ENOENT)? = watch;
        self.wake();
        Ok(())
    }

    /// Waiting threads are not woken: they would find nothing new.
    pub(crate) fn remove(&mut self, fd: c_int) -> Option<Watch> {
        let at = self.watches.iter().position(|watch| watch.fd == fd)?;
        Some(self.watches.remove(at))
    }

    pub(crate) fn by_inner(&self, inner: c_int) -> Option<&Watch> {
        self.watches.iter().find(|watch| watch.socket.inner() == inner)
    }

    pub(crate) fn by_inner_mut(&mut self, inner: c_int) -> Option<&mut Watch> {
        self.watches
            .iter_mut()
            .find(|watch| watch.socket.inner() == inner)
    }

    /// A watch may tell again what it has told.
    pub(crate) fn rearm(&mut self, fd: c_int) {
        let watch = self.watches.iter_mut().find(|watch| watch.fd == fd);
        let changed = watch.is_some_and(|watch| std::mem::take(&mut watch.told) != 0);
        if changed && self.waiting > 0 {
            self.wake();
        }
    }

    /// Wakes waiting threads. The first time they may wait in the kernel, where they are not counted.
    fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes. It fails only if the count is at its maximum, and then it is readable.
        unsafe { next::write(self.wake_fd.number(), one.as_ptr().cast(), one.len()) };
    }

    /// Our own event has come: the eventfd is not readable any more until the next change.
    pub(crate) fn drain(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: eight bytes. It fails if another thread has drained it.
        unsafe { next::read(self.wake_fd.number(), count.as_mut_ptr().cast(), count.len()) };
    }

    /// Ends it in a child of the process that it belongs to.
    pub(crate) fn abandon(self) {
        std::mem::forget(self);
    }
}
