//! `poll` and `ppoll`, over carried sockets and anything else together.
//!
//! rsockets' own `rpoll` takes both, so the work is to name things as it knows them and back. A connection in the
//! making that turns out to fall back to TCP is not news for the program: the wait goes on with what is left of its
//! time.

use crate::route::settle;
use crate::table::{Carried, Flag, carried};
use crate::{next, rsockets};
use libc::{c_int, c_short, nfds_t, pollfd, sigset_t, size_t, timespec};
use nonic_abi::errno;
use smallvec::SmallVec;
use std::time::{Duration, Instant};

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's.
    match unsafe { with_carried(fds, count) } {
        Some(fds) => poll_mixed(fds, Until::milliseconds(timeout_ms)),
        // SAFETY: the caller's.
        None => unsafe { next::poll(fds, count, timeout_ms) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's.
    match unsafe { with_carried(fds, count) } {
        // SAFETY: the caller's.
        Some(fds) => with_mask(mask, || poll_mixed(fds, unsafe { Until::timespec(timeout) })),
        // SAFETY: the caller's.
        None => unsafe { next::ppoll(fds, count, timeout, mask) },
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int, room: size_t) -> c_int {
    if (room / size_of::<pollfd>()) < count as usize {
        // SAFETY: the caller's. It ends the program.
        return unsafe { next::poll_checked(fds, count, timeout_ms, room) };
    }
    // SAFETY: the caller's.
    unsafe { poll(fds, count, timeout_ms) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    if (room / size_of::<pollfd>()) < count as usize {
        // SAFETY: the caller's. It ends the program.
        return unsafe { next::ppoll_checked(fds, count, timeout, mask, room) };
    }
    // SAFETY: the caller's.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// The descriptors, if one of them is carried.
///
/// # Safety
/// There are so many.
unsafe fn with_carried<'a>(fds: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    if fds.is_null() || count == 0 || rsockets::inside() {
        return None;
    }
    // SAFETY: the caller's.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    fds.iter().any(|entry| carried(entry.fd).is_some()).then_some(fds)
}

/// When a wait ends.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Until(Option<Instant>);

impl Until {
    /// Negative is never.
    pub(crate) fn milliseconds(timeout_ms: c_int) -> Self {
        Until(
            u64::try_from(timeout_ms)
                .ok()
                .map(|timeout_ms| Instant::now() + Duration::from_millis(timeout_ms)),
        )
    }

    /// # Safety
    /// Null, which is never, or a time.
    pub(crate) unsafe fn timespec(timeout: *const timespec) -> Self {
        // SAFETY: the caller's.
        Until(unsafe { timeout.as_ref() }.and_then(|timeout| {
            let seconds = Duration::from_secs(u64::try_from(timeout.tv_sec).unwrap_or(0));
            let part = Duration::from_nanos(u64::try_from(timeout.tv_nsec).unwrap_or(0));
            Instant::now().checked_add(seconds + part)
        }))
    }

    /// What is left; `None` if there is no end.
    pub(crate) fn left(self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// The same for `poll`, rounded up: not before the time.
    pub(crate) fn left_ms(self) -> c_int {
        self.left().map_or(-1, |left| {
            c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
        })
    }
}

/// Waits with another signal mask. Not atomically: rsockets have no such wait, and a signal may come in between.
pub(crate) fn with_mask(mask: *const sigset_t, wait: impl FnOnce() -> c_int) -> c_int {
    if mask.is_null() {
        return wait();
    }
    let mut before = std::mem::MaybeUninit::<sigset_t>::uninit();
    // SAFETY: the mask is the program's; there is room for the old one.
    if unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr()) } != 0 {
        return errno::fail(libc::EINVAL);
    }
    let answer = wait();
    let errno = errno::last();
    // SAFETY: it was filled in.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    errno::set(errno);
    answer
}

/// `poll` on the program's descriptors, some of which are carried.
pub(crate) fn poll_mixed(fds: &mut [pollfd], until: Until) -> c_int {
    loop {
        let mut named: SmallVec<[pollfd; 32]> = fds.iter().map(translated).collect();
        let lost = fds.iter().any(|entry| is_lost(entry.fd));
        let left_ms = if lost { 0 } else { until.left_ms() };
        // SAFETY: so many entries.
        let answer = unsafe { rsockets::poll(named.as_mut_ptr(), named.len() as nfds_t, left_ms) };
        if answer < 0 {
            return answer;
        }
        let mut ready = 0;
        let mut fell_back = false;
        for (entry, found) in fds.iter_mut().zip(&named) {
            entry.revents = match carried(entry.fd) {
                Some(socket) => match news(entry, socket, found.revents) {
                    Some(revents) => revents,
                    None => {
                        fell_back = true;
                        0
                    }
                },
                None => found.revents,
            };
            ready += c_int::from(entry.revents != 0);
        }
        if ready > 0 || !fell_back {
            return ready;
        }
    }
}

/// The entry as rsockets know it.
fn translated(entry: &pollfd) -> pollfd {
    let fd = match carried(entry.fd) {
        Some(socket) if socket.is(Flag::Lost) => -1,
        Some(socket) => socket.inner(),
        None => entry.fd,
    };
    pollfd {
        fd,
        events: entry.events,
        revents: 0,
    }
}

fn is_lost(fd: c_int) -> bool {
    carried(fd).is_some_and(|socket| socket.is(Flag::Lost))
}

/// What to tell the program of a carried socket; `None` if it has just fallen back to TCP.
fn news(entry: &pollfd, socket: &'static Carried, found: c_short) -> Option<c_short> {
    if socket.is(Flag::Lost) {
        return Some(libc::POLLERR);
    }
    if found != 0 && !settle(entry.fd, socket) {
        return None;
    }
    if socket.error.load(std::sync::atomic::Ordering::Acquire) != 0 {
        // A connection that failed, as TCP would report it.
        return Some(libc::POLLERR | libc::POLLHUP | entry.events & (libc::POLLIN | libc::POLLOUT));
    }
    Some(found)
}
