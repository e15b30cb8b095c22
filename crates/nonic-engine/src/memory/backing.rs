//! The file behind pages that processes of the same user may map.
//!
//! [`Pages`](super::Pages) become a file of their own when their owner says that peers will be let at them
//! ([`Pages::share`](super::Pages::share)): what is in them moves into a memfd, which takes their place at the same address.
//! Nothing else is in that file, so whoever is given it sees no more than the pages.
//!
//! A file is given for reading or for writing, for good: what it is published for first counts. If it is for reading,
//! a seal forbids everybody to map it for writing ever again; a descriptor that can only read would not, since whoever
//! has one can open the file anew.
//!
//! A mapping cannot be taken back. So pages that were given away are never used for anything else afterwards: their owner
//! asks [`Pages::is_given`](super::Pages::is_given), and takes others.

use crate::os::descriptors::InternalFd;
use nonic_core::Access;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::pwrite;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// An eighth of the descriptors that the program may have, but not more than this.
const MOST: usize = 1024;

static OPEN: AtomicUsize = AtomicUsize::new(0);
static LIMIT: LazyLock<usize> = LazyLock::new(|| {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 8).unwrap_or(MOST).min(MOST)
});
/// Files are numbered from one; no number is used twice in a process.
static LATEST: AtomicU64 = AtomicU64::new(0);

/// The file behind some pages.
#[derive(Debug)]
pub(crate) struct Backing {
    number: u64,
    fd: InternalFd,
    /// What it was published for first.
    purpose: Mutex<Option<Purpose>>,
    given: AtomicBool,
    /// The process that made it; a child that was forked has a mapping of it as well.
    owner: u32,
    _budget: Budget,
}

/// What those who are given a file may do with it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Purpose {
    Read,
    Write,
}

impl Backing {
    /// A file of this length with nothing in it.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let budget = Budget::take().ok_or(io::ErrorKind::QuotaExceeded)?;
        let fd = memfd_create("nonic-memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, len as u64)?;
        // Whoever maps it relies on its length.
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(Backing {
            number: LATEST.fetch_add(1, Ordering::Relaxed) + 1,
            fd: fd.into(),
            purpose: Mutex::new(None),
            given: AtomicBool::new(false),
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

    /// Says that a key with these rights covers all of it. The number by which peers with the key can ask for it; `None` if
    /// they cannot: no peer has a right, or others were given other rights.
    pub(crate) fn publish(&self, access: Access) -> Option<u64> {
        let wanted = if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
            Purpose::Write
        } else if access.contains(Access::REMOTE_READ) {
            Purpose::Read
        } else {
            return None;
        };
        let mut purpose = self.purpose.lock().unwrap_or_else(PoisonError::into_inner);
        if purpose.is_none() {
            let seals = match wanted {
                Purpose::Read => SealFlags::FUTURE_WRITE | SealFlags::SEAL,
                Purpose::Write => SealFlags::SEAL,
            };
            fcntl_add_seals(&self.fd, seals).ok()?;
            *purpose = Some(wanted);
        }
        (*purpose == Some(wanted)).then_some(self.number)
    }

    /// By which number it is asked for.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The descriptor, to be given to a peer.
    pub(crate) fn give(&self) -> BorrowedFd<'_> {
        self.given.store(true, Ordering::Release);
        self.fd.as_fd()
    }

    /// Whether a peer was given it.
    pub(super) fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Nobody needs what is in it any more. Peers may have it mapped for a while; without this, they would keep the memory
    /// from everybody else. Where only reading was permitted, the kernel does not let us.
    pub(super) fn empty(&self, len: usize) {
        if self.is_given() && self.owner == std::process::id() {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&self.fd, hole, 0, len as u64);
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
