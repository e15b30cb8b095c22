//! What epolls watch: for each of them the carried sockets it was told to watch, as a [`Set`].
//!
//! The calls of `epoll` that the program makes are above. A call that closes or uses a socket, or lets it fall back to
//! TCP, reports it here. While there is no set, that costs one load.

mod set;

use crate::lock::Lock;
use crate::table::{Carried, Flag};
use libc::{c_int, epoll_event};
use nonic_abi::errno;
pub(crate) use set::{Set, Watch};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};

/// By the epoll's descriptor.
pub(crate) static SETS: Lock<BTreeMap<c_int, Set>> = Lock::new(BTreeMap::new());

/// How many there are; while there is none, nothing here costs anything.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The address of something of ours stands for our eventfd in the events of an epoll.
pub(crate) fn mark() -> u64 {
    (&raw const COUNT) as u64
}

/// `epoll_ctl` for a carried socket.
pub(crate) fn change(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    socket: &'static Carried,
    event: Option<&epoll_event>,
) -> Result<(), c_int> {
    let mut sets = SETS.lock();
    let watch = event.map(|event| Watch::new(fd, socket, event));
    if watch.as_ref().is_some_and(Watch::is_edge_triggered) {
        socket.set(Flag::Edge);
    }
    match operation {
        libc::EPOLL_CTL_ADD => {
            let watch = watch.ok_or(libc::EFAULT)?;
            if let Entry::Vacant(vacant) = sets.entry(epoll) {
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
pub(crate) fn hand_over(fd: c_int) {
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
