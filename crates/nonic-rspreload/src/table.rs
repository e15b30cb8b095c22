//! The table of carried sockets: the program's descriptors, and the rsocket behind each.
//!
//! Every call of the program asks here, on any descriptor; so the answer is one or two loads and no lock. Records are
//! never freed but used again. So a thread that still looks at a record while another closes it reads a record, if
//! perhaps a newer one, as in any program that closes descriptors which other threads are using.
//!
//! Read first: [`Carried`], then [`carried`].

use crate::lock::Lock;
use crate::rsockets;
use libc::{c_int, sockaddr, sockaddr_storage, socklen_t};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

/// A socket that is carried by an rsocket.
pub(crate) struct Carried {
    /// The rsocket.
    inner: AtomicI32,
    /// How many descriptors of the program name it.
    pub(crate) names: AtomicU32,
    flags: AtomicU32,
    /// How long a receive may block; 0 is for ever.
    pub(crate) receive_timeout_ms: AtomicI32,
    /// How long a send may block; 0 is for ever.
    pub(crate) send_timeout_ms: AtomicI32,
    /// What `SO_ERROR` must say instead of the rsocket.
    pub(crate) error: AtomicI32,
    /// What `socket` was asked for.
    pub(crate) domain: AtomicI32,
    /// The type without flags.
    pub(crate) kind: AtomicI32,
    /// Addresses that falling back to TCP needs.
    pub(crate) addresses: Lock<Addresses>,
}

/// Where a socket was bound, and whereto it is being connected.
#[derive(Default)]
pub(crate) struct Addresses {
    pub(crate) local: Option<Address>,
    pub(crate) peer: Option<Address>,
}

/// What can be said of a carried socket.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Flag {
    /// `connect` answered that it would take a while.
    Connecting = 1,
    /// It takes connections.
    Listening = 2,
    /// This process is a child of the one that has the rsocket.
    Lost = 4,
    /// An edge-triggered epoll watches it.
    Edge = 8,
    /// A send was told that the connection is gone.
    Reset = 16,
}

impl Carried {
    const fn new() -> Self {
        Carried {
            inner: AtomicI32::new(-1),
            names: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            receive_timeout_ms: AtomicI32::new(0),
            send_timeout_ms: AtomicI32::new(0),
            error: AtomicI32::new(0),
            domain: AtomicI32::new(0),
            kind: AtomicI32::new(0),
            addresses: Lock::new(Addresses {
                local: None,
                peer: None,
            }),
        }
    }

    /// A record for an rsocket that no descriptor names yet.
    pub(crate) fn of(inner: c_int, domain: c_int, kind: c_int) -> &'static Self {
        let spare = SPARE.lock().pop();
        let record = spare.unwrap_or_else(|| Box::leak(Box::new(Carried::new())));
        for timeout_ms in [&record.receive_timeout_ms, &record.send_timeout_ms] {
            timeout_ms.store(0, Ordering::Relaxed);
        }
        record.flags.store(0, Ordering::Relaxed);
        record.error.store(0, Ordering::Relaxed);
        record.domain.store(domain, Ordering::Relaxed);
        record.kind.store(kind, Ordering::Relaxed);
        record.names.store(0, Ordering::Relaxed);
        *record.addresses.lock() = Addresses::default();
        record.inner.store(inner, Ordering::Release);
        record
    }

    /// No descriptor names it any more.
    pub(crate) fn recycle(&'static self) {
        SPARE.lock().push(self);
    }

    /// The rsocket.
    pub(crate) fn inner(&self) -> c_int {
        self.inner.load(Ordering::Acquire)
    }

    pub(crate) fn is(&self, flag: Flag) -> bool {
        self.flags.load(Ordering::Acquire) & flag as u32 != 0
    }

    /// Answers whether it was set before.
    pub(crate) fn set(&self, flag: Flag) -> bool {
        self.flags.fetch_or(flag as u32, Ordering::AcqRel) & flag as u32 != 0
    }

    /// Answers whether it was set: of several threads, one is told so.
    pub(crate) fn clear(&self, flag: Flag) -> bool {
        self.flags.fetch_and(!(flag as u32), Ordering::AcqRel) & flag as u32 != 0
    }
}

/// Unused records.
pub(crate) static SPARE: Lock<Vec<&'static Carried>> = Lock::new(Vec::new());

const CHUNK: usize = 4096;
const CHUNKS: usize = 256;

/// By descriptor. Those above a million are not carried.
struct Table {
    chunks: [AtomicPtr<[AtomicPtr<Carried>; CHUNK]>; CHUNKS],
}

static TABLE: Table = Table {
    chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS],
};

