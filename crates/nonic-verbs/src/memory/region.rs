//! Kinds of memory behind a registration.
//!
//! - Ordinary memory is probed when it is registered and should then stay mapped, as a program promises by registering
//!   it. Hardware keeps the pages; here an access to memory that is gone after all is an error (the engine's `RawRegion`).
//! - [`OnDemand`] memory may come and go. Every access goes through the kernel, which answers with an error
//!   where there is nothing; so a peer's access ends in an error completion and never in a signal.
//! - [`Null`] memory reads as zeros and forgets what is written.

use libc::{c_int, c_void, iovec};
use nonic_abi::errno::{self, Errno, refused};
use nonic_core::{Fault, Region};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether the range is mapped with the rights the NIC needs. `EFAULT` if not.
pub(crate) fn probe(start: usize, length: usize, write: bool) -> Result<(), Errno> {
    const PAGE: usize = 4096;
    if length == 0 {
        return Ok(());
    }
    let end = start.checked_add(length).ok_or_else(|| {
        refused(
            libc::EINVAL,
            "the range runs over the end of the address space",
            "check addr and length",
        )
    })?;
    let first = start & !(PAGE - 1);
    let bytes = end.checked_next_multiple_of(PAGE).ok_or_else(|| {
        refused(
            libc::EINVAL,
            "the range runs over the end of the address space",
            "check addr and length",
        )
    })? - first;
    let advice = if write {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    if !populates() {
        return probe_by_residency(first, bytes);
    }
    match advise(first, bytes, advice) {
        Ok(()) => Ok(()),
        // Nothing mapped, mapped without the right, or a page of a file behind its end.
        Err(libc::ENOMEM | libc::EINVAL | libc::EFAULT) => Err(not_mapped(start, end, write)),
        // Interrupted, or memory the kernel will not fault in (of a device): it is mapped at least.
        Err(_) => Ok(()),
    }
}

/// Whether the kernel knows how to fault in a range (Linux 5.14).
fn populates() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| advise(0, 0, libc::MADV_POPULATE_READ).is_ok())
}

/// Memory that cannot be registered.
#[cold]
fn not_mapped(start: usize, end: usize, write: bool) -> Errno {
    let right = if write { "writable" } else { "readable" };
    refused(
        libc::EFAULT,
        format!("the memory from {start:#x} to {end:#x} is not mapped, or not {right}, in part at least"),
        "register memory that is mapped; without IBV_ACCESS_LOCAL_WRITE memory may be read-only",
    )
}

fn advise(start: usize, bytes: usize, advice: c_int) -> Result<(), c_int> {
    let address = std::ptr::with_exposed_provenance_mut::<c_void>(start);
    // SAFETY: populating changes no byte, and the kernel checks the range.
    match unsafe { libc::madvise(address, bytes, advice) } {
        0 => Ok(()),
        _ => Err(errno::last()),
    }
}

/// The way of older kernels: tells unmapped from mapped, but not the rights.
fn probe_by_residency(first: usize, bytes: usize) -> Result<(), Errno> {
    const STEP: usize = 512 * 4096;
    let mut resident = [0_u8; 512];
    for offset in (0..bytes).step_by(STEP) {
        let address = std::ptr::with_exposed_provenance_mut::<c_void>(first + offset);
        // SAFETY: one byte per page of a step; the kernel checks the range.
        if unsafe { libc::mincore(address, STEP.min(bytes - offset), resident.as_mut_ptr()) } < 0 {
            return Err(not_mapped(first, first + bytes, false));
        }
    }
    Ok(())
}

/// Memory that is looked at anew with every access.
#[derive(Debug)]
pub(crate) struct OnDemand {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl OnDemand {
    fn at(&self, offset: usize, length: usize) -> Result<usize, Fault> {
        match offset.checked_add(length) {
            Some(end) if end <= self.len => self.start.checked_add(offset).ok_or(Fault),
            _ => Err(Fault),
        }
    }

