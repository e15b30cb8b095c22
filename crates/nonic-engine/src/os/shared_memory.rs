//! Shared memory of processes of one user: a memfd that cannot change its size any more.
//!
//! The size matters: an access behind the end of a file ends the process (SIGBUS), so a process that maps a file which
//! another could truncate is at its mercy. This module maps nothing whose seals do not forbid that.
//!
//! What is in it is as trustworthy as the processes that may write it. Words are read and written as atomics; the rest is
//! handed out as pointers.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Where memfds of ordinary pages live. Those of huge pages live elsewhere, and an access to one can fail for want of them.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A shared mapping.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to no thread; words are accessed as atomics, everything else by the owner of that part.
unsafe impl Send for SharedMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedMemory {}

/// What other processes may do with memory of ours.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Others {
    /// Read and write.
    Write,
    /// Only read.
    Read,
}

impl SharedMemory {
    /// New memory, zeroed, and the descriptor to give to other processes.
    pub(crate) fn create(name: &str, len: usize, others: Others) -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create(name, flags)?;
        set_length(&fd, len)?;
        let memory = Self::map(&fd, len, ProtFlags::READ | ProtFlags::WRITE)?;
        let mut seals = SealFlags::SHRINK | SealFlags::GROW;
        if others == Others::Read {
            seals |= SealFlags::FUTURE_WRITE;
        }
        fcntl_add_seals(&fd, seals | SealFlags::SEAL)?;
        Ok((memory, fd))
    }

    /// Memory that another process has made. Fails unless it has this length for good.
    pub(crate) fn of_another(fd: impl AsFd, len: usize, rights: Others) -> io::Result<Self> {
        if fixed_length(&fd)?.0 != len {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::of_length(fd, len, rights)
    }

    /// The same, of whatever length it has for good, to be used as far as it permits.
    pub(crate) fn of_another_as_it_is(fd: impl AsFd) -> io::Result<(Self, Others)> {
        let (len, seals) = fixed_length(&fd)?;
        let rights = match seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            true => Others::Read,
            false => Others::Write,
        };
        Ok((Self::of_length(fd, len, rights)?, rights))
    }

    fn of_length(fd: impl AsFd, len: usize, rights: Others) -> io::Result<Self> {
        let protection = match rights {
            Others::Write => ProtFlags::READ | ProtFlags::WRITE,
            Others::Read => ProtFlags::READ,
        };
        Self::map(fd, len, protection)
    }

    fn map(fd: impl AsFd, len: usize, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedMemory { start, len })
    }

    /// How long it is.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A word. Writing it where we may only read ends the process: callers that map for reading do not.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0 && offset + 8 <= self.len);
        // SAFETY: inside the mapping, which starts at a page; processes that keep to the rules access it as an atomic too.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// Several words.
    #[inline]
    pub(crate) fn words<const COUNT: usize>(&self, offset: usize) -> &[AtomicU64; COUNT] {
        assert!(offset % 8 == 0 && offset + 8 * COUNT <= self.len);
        // SAFETY: as in `word`, for each of them.
        unsafe { self.start.add(offset).cast().as_ref() }
    }

    /// Half a word.
    #[inline]
    pub(crate) fn half_word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset % 4 == 0 && offset + 4 <= self.len);
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// The address of `length` bytes.
    #[inline]
    pub(crate) fn bytes(&self, offset: usize, length: usize) -> NonNull<u8> {
        assert!(offset <= self.len && length <= self.len - offset);
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.start.add(offset) }
    }
}

/// Gives a new file its length. Fails where the process may not have files of that length (`ulimit -f`), memory or not:
/// asking the kernel for it would end the process (SIGXFSZ).
pub(crate) fn set_length(fd: impl AsFd, len: usize) -> io::Result<()> {
    let most = getrlimit(Resource::Fsize).current;
    if most.is_some_and(|most| len as u64 > most) {
        return Err(rustix::io::Errno::FBIG.into());
    }
    Ok(ftruncate(fd, len as u64)?)
}

/// The length of memory, which must not be able to change, and its seals.
fn fixed_length(fd: impl AsFd) -> io::Result<(usize, SealFlags)> {
    // Fails for what cannot be sealed, which is everything but memory.
    let seals = fcntl_get_seals(&fd)?;
    let fixed = seals.contains(SealFlags::SHRINK | SealFlags::GROW);
    let ordinary = rustix::fs::fstatfs(&fd)?.f_type as u64 == TMPFS_MAGIC;
    match usize::try_from(fstat(&fd)?.st_size) {
        Ok(length) if fixed && ordinary => Ok((length, seals)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped with this length; borrowers of a part of it borrow from `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "the mapping is ours");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    const LEN: usize = 8192;

    #[test]
    fn what_one_writes_the_other_reads() {
        let (ours, fd) = SharedMemory::create("test", LEN, Others::Write).expect("memory");
        let theirs = SharedMemory::of_another(&fd, LEN, Others::Write).expect("it is sealed");
        ours.word(64).store(7, Ordering::Release);
        assert_eq!(theirs.word(64).load(Ordering::Acquire), 7);
        theirs.half_word(LEN - 4).store(9, Ordering::Release);
        assert_eq!(ours.half_word(LEN - 4).load(Ordering::Acquire), 9);
    }

    #[test]
    fn memory_that_could_be_cut_short_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("test", flags).expect("memory");
        ftruncate(&fd, LEN as u64).expect("it grows");
        assert!(SharedMemory::of_another(&fd, LEN, Others::Read).is_err());
        fcntl_add_seals(&fd, SealFlags::GROW).expect("a seal");
        assert!(SharedMemory::of_another(&fd, LEN, Others::Read).is_err());
        fcntl_add_seals(&fd, SealFlags::SHRINK).expect("a seal");
        assert!(SharedMemory::of_another(&fd, LEN, Others::Read).is_ok());
        assert!(
            SharedMemory::of_another(&fd, 2 * LEN, Others::Read).is_err(),
            "another length"
        );
    }

    #[test]
    fn what_is_published_cannot_be_mapped_for_writing() {
        let (ours, fd) = SharedMemory::create("test", LEN, Others::Read).expect("memory");
        assert!(SharedMemory::of_another(&fd, LEN, Others::Write).is_err());
        let theirs = SharedMemory::of_another(&fd, LEN, Others::Read).expect("to read it");
        ours.word(0).store(1, Ordering::Release);
        assert_eq!(theirs.word(0).load(Ordering::Acquire), 1);
    }

    #[test]
    fn files_and_pipes_are_not_memory() {
        let (pipe, _other) = rustix::pipe::pipe().expect("a pipe");
        assert!(SharedMemory::of_another(&pipe, LEN, Others::Read).is_err());
        let file = std::fs::File::open("/proc/self/exe").expect("a file");
        assert!(SharedMemory::of_another(&file, LEN, Others::Read).is_err());
    }
}
