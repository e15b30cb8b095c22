//! `epoll` over carried sockets and anything else together.
//!
//! The kernel's epoll watches what is plain; carried sockets are kept beside it in a [`Set`]. A wait then polls those
//! rsockets and the epoll's own descriptor, which is readable when the kernel has something. In every such epoll there is
//! an eventfd of ours: when a set changes, whoever waits on it wakes up and looks again, even if it went to sleep in
//! the kernel before there was a set. Its events carry [`mark`], and no program sees them.
//!
//! Edge-triggered watches are told once, and again after the next call on the socket; a program that reads until
//! `EAGAIN`, as the manual asks, does not see a difference. A set that is itself watched by an epoll or a poll
//! reports its plain descriptors only.
//!
//! Read first: [`wait`], then `set.rs`.

mod set;

use crate::connect::{route, settle};
use crate::lock::Lock;
use crate::table::{Carried, Flag, carried};
use crate::wait::{Until, with_mask};
use crate::{next, rsockets};
use libc::{c_int, epoll_event, nfds_t, pollfd, sigset_t, timespec};
use nonic_abi::errno;
use set::{Set, Watch};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// By the epoll's descriptor.
pub(crate) static SETS: Lock<BTreeMap<c_int, Set>> = Lock::new(BTreeMap::new());

/// How many there are; while there is none, nothing here costs anything.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The address of something of ours stands for our eventfd in events.
fn mark() -> u64 {
    (&raw const COUNT) as u64
}

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

fn change(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    socket: &'static Carried,
    event: Option<&epoll_event>,
) -> Result<(), c_int> {
    let mut sets = SETS.lock();
    let watch = event.map(|event| Watch::new(fd, socket, event));
    if let Some(watch) = &watch
        && watch.is_edge_triggered()
    {
        socket.set(Flag::Edge);
    }
    match operation {
        libc::EPOLL_CTL_ADD => {
            let watch = watch.ok_or(libc::EFAULT)?;
            if let std::collections::btree_map::Entry::Vacant(vacant) = sets.entry(epoll) {
                vacant.insert(Set::open(epoll, mark())?);
                COUNT.fetch_add(1, Ordering::Release);
            }
            sets.get_mut(&epoll).ok_or(libc::ENOENT)?.add(watch)
        }
        libc::EPOLL_CTL_MOD => {
            let watch = watch.ok_or(libc::EFAULT)?;
            sets.get_mut(&epoll).ok_or(libc::ENOENT)?.replace(watch)
        }
        libc::EPOLL_CTL_DEL => {
            let set = sets.get_mut(&epoll).ok_or(libc::ENOENT)?;
            set.remove(fd).map(drop).ok_or(libc::ENOENT)
        }
        _ => Err(libc::EINVAL),
    }
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
                set.heard();
            }
        } else {
            found[kept] = found[at];
            kept += 1;
        }
    }
    kept
}

/// Whether there is a set behind this descriptor.
pub(crate) fn knows(fd: c_int) -> bool {
    COUNT.load(Ordering::Acquire) > 0 && SETS.lock().contains_key(&fd)
}

/// A descriptor is closed: what it was watched by and what it watched is over.
pub(crate) fn closed(fd: c_int) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut sets = SETS.lock();
    if sets.remove(&fd).is_some() {
        COUNT.fetch_sub(1, Ordering::Release);
    }
    for set in sets.values_mut() {
        set.remove(fd);
    }
}

/// A socket is carried no more: the kernel watches it from now on.
pub(crate) fn let_go(fd: c_int) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    for (epoll, set) in SETS.lock().iter_mut() {
        if let Some(watch) = set.remove(fd) {
            watch.hand_over(*epoll);
        }
    }
}

/// The program has used a socket: edge-triggered watches have news again.
pub(crate) fn used(fd: c_int, socket: &Carried) {
    if !socket.is(Flag::Edge) {
        return;
    }
    let errno = errno::last();
    for set in SETS.lock().values_mut() {
        set.rearm(fd);
    }
    errno::set(errno);
}

/// A child has none of the rsockets: what watched them is forgotten, without touching what it shares with its parent.
pub(crate) fn forget_all() {
    let sets = std::mem::take(&mut *SETS.lock());
    COUNT.store(0, Ordering::Release);
    for (_, set) in sets {
        set.abandon();
    }
}

/// Whether the program asks for a carried socket that still is one.
fn still(fd: c_int, socket: &Carried) -> bool {
    carried(fd).is_some_and(|found| std::ptr::eq(found, socket))
}
