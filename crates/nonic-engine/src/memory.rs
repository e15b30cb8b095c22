//! Real memory as the NIC sees it.
//!
//! [`RawRegion`] lets the NIC copy to and from a span of the program's memory. The program, other NIC
//! threads and, through it, peers may write that span at any time, so no reference to it is ever formed:
//! small pieces are moved with relaxed atomic loads and stores of the largest aligned size, large ones with
//! string-move instructions where the processor has them. A racing reader sees old or new bytes, never
//! undefined behaviour.
//!
//! [`Pages`] owns page-aligned memory and is the ordinary way to have a region. Pinning is attempted and
//! its limit respected; nothing depends on it.

use crate::pinning::{PinOutcome, pin, unpin};
use nonic_core::{Fault, Region};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A span of memory somebody else owns.
#[derive(Debug)]
pub struct RawRegion {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the span is only accessed with atomic operations, from any thread; its validity is promised by
// whoever called `RawRegion::new`, for any thread.
unsafe impl Send for RawRegion {}
// SAFETY: as for `Send`.
unsafe impl Sync for RawRegion {}

impl RawRegion {
    /// # Safety
    ///
    /// `start..start + len` stays mapped, readable and (if a key with a write right is registered on it)
    /// writable until the region is dropped. While it lives, all other accesses to it that may race with
    /// the NIC's are atomic, made by another language, or ordered by a completion.
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        RawRegion { start, len }
    }

    /// A pointer to `length` bytes at `offset`, if they are inside.
    fn at(&self, offset: usize, length: usize) -> Result<*mut u8, Fault> {
        if offset.checked_add(length).is_none_or(|end| end > self.len) {
            return Err(Fault);
        }
        // SAFETY: just checked to be within the span, which is one allocation by `new`'s contract.
        Ok(unsafe { self.start.as_ptr().add(offset) })
    }

    fn word(&self, offset: usize) -> Result<&AtomicU64, Fault> {
        let pointer = self.at(offset, 8)?.cast::<u64>();
        if !pointer.is_aligned() {
            return Err(Fault);
        }
        // SAFETY: in bounds, aligned, valid while `self` lives, and every racing access is atomic by
        // `new`'s contract.
        Ok(unsafe { AtomicU64::from_ptr(pointer) })
    }
}

impl Region for RawRegion {
    fn len(&self) -> usize {
        self.len
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Fault> {
        let pointer = self.at(offset, out.len())?;
        if out.len() >= STRING_MOVE_FROM {
            // SAFETY: `at` checked the range; `out` is exclusively ours, so the two do not overlap.
            unsafe { string_move(pointer, out.as_mut_ptr(), out.len()) };
        } else {
            // SAFETY: `at` checked the range.
            unsafe { load(pointer, out) };
        }
        Ok(())
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<(), Fault> {
        let pointer = self.at(offset, data.len())?;
        if data.len() >= STRING_MOVE_FROM {
            // SAFETY: `at` checked the range; nobody may form a reference such as `data` to the region's
            // memory, so the two do not overlap.
            unsafe { string_move(data.as_ptr(), pointer, data.len()) };
        } else {
            // SAFETY: `at` checked the range.
            unsafe { store(pointer, data) };
        }
        Ok(())
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

/// From this length on, starting up a string move pays.
#[cfg(target_arch = "x86_64")]
const STRING_MOVE_FROM: usize = 512;
#[cfg(not(target_arch = "x86_64"))]
const STRING_MOVE_FROM: usize = usize::MAX;

/// Copies with string instructions, whose loads and stores the compiler neither sees nor reorders: it can assume
/// nothing about races with them.
///
/// # Safety
///
/// Both sides are valid for `len` bytes and do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn string_move(from: *const u8, to: *mut u8, len: usize) {
    // Bytes where the processor is built for that; otherwise words, and what is left of the last one.
    let (words, bytes) = if moves_bytes_fast() {
        (0, len)
    } else {
        (len / 8, len % 8)
    };
    // SAFETY: the caller's promise.
    unsafe { move_words_then_bytes(from, to, words, bytes) };
}

/// # Safety
///
/// Both sides are valid for `8 * words + bytes` bytes and do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn move_words_then_bytes(from: *const u8, to: *mut u8, words: usize, bytes: usize) {
    // SAFETY: the caller's promise; the ABI guarantees that the direction flag is clear.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            "mov rcx, {bytes}",
            "rep movsb",
            bytes = in(reg) bytes,
            inout("rcx") words => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Whether the processor has "enhanced" byte string moves; those before 2012 and some emulators have not.
#[cfg(target_arch = "x86_64")]
fn moves_bytes_fast() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    static ENHANCED: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        const ENHANCED_BIT: u32 = 1 << 9;
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & ENHANCED_BIT != 0
    });
    *ENHANCED
}