    /// The word at `offset`, after the kernel has confirmed that it can be read and written.
    fn word(&self, offset: usize) -> Result<&AtomicU64, Fault> {
        let address = self.at(offset, 8)?;
        if address % 8 != 0 || probe(address, 8, true).is_err() {
            return Err(Fault);
        }
        let pointer = std::ptr::with_exposed_provenance_mut::<u64>(address);
        // SAFETY: aligned, and mapped a moment ago. A program that unmaps memory while a peer's atomic is in
        // the middle of it is beyond help.
        Ok(unsafe { AtomicU64::from_ptr(pointer) })
    }
}

/// One span of memory for the kernel.
fn span(address: usize, length: usize) -> iovec {
    iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(address),
        iov_len: length,
    }
}

impl Region for OnDemand {
    fn len(&self) -> usize {
        self.len
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Fault> {
        let remote = span(self.at(offset, out.len())?, out.len());
        let local = iovec {
            iov_base: out.as_mut_ptr().cast(),
            iov_len: out.len(),
        };
        // SAFETY: the local span is ours; the other one is checked by the kernel.
        let copied =
            unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
        whole(copied, out.len())
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<(), Fault> {
        let remote = span(self.at(offset, data.len())?, data.len());
        let local = iovec {
            iov_base: data.as_ptr().cast_mut().cast(),
            iov_len: data.len(),
        };
        // SAFETY: the local span is ours and only read; the other one is checked by the kernel.
        let copied =
            unsafe { libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
        whole(copied, data.len())
    }

    fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, Fault> {
        let word = self.word(offset)?;
        match word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire) {
            Ok(old) | Err(old) => Ok(old),
        }
    }

    fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, Fault> {
        Ok(self.word(offset)?.fetch_add(add, Ordering::AcqRel))
    }

    fn store(&self, offset: usize, value: u64) -> Result<(), Fault> {
        self.word(offset)?.store(value, Ordering::Release);
        Ok(())
    }
}

fn whole(copied: isize, expected: usize) -> Result<(), Fault> {
    if usize::try_from(copied) == Ok(expected) {
        Ok(())
    } else {
        Err(Fault)
    }
}

/// Memory of any size with nothing in it.
#[derive(Debug)]
pub(crate) struct Null;

impl Region for Null {
    fn len(&self) -> usize {
        usize::MAX
    }

    fn read(&self, _offset: usize, out: &mut [u8]) -> Result<(), Fault> {
        out.fill(0);
        Ok(())
    }

    fn write(&self, _offset: usize, _data: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn compare_swap(&self, _offset: usize, _compare: u64, _swap: u64) -> Result<u64, Fault> {
        Ok(0)
    }

    fn fetch_add(&self, _offset: usize, _add: u64) -> Result<u64, Fault> {
        Ok(0)
    }

    fn store(&self, _offset: usize, _value: u64) -> Result<(), Fault> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic_engine::memory::Pages;

    #[test]
    fn memory_that_is_not_mapped_is_refused() {
        assert!(probe(4096, 1, false).is_err_and(|errno| errno.is(libc::EFAULT)));
        assert!(probe(usize::MAX - 10, 100, false).is_err_and(|errno| errno.is(libc::EINVAL)));
        let pages = Pages::new(8192).expect("memory");
        assert_eq!(probe(pages.start().addr().get() + 5, 8000, true), Ok(()));
    }

    #[test]
    fn an_on_demand_access_to_nothing_is_a_fault_and_to_something_is_not() {
        let mut word = 7_u64;
        let region = OnDemand {
            start: 0,
            len: usize::MAX,
        };
        let address = (&raw mut word).expose_provenance();
        assert_eq!(region.fetch_add(address, 3), Ok(7));
        let mut out = [0; 8];
        assert_eq!(region.read(address, &mut out), Ok(()));
        assert_eq!(u64::from_ne_bytes(out), 10);
        assert_eq!(region.read(4096, &mut out), Err(Fault));
        assert_eq!(region.write(4096, &out), Err(Fault));
        assert_eq!(region.fetch_add(4096, 3), Err(Fault));
    }
}
