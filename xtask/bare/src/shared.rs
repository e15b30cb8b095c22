//! Memory that two processes share: one makes it, the other finds it by the first one's process and descriptor.

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

/// A mapping that lasts as long as the value.
pub(super) struct Shared {
    start: *mut u8,
    length: usize,
    file: File,
}

impl Shared {
    /// New memory, all zero.
    pub(super) fn create(length: usize) -> Result<Self> {
        // SAFETY: the name is a C string, and the call touches no other memory.
        let descriptor = unsafe { libc::memfd_create(c"nonic-bench".as_ptr(), libc::MFD_CLOEXEC) };
        ensure!(
            descriptor >= 0,
            "memfd_create: {}",
            std::io::Error::last_os_error()
        );
        // SAFETY: the descriptor is new, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(descriptor) };
        file.set_len(length as u64)?;
        Self::map(file, length)
    }

    /// The memory of another process, as it told by [`Self::line`].
    pub(super) fn open(line: &str, length: usize) -> Result<Self> {
        let (process, descriptor) = line.split_once(' ').context("not a process and a descriptor")?;
        let path = format!("/proc/{process}/fd/{descriptor}");
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open {path}"))?;
        ensure!(file.metadata()?.len() >= length as u64, "{path} is too short");
        Self::map(file, length)
    }

    /// How another process finds it.
    pub(super) fn line(&self) -> String {
        format!("{} {}", std::process::id(), self.file.as_raw_fd())
    }

    fn map(file: File, length: usize) -> Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping of a file of at least this length, at an address the kernel chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, how, file.as_raw_fd(), 0) };
        ensure!(
            start != libc::MAP_FAILED,
            "mmap: {}",
            std::io::Error::last_os_error()
        );
        Ok(Self {
            start: start.cast(),
            length,
            file,
        })
    }

    /// An address within it; the rest from there on is at least `length` bytes.
    pub(super) fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(
            offset + length <= self.length,
            "within the memory that was mapped"
        );
        self.start.wrapping_add(offset)
    }

    /// An atomic word within it.
    pub(super) fn word<T: Word>(&self, offset: usize) -> &T {
        assert!(offset % align_of::<T>() == 0, "an atomic word is aligned");
        // SAFETY: within the mapping, aligned (it begins with a page), and atomic: the other process may write it.
        unsafe { &*self.at(offset, size_of::<T>()).cast::<T>() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and what `word` lent out borrows from this value.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// What [`Shared::word`] may be.
pub(super) trait Word {}
impl Word for std::sync::atomic::AtomicU32 {}
impl Word for std::sync::atomic::AtomicU64 {}