impl Table {
    fn slot(&self, fd: c_int) -> Option<&'static AtomicPtr<Carried>> {
        let fd = usize::try_from(fd).ok()?;
        let chunk = self.chunks.get(fd / CHUNK)?.load(Ordering::Acquire);
        // SAFETY: chunks are never freed.
        let chunk = unsafe { chunk.as_ref() }?;
        Some(&chunk[fd % CHUNK])
    }

    /// The same, and there is one afterwards, if the descriptor is not too large.
    fn slot_made(&self, fd: c_int) -> Option<&'static AtomicPtr<Carried>> {
        let place = self.chunks.get(usize::try_from(fd).ok()? / CHUNK)?;
        if place.load(Ordering::Acquire).is_null() {
            let fresh = Box::into_raw(Box::new([const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNK]));
            let before =
                place.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
            if before.is_err() {
                // SAFETY: another thread was faster, and no thread has seen ours.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
        self.slot(fd)
    }
}

/// The socket behind a descriptor of the program's, if it is carried and the program asks.
#[inline]
pub(crate) fn carried(fd: c_int) -> Option<&'static Carried> {
    let found = named(fd)?;
    (!rsockets::inside()).then_some(found)
}

/// The socket behind a descriptor, whether the program or a library asks.
#[inline]
pub(crate) fn named(fd: c_int) -> Option<&'static Carried> {
    let record = TABLE.slot(fd)?.load(Ordering::Acquire);
    // SAFETY: records are never freed.
    unsafe { record.as_ref() }
}

/// From now on the descriptor names the socket; or cannot, being too large.
pub(crate) fn name(fd: c_int, socket: &'static Carried) -> bool {
    let Some(slot) = TABLE.slot_made(fd) else {
        return false;
    };
    socket.names.fetch_add(1, Ordering::AcqRel);
    slot.store(std::ptr::from_ref(socket).cast_mut(), Ordering::Release);
    true
}

/// From now on the descriptor names nothing. Answers what it named, and whether it was the last to do so.
pub(crate) fn forget(fd: c_int) -> Option<(&'static Carried, bool)> {
    let record = TABLE.slot(fd)?.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: records are never freed.
    let socket = unsafe { record.as_ref() }?;
    let last = socket.names.fetch_sub(1, Ordering::AcqRel) == 1;
    Some((socket, last))
}

/// All descriptors that name something, from a first one on.
pub(crate) fn all(first: c_int) -> impl Iterator<Item = (c_int, &'static Carried)> {
    let chunks = (0..CHUNKS).filter(|chunk| !TABLE.chunks[*chunk].load(Ordering::Acquire).is_null());
    let fds = chunks.flat_map(|chunk| chunk * CHUNK..(chunk + 1) * CHUNK);
    let fds = fds.map(|fd| fd as c_int).filter(move |fd| *fd >= first);
    fds.filter_map(|fd| Some((fd, named(fd)?)))
}

/// An address of any family.
#[derive(Copy, Clone)]
pub(crate) struct Address {
    storage: sockaddr_storage,
    length: socklen_t,
}

impl Address {
    /// A copy of what a program passes.
    ///
    /// # Safety
    /// `length` bytes can be read at `address`.
    pub(crate) unsafe fn copy(address: *const sockaddr, length: socklen_t) -> Option<Self> {
        if address.is_null() || length as usize > size_of::<sockaddr_storage>() {
            return None;
        }
        // SAFETY: all zeros is an address of no family.
        let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
        // SAFETY: the caller's promise, and it fits.
        unsafe {
            std::ptr::copy_nonoverlapping(address.cast::<u8>(), (&raw mut storage).cast(), length as usize);
        }
        Some(Address { storage, length })
    }

    pub(crate) fn as_ptr(&self) -> *const sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) fn length(&self) -> socklen_t {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_lives_as_long_as_a_descriptor_names_it() {
        let socket = Carried::of(7, libc::AF_INET, libc::SOCK_STREAM);
        assert!(name(9000, socket) && name(9001, socket));
        assert_eq!(named(9001).map(Carried::inner), Some(7));
        assert_eq!(forget(9000).map(|(_, last)| last), Some(false));
        assert!(named(9000).is_none());
        assert_eq!(forget(9001).map(|(_, last)| last), Some(true));
        assert!(forget(9001).is_none());
    }

    #[test]
    fn all_are_found_from_the_first_on() {
        let socket = Carried::of(3, libc::AF_INET, libc::SOCK_STREAM);
        for fd in [20_000, 20_001, 40_000] {
            assert!(name(fd, socket));
        }
        let found: Vec<c_int> = all(20_001).map(|(fd, _)| fd).filter(|fd| *fd <= 40_000).collect();
        assert_eq!(found, [20_001, 40_000]);
    }

    #[test]
    fn no_descriptor_is_too_large_or_too_small_to_ask_for() {
        let socket = Carried::of(3, libc::AF_INET, libc::SOCK_STREAM);
        for fd in [-1, c_int::MIN, c_int::MAX, (CHUNK * CHUNKS) as c_int] {
            assert!(named(fd).is_none());
            assert!(!name(fd, socket));
            assert!(forget(fd).is_none());
        }
    }
}