/// Other processors copy word by word; see [`STRING_MOVE_FROM`].
///
/// # Safety
///
/// Never called.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn string_move(_from: *const u8, _to: *mut u8, _len: usize) {
    unreachable!("no length reaches STRING_MOVE_FROM");
}

/// Copies from shared memory.
///
/// # Safety
///
/// `from` is valid for `out.len()` bytes and every racing access to them is atomic.
unsafe fn load(from: *mut u8, out: &mut [u8]) {
    let head = from.align_offset(8).min(out.len());
    let (first, rest) = out.split_at_mut(head);
    for (index, byte) in first.iter_mut().enumerate() {
        // SAFETY: index < out.len().
        *byte = unsafe { AtomicU8::from_ptr(from.add(index)) }.load(Ordering::Relaxed);
    }
    // SAFETY: head <= out.len(), so this is at most one past the end.
    let body = unsafe { from.add(head) };
    let mut words = rest.chunks_exact_mut(8);
    let mut done = 0;
    for word in &mut words {
        // SAFETY: within the range; aligned because `body` is and `done` is a multiple of 8.
        let value = unsafe { AtomicU64::from_ptr(body.add(done).cast()) }.load(Ordering::Relaxed);
        word.copy_from_slice(&value.to_ne_bytes());
        done += 8;
    }
    for (index, byte) in words.into_remainder().iter_mut().enumerate() {
        // SAFETY: within the range.
        *byte = unsafe { AtomicU8::from_ptr(body.add(done + index)) }.load(Ordering::Relaxed);
    }
}

/// Copies to shared memory.
///
/// # Safety
///
/// `to` is valid for writes of `data.len()` bytes and every racing access to them is atomic.
unsafe fn store(to: *mut u8, data: &[u8]) {
    let head = to.align_offset(8).min(data.len());
    let (first, rest) = data.split_at(head);
    for (index, byte) in first.iter().enumerate() {
        // SAFETY: index < data.len().
        unsafe { AtomicU8::from_ptr(to.add(index)) }.store(*byte, Ordering::Relaxed);
    }
    // SAFETY: head <= data.len(), so this is at most one past the end.
    let body = unsafe { to.add(head) };
    let words = rest.chunks_exact(8);
    let tail = words.remainder();
    let mut done = 0;
    for word in words {
        let value = u64::from_ne_bytes(word.try_into().expect("chunks of eight"));
        // SAFETY: within the range; aligned because `body` is and `done` is a multiple of 8.
        unsafe { AtomicU64::from_ptr(body.add(done).cast()) }.store(value, Ordering::Relaxed);
        done += 8;
    }
    for (index, byte) in tail.iter().enumerate() {
        // SAFETY: within the range.
        unsafe { AtomicU8::from_ptr(body.add(done + index)) }.store(*byte, Ordering::Relaxed);
    }
}

/// Page-aligned memory of this process, zeroed, pinned if the limit allows.
#[derive(Debug)]
pub struct Pages {
    region: RawRegion,
    mapped: usize,
    pinned: PinOutcome,
}

