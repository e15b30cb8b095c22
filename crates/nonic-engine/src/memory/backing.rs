//! The file behind pages that processes of the same user may map.
//!
//! [`Pages`](super::Pages) become a file of their own when their owner says that peers may access them
//! ([`Pages::share`](super::Pages::share)): what is in them moves into a memfd, which takes their place at the same
//! address. Nothing else is in that file, so a peer that is given it sees no more than the pages.
//!
//! A file is given for reading or for writing, for good: what it is published for first counts. If it is for reading, a
//! seal forbids every process to map it for writing ever again. A read-only descriptor would not, since a process that has
//! one can open the file anew.
//!
//! It is given to a peer that names a key that covers it. A mapping cannot be taken back. So pages that were given away are
//! never used for anything else afterwards: their owner asks [`Pages::take_back`](super::Pages::take_back), and takes
//! others.
//!
//! The exception are pages that stay mapped ([`Pages::stay_mapped`](super::Pages::stay_mapped)): those that their owner exposes
//! again and again for reading, with another key each time. Then the keys that were revoked lately will do as well, since a
//! question may come late.

use crate::os::descriptors::InternalFd;
use crate::os::shared_memory::{SharedMemory, set_length};
use nonic_core::Access;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::io::pwrite;
use rustix::process::{Resource, getrlimit};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// An eighth of the descriptors that the program may have, but not more than this.
const MOST: usize = 1024;

static OPEN: AtomicUsize = AtomicUsize::new(0);
static LIMIT: LazyLock<usize> = LazyLock::new(|| {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 8).unwrap_or(MOST).min(MOST)
});
/// So many keys that were revoked are remembered of pages that stay mapped.
const LATEST_KEYS: usize = 16;

/// Files are numbered from one; no number is used twice in a process.
static LATEST: AtomicU64 = AtomicU64::new(0);

/// The file behind some pages.
#[derive(Debug)]
pub(crate) struct Backing {
    number: u64,
    fd: InternalFd,
    terms: Mutex<Terms>,
    /// Where peers look whether it still exists.
    listed: Mutex<Vec<Listing>>,
    /// The process that made it; a child that was forked has a mapping of it as well.
    owner: u32,
    _budget: Budget,
}

/// The terms on which it is given to peers.
#[derive(Debug)]
struct Terms {
    /// What it was published for first.
    purpose: Option<Purpose>,
    /// Keys that cover it, or did and will do; the last is the latest.
    keys: VecDeque<u32>,
    /// Whether peers that read it may keep it mapped.
    stays: bool,
    given: bool,
}

/// A word of memory that peers see, which has the number of the file for as long as it exists.
#[derive(Debug)]
struct Listing {
    memory: Weak<SharedMemory>,
    offset: usize,
}

/// What peers that are given a file may do with it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Purpose {
    Read,
    Write,
}

impl Backing {
    /// A file of this length with nothing in it.
    pub(super) fn new(len: usize, stays: bool) -> io::Result<Self> {
        let budget = Budget::take().ok_or(io::ErrorKind::QuotaExceeded)?;
        let fd = memfd_create("nonic-memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        set_length(&fd, len)?;
        // A peer that maps it relies on its length.
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(Backing {
            number: LATEST.fetch_add(1, Ordering::Relaxed) + 1,
            fd: fd.into(),
            terms: Mutex::new(Terms {
                purpose: None,
                keys: VecDeque::new(),
                stays,
                given: false,
            }),
            listed: Mutex::default(),
            owner: std::process::id(),
            _budget: budget,
        })
    }

    /// Puts bytes at a place of the file.
    pub(super) fn put(&self, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = pwrite(&self.fd, bytes, at)?;
            bytes = &bytes[written..];
            at += written as u64;
        }
        Ok(())
    }

    /// Says that a key with these rights covers it. The number by which peers with the key can ask for it; `None` if they
    /// cannot: the key gives peers no right, or the file was published with other rights before.
    pub(crate) fn publish(&self, key: u32, access: Access) -> Option<u64> {
        let wanted = if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
            Purpose::Write
        } else if access.contains(Access::REMOTE_READ) {
            Purpose::Read
        } else {
            return None;
        };
        let mut terms = self.terms();
        if terms.purpose.is_none() {
            let seals = match wanted {
                Purpose::Read => SealFlags::FUTURE_WRITE | SealFlags::SEAL,
                Purpose::Write => SealFlags::SEAL,
            };
            fcntl_add_seals(&self.fd, seals).ok()?;
            terms.purpose = Some(wanted);
        }
        if terms.purpose != Some(wanted) {
            return None;
        }
        if terms.stays() && terms.keys.len() >= LATEST_KEYS {
            terms.keys.pop_front();
        }
        terms.keys.push_back(key);
        Some(self.number)
    }

    /// A key was revoked. Whether peers are to forget the file: no key covers it any more.
    pub(crate) fn withdraw(&self, key: u32) -> bool {
        let mut terms = self.terms();
        if terms.stays() {
            return false;
        }
        terms.keys.retain(|known| *known != key);
        terms.keys.is_empty()
    }

    /// Peers may believe that it exists for as long as its number is in this word.
    pub(crate) fn list(&self, memory: &Arc<SharedMemory>, offset: usize) {
        memory.word(offset).store(self.number, Ordering::Release);
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |listing: &Listing| listing.memory.as_ptr() == Arc::as_ptr(memory);
        if !listed.iter().any(is_it) {
            let memory = Arc::downgrade(memory);
            listed.push(Listing { memory, offset });
        }
    }

    /// The number by which peers ask for it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The descriptor, to be given to a peer that names a key.
    pub(crate) fn give(&self, key: u32) -> Option<BorrowedFd<'_>> {
        let mut terms = self.terms();
        if !terms.keys.contains(&key) {
            return None;
        }
        terms.given = true;
        Some(self.fd.as_fd())
    }

    /// Whether a peer was given it.
    pub(super) fn is_given(&self) -> bool {
        self.terms().given
    }

    /// Whether peers that read it keep it mapped.
    pub(super) fn stays(&self) -> bool {
        self.terms().stays()
    }

    /// From now on it is given only to peers with a new key. Whether a peer was given it before.
    pub(super) fn take_back(&self) -> bool {
        let mut terms = self.terms();
        terms.keys.clear();
        terms.given
    }

    fn terms(&self) -> MutexGuard<'_, Terms> {
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Frees what is in it, which its owner no longer needs. Peers may have it mapped for a while; without this, they would
    /// keep that memory in use. Where only reading was permitted, the kernel does not let us.
    pub(super) fn empty(&self, len: usize) {
        if self.is_given() && self.owner == std::process::id() {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&self.fd, hole, 0, len as u64);
        }
    }
}

impl Terms {
    /// What peers can write is taken back, even if its owner asked for it to stay.
    fn stays(&self) -> bool {
        self.stays && self.purpose != Some(Purpose::Write)
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if self.owner != std::process::id() {
            return;
        }
        let listed = std::mem::take(self.listed.get_mut().unwrap_or_else(PoisonError::into_inner));
        for Listing { memory, offset } in listed {
            if let Some(memory) = memory.upgrade() {
                // Another one may have taken the word.
                let word = memory.word(offset);
                let _ = word.compare_exchange(self.number, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

/// The right to keep one descriptor open; given back when dropped.
#[derive(Debug)]
struct Budget(());

impl Budget {
    fn take() -> Option<Self> {
        let limit = *LIMIT;
        let taken = OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
            (open < limit).then_some(open + 1)
        });
        taken.is_ok().then(|| Budget(()))
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
