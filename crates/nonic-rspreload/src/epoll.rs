//! `epoll` over carried sockets and anything else together.
//!
//! The kernel's epoll watches plain descriptors; carried sockets are kept beside it in a set ([`watch`](crate::watch)).
//! A wait then polls those rsockets and the epoll's own descriptor, which is readable when the kernel has something.
//! Every such epoll has an eventfd of ours: when a set changes, a thread that waits on it wakes up and looks again,
//! even if it went to sleep in the kernel before there was a set. Its events carry [`mark`], and no program sees them.
//!
//! Edge-triggered watches are reported once, and again after the next call on the socket; a program that reads until
//! `EAGAIN`, as the manual asks, does not see a difference. A set that is itself watched by an epoll or a poll reports
//! its plain descriptors only.
//!
//! Read first: [`wait`], then `watch/set.rs`.

use crate::route::{route, settle};
use crate::wait::{Until, with_mask};
use crate::watch::{SETS, Watch, change, knows, mark};
use crate::{next, rsockets};
use libc::{c_int, epoll_event, nfds_t, pollfd, sigset_t, timespec};
use nonic_abi::errno;
use smallvec::SmallVec;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    route!(fd,
    // SAFETY: the caller's.
    unsafe { next::epoll_ctl(epoll, operation, fd, event) },
    socket => {
        // SAFETY: the caller's: null, or an event.
        let event = unsafe { event.as_ref() };
        match change(epoll, operation, fd, socket, event) {
            Ok(()) => 0,
            Err(errno) => errno::fail(errno),
        }
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { epoll_pwait(epoll, events, room, timeout_ms, std::ptr::null()) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    let until = Until::milliseconds(timeout_ms);
    // SAFETY: the caller's, here and below.
    unsafe {
        wait(epoll, events, room, until, mask, || {
            next::epoll_pwait(epoll, events, room, timeout_ms, mask)
        })
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's, here and below.
    unsafe {
        let until = Until::timespec(timeout);
        wait(epoll, events, room, until, mask, || {
            next::epoll_pwait2(epoll, events, room, timeout, mask)
        })
    }
}

/// Waits in the kernel, and, if there is a set or comes to be one, with rsockets.
///
/// # Safety
/// There is so much room for events.
unsafe fn wait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    until: Until,
    mask: *const sigset_t,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    if rsockets::inside() || room <= 0 {
        return kernel();
    }
    if !knows(epoll) {
        let answer = kernel();
        if answer <= 0 || !knows(epoll) {
            return answer;
        }
        // SAFETY: so many were filled in.
        let found = unsafe { std::slice::from_raw_parts_mut(events, answer as usize) };
        let count = without_mark(epoll, found);
        if count > 0 {
            return count as c_int;
        }
    }
    // SAFETY: the caller's.
    let events = unsafe { std::slice::from_raw_parts_mut(events, room as usize) };
    with_mask(mask, || wait_mixed(epoll, events, until))
}

/// Polls the rsockets of the set and the epoll itself until something is to be told.
fn wait_mixed(epoll: c_int, events: &mut [epoll_event], until: Until) -> c_int {
    loop {
        let Some(mut polled) = enter(epoll) else {
            // Closed in the meantime.
            return errno::fail(libc::EBADF);
        };
        // SAFETY: so many entries.
        let answer = unsafe { rsockets::poll(polled.as_mut_ptr(), polled.len() as nfds_t, until.left_ms()) };
        let error = errno::last();
        let mut count = leave(epoll, &polled[1..], events);
        if answer < 0 {
            return errno::fail(error);
        }
        if polled[0].revents != 0 && count < events.len() {
            let rest = &mut events[count..];
            // SAFETY: so much room is left.
            let found = unsafe {
                next::epoll_pwait(epoll, rest.as_mut_ptr(), rest.len() as c_int, 0, std::ptr::null())
            };
            if found < 0 {
                return found;
            }
            count += without_mark(epoll, &mut rest[..found as usize]);
        }
        if count > 0 || answer == 0 {
            return count as c_int;
        }
    }
}

/// What to poll: the epoll itself, then the watched rsockets in the order of the set.
fn enter(epoll: c_int) -> Option<SmallVec<[pollfd; 32]>> {
    let mut sets = SETS.lock();
    let set = sets.get_mut(&epoll)?;
    set.waiting += 1;
    let own = pollfd {
        fd: epoll,
        events: libc::POLLIN,
        revents: 0,
    };
    Some(
        std::iter::once(own)
            .chain(set.watches.iter().map(Watch::asked))
            .collect(),
    )
}

/// Tells what was found. Answers how many events there are.
fn leave(epoll: c_int, polled: &[pollfd], events: &mut [epoll_event]) -> usize {
    // Connections in the making first: falling back changes the set, which must not be locked.
    for entry in polled.iter().filter(|entry| entry.revents != 0) {
        let watched = {
            let sets = SETS.lock();
            let set = sets.get(&epoll);
            set.and_then(|set| set.by_inner(entry.fd))
                .map(|watch| (watch.fd, watch.socket))
        };
        if let Some((fd, socket)) = watched {
            settle(fd, socket);
        }
    }
    let mut sets = SETS.lock();
    let Some(set) = sets.get_mut(&epoll) else {
        return 0;
    };
    set.waiting -= 1;
    let mut count = 0;
    for entry in polled.iter().filter(|entry| entry.revents != 0) {
        if count == events.len() {
            break;
        }
        if let Some(event) = set
            .by_inner_mut(entry.fd)
            .and_then(|watch| watch.tell(entry.revents))
        {
            events[count] = event;
            count += 1;
        }
    }
    count
}

/// Takes our own event out. Answers how many are left, in front.
fn without_mark(epoll: c_int, found: &mut [epoll_event]) -> usize {
    let mark = mark();
    let mut kept = 0;
    for at in 0..found.len() {
        if found[at].u64 == mark {
            if let Some(set) = SETS.lock().get(&epoll) {
                set.drain();
            }
        } else {
            found[kept] = found[at];
            kept += 1;
        }
    }
    kept
}