impl Pages {
    /// Maps at least `len` bytes.
    pub fn new(len: usize) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let page = rustix::param::page_size();
        let mapped = len
            .max(1)
            .checked_next_multiple_of(page)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a fresh private mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let pinned = pin(start.as_ptr(), mapped);
        // SAFETY: mapped until `drop`, which the region does not outlive; accessed only through it, or by
        // the exclusive owner of a part that no key covers for writing at that time.
        let region = unsafe { RawRegion::new(start, len) };
        Ok(Pages {
            region,
            mapped,
            pinned,
        })
    }

    /// Address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.region.start
    }

    /// Whether the kernel keeps the pages in memory.
    pub fn pinned(&self) -> &PinOutcome {
        &self.pinned
    }
}

impl Region for Pages {
    fn len(&self) -> usize {
        self.region.len()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Fault> {
        self.region.read(offset, out)
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<(), Fault> {
        self.region.write(offset, data)
    }

    fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, Fault> {
        self.region.compare_swap(offset, compare, swap)
    }

    fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, Fault> {
        self.region.fetch_add(offset, add)
    }

    fn store(&self, offset: usize, value: u64) -> Result<(), Fault> {
        self.region.store(offset, value)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let start = self.region.start.as_ptr();
        unpin(start, self.mapped);
        // SAFETY: mapped in `new` with this size; nobody can reach it any more.
        let unmapped = unsafe { rustix::mm::munmap(start.cast(), self.mapped) };
        debug_assert!(unmapped.is_ok(), "the mapping is ours");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_alignment_and_length_round_trip() {
        let pages = Pages::new(1024).expect("memory");
        for offset in 0..16 {
            for length in (0..40).chain([510, 511, 512, 513, 700]) {
                let data: Vec<u8> = (0..length).map(|i| (i * 7 + offset + 1) as u8).collect();
                pages.write(0, &[0xee; 800]).expect("in bounds");
                pages.write(offset, &data).expect("in bounds");
                let mut back = vec![0; 800];
                pages.read(0, &mut back).expect("in bounds");
                assert_eq!(&back[offset..offset + length], &data[..]);
                assert!(
                    back[..offset]
                        .iter()
                        .chain(&back[offset + length..])
                        .all(|b| *b == 0xee)
                );
                let mut exact = vec![0; length];
                pages.read(offset, &mut exact).expect("in bounds");
                assert_eq!(exact, data);
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn string_moves_of_words_and_bytes_copy_the_same() {
        let from: Vec<u8> = (0..700_u32).map(|i| (i * 7 + 1) as u8).collect();
        for len in (0..20).chain([511, 512, 513, 699]) {
            for (words, bytes) in [(0, len), (len / 8, len % 8)] {
                let mut to = vec![0xee; 700];
                // SAFETY: both vectors are longer than `len`.
                unsafe { move_words_then_bytes(from.as_ptr(), to.as_mut_ptr(), words, bytes) };
                assert_eq!(to[..len], from[..len]);
                assert!(to[len..].iter().all(|byte| *byte == 0xee));
            }
        }
    }

    #[test]
    fn accesses_outside_and_misaligned_atomics_fault() {
        let pages = Pages::new(16).expect("memory");
        assert_eq!(pages.write(9, &[0; 8]), Err(Fault));
        assert_eq!(pages.read(usize::MAX, &mut [0; 2]), Err(Fault));
        assert_eq!(pages.fetch_add(4, 1), Err(Fault));
        assert_eq!(pages.fetch_add(16, 1), Err(Fault));
        assert_eq!(pages.fetch_add(8, 5), Ok(0));
        assert_eq!(pages.compare_swap(8, 5, 9), Ok(5));
        assert_eq!(pages.compare_swap(8, 5, 1), Ok(9));
        assert_eq!(pages.store(4, 1), Err(Fault));
        assert_eq!(pages.store(8, 3), Ok(()));
        assert_eq!(pages.fetch_add(8, 0), Ok(3));
    }
}
