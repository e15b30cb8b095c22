//! Registered memory, in pages of its own.
//!
//! Whole pages, since a program that forks may have its registered pages kept from the child: nothing else may be on
//! them.

use libc::c_int;
use nonic_abi::errno::{self, Errno, of_system};
use nonic_abi::libibverbs::{ibv_dereg_mr, ibv_reg_mr};
use nonic_abi::verbs::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// Zeroed pages a device knows of.
pub(crate) struct Memory {
    base: *mut u8,
    len: usize,
    mr: *mut ibv_mr,
}

// SAFETY: the pages belong to this value alone, and a region of libibverbs may be used from any thread.
unsafe impl Send for Memory {}

impl Memory {
    /// # Safety
    ///
    /// The domain is alive, and outlives the memory.
    pub(crate) unsafe fn new(pd: *mut ibv_pd, len: usize, access: u32) -> Result<Self, Errno> {
        let len = len.max(1);
        // SAFETY: new pages, wherever there is room.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(of_system("mmap"));
        }
        // SAFETY: the pages are ours and stay mapped until the region is gone.
        let mr = unsafe { ibv_reg_mr(pd, base, len, access as c_int) };
        let mr = errno::check_pointer(mr).inspect_err(|_| {
            // SAFETY: just mapped, and nothing knows of them.
            unsafe { libc::munmap(base, len) };
        })?;
        Ok(Memory {
            base: base.cast(),
            len,
            mr,
        })
    }

    /// The address of a byte, as work requests and peers name it.
    pub(crate) fn address(&self, offset: u32) -> u64 {
        self.base as u64 + u64::from(offset)
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the region is alive.
        unsafe { (*self.mr).lkey }
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: the region is alive.
        unsafe { (*self.mr).rkey }
    }

    /// A place to copy to or from. The device may write there at any time, so there are no references to it.
    pub(crate) fn at(&self, offset: u32, length: u32) -> *mut u8 {
        assert!(
            offset as usize + length as usize <= self.len,
            "within the memory: the protocol's rings are as large as it"
        );
        // SAFETY: within the pages, as just seen.
        unsafe { self.base.add(offset as usize) }
    }

    pub(crate) fn write(&self, offset: u32, bytes: &[u8]) {
        let to = self.at(offset, bytes.len() as u32);
        // SAFETY: `at` has seen to the length; the bytes are elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// A word that the device may be writing; what was written before it can be read afterwards.
    pub(crate) fn load(&self, offset: u32) -> u32 {
        assert!(offset % 4 == 0, "aligned: records are");
        let word = self.at(offset, 4).cast::<u32>();
        // SAFETY: within pages that are ours, and aligned as they are.
        unsafe { AtomicU32::from_ptr(word) }.load(Ordering::Acquire)
    }

    pub(crate) fn read<const N: usize>(&self, offset: u32) -> [u8; N] {
        let mut bytes = [0; N];
        let from = self.at(offset, N as u32);
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), N) };
        bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: both are ours; the region goes first.
        unsafe {
            ibv_dereg_mr(self.mr);
            libc::munmap(self.base.cast(), self.len);
        }
    }
}
