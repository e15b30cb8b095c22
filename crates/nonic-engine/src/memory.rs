//! Registered memory, as the NIC reaches it.
//!
//! [`RawRegion`] lets the NIC copy to and from a span of the program's memory. The program, other NIC threads and, through
//! it, peers may write that span at any time, so no reference to it is ever formed. Small pieces are moved with relaxed
//! atomic loads and stores of the largest aligned size, large ones with string-move instructions where the processor has
//! them. A racing reader sees old or new bytes, never undefined behaviour. A program may also take the span away, by
//! mistake or on its way out; on x86-64 an access to it then answers [`Fault`] (`guarded`, `fault_handler`).
//!
//! [`Pages`] owns page-aligned memory and is the ordinary way to have a region. Pinning is attempted and
//! its limit respected; nothing depends on it. They can become memory that peers on this host may map ([`Pages::share`],
//! `backing`).

mod backing;
#[cfg(target_arch = "x86_64")]
mod fault_handler;
#[cfg(target_arch = "x86_64")]
mod guarded;
#[cfg(any(test, not(target_arch = "x86_64")))]
mod words;

#[cfg(target_arch = "x86_64")]
use guarded as copies;
#[cfg(not(target_arch = "x86_64"))]
use words as copies;

pub(crate) use backing::Backing;

use crate::pinning::{PinOutcome, pin, unpin};
use nonic_core::{Fault, Region, RegionOwner};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What is in pages moves into a file in pieces of this size.
const MOVED_AT_ONCE: usize = 64 * 1024;

/// A span of memory that it does not own.
#[derive(Debug)]
pub struct RawRegion {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the span is only accessed with atomic operations, from any thread; the caller of `RawRegion::new` promised its
// validity, for any thread.
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

    /// Memory that its owner might take away: an access to what is not mapped, not allowed, or behind the end of its
    /// file answers [`Fault`]. What could be accessed before the first such byte has been accessed.
    ///
    /// To that end it makes ours the process's handlers of SIGSEGV and SIGBUS, which pass other faults on to the handlers
    /// that they found. Where that does not help, such an access ends the process as it does everywhere: on processors
    /// other than x86-64; while the program has put handlers in place of ours, until the next region is made; and in
    /// threads of the program's that block these signals.
    ///
    /// # Safety
    ///
    /// The span holds nothing that Rust has a reference to, now or, if it is unmapped and something else is mapped
    /// there, later. All other accesses to it that may race with the NIC's are atomic, made by another language, or
    /// ordered by a completion.
    pub unsafe fn guarded(start: NonNull<u8>, len: usize) -> Self {
        #[cfg(target_arch = "x86_64")]
        fault_handler::ensure_installed();
        RawRegion { start, len }
    }

    /// Address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// A pointer to `length` bytes at `offset`, if they are inside.
    fn at(&self, offset: usize, length: usize) -> Result<*mut u8, Fault> {
        if offset.checked_add(length).is_none_or(|end| end > self.len) {
            return Err(Fault);
        }
        // The span need not be one allocation, nor there at all, so this is arithmetic on addresses.
        Ok(self.start.as_ptr().wrapping_add(offset))
    }

    /// Copies from memory that other threads or peers may write at the same time, or that may be gone.
    ///
    /// # Safety
    ///
    /// Nothing in the `length` bytes at `from` is known to the compiler.
    pub(crate) unsafe fn write_from(
        &self,
        offset: usize,
        from: *const u8,
        length: usize,
    ) -> Result<(), Fault> {
        let to = self.at(offset, length)?;
        // SAFETY: `at` checked the range, and the creator of the region promised the rest; the caller does for `from`.
        unsafe { copies::copy(to, from, length, to.addr()) }
    }

    /// Copies to memory that other threads or peers may use at the same time, or that may be gone.
    ///
    /// # Safety
    ///
    /// As for [`RawRegion::write_from`].
    pub(crate) unsafe fn read_to(&self, offset: usize, to: *mut u8, length: usize) -> Result<(), Fault> {
        let from = self.at(offset, length)?;
        // SAFETY: as for `write_from`.
        unsafe { copies::copy(to, from, length, from.addr()) }
    }

    fn word(&self, offset: usize) -> Result<*mut u64, Fault> {
        let pointer = self.at(offset, 8)?.cast::<u64>();
        if pointer.is_aligned() {
            Ok(pointer)
        } else {
            Err(Fault)
        }
    }
}

impl Region for RawRegion {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn address(&self) -> Option<usize> {
        Some(self.start.addr().get())
    }

    #[inline]
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Fault> {
        let pointer = self.at(offset, out.len())?;
        // SAFETY: `at` checked the range; `out` is exclusively ours, so the two do not overlap.
        unsafe { copies::read(pointer, out) }
    }

    #[inline]
    fn write(&self, offset: usize, data: &[u8]) -> Result<(), Fault> {
        let pointer = self.at(offset, data.len())?;
        // SAFETY: `at` checked the range; no code may form a reference such as `data` to the region's memory, so the two do
        // not overlap.
        unsafe { copies::write(pointer, data) }
    }

    #[inline]
    fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, Fault> {
        // SAFETY: `word` checked range and alignment.
        unsafe { copies::compare_swap(self.word(offset)?, compare, swap) }
    }

    #[inline]
    fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, Fault> {
        // SAFETY: `word` checked range and alignment.
        unsafe { copies::fetch_add(self.word(offset)?, add) }
    }

    #[inline]
    fn store(&self, offset: usize, value: u64) -> Result<(), Fault> {
        // SAFETY: `word` checked range and alignment.
        unsafe { copies::store_word(self.word(offset)?, value) }
    }
}

/// Copies from memory that other threads or peers may write at the same time, or that may be gone.
///
/// # Safety
///
/// Nothing in the bytes at `from` is known to the compiler.
#[inline]
pub(crate) unsafe fn copy_out(from: *const u8, out: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { copies::read(from, out) }
}

/// Page-aligned memory of this process, zeroed, pinned if the limit allows.
#[derive(Debug)]
pub struct Pages {
    region: RawRegion,
    mapped: usize,
    pinned: PinOutcome,
    /// The file that they are, if they are shared.
    backing: OnceLock<Arc<Backing>>,
    /// Whether peers that READ them may keep them mapped, once they are.
    stay_mapped: AtomicBool,
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
            backing: OnceLock::new(),
            stay_mapped: AtomicBool::new(false),
        })
    }

    /// Makes them a file that peers on this host may map, if they are not one yet: at the same address, with the same bytes in
    /// it. Fails for want of descriptors or memory, and then nothing has changed.
    ///
    /// # Safety
    ///
    /// No thread or peer accesses them during the call.
    pub unsafe fn share(&self) -> io::Result<()> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        if self.backing.get().is_some() {
            return Ok(());
        }
        let backing = Backing::new(self.mapped, self.stay_mapped.load(Ordering::Relaxed))?;
        let mut bytes = vec![0; MOVED_AT_ONCE.min(self.mapped)];
        for at in (0..self.mapped).step_by(MOVED_AT_ONCE) {
            let piece = &mut bytes[..MOVED_AT_ONCE.min(self.mapped - at)];
            // SAFETY: within the mapping, whose last bytes are behind the region's end; no thread writes them now.
            unsafe { copies::read(self.start().as_ptr().wrapping_add(at), piece) }
                .map_err(|Fault| io::ErrorKind::InvalidInput)?;
            // What is zero is zero in the file as well, and takes no memory until it is touched.
            if piece.iter().fold(0, |all, byte| all | byte) != 0 {
                backing.put(piece, at as u64)?;
            }
        }
        // SAFETY: the mapping is ours; what takes its place has the same bytes, and no thread has changed them meanwhile.
        unsafe {
            mmap(
                self.start().as_ptr().cast(),
                self.mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED,
                backing.fd(),
                0,
            )
        }?;
        if self.pinned == PinOutcome::Pinned {
            // The limit counted the pages that they replace.
            let _ = pin(self.start().as_ptr(), self.mapped);
        }
        let _ = self.backing.set(Arc::new(backing));
        Ok(())
    }

    /// Lets peers on this host that READ them keep them mapped when their key has been revoked, for as long as they exist.
    /// Call it before they are [shared](Pages::share). A peer that was once allowed to read them may then see what is in
    /// them later. What peers may write is taken back nevertheless.
    pub fn stay_mapped(&self) {
        self.stay_mapped.store(true, Ordering::Relaxed);
    }

    /// Whether peers that READ them keep them mapped.
    pub fn do_stay_mapped(&self) -> bool {
        let asked = self.stay_mapped.load(Ordering::Relaxed);
        asked && self.backing.get().is_none_or(|backing| backing.stays())
    }

    /// From now on they are given only to peers with a new key. Whether a peer was given them before: see
    /// [`Pages::is_given`].
    pub fn take_back(&self) -> bool {
        self.backing.get().is_some_and(|backing| backing.take_back())
    }

    /// Whether a peer was given them to map. It may still have them when its key has been revoked, and see or write whatever
    /// is in them, if it does not keep to our rules.
    pub fn is_given(&self) -> bool {
        self.backing.get().is_some_and(|backing| backing.is_given())
    }

    /// The file that they are, if they are shared.
    pub(crate) fn backing(&self) -> Option<&Arc<Backing>> {
        self.backing.get()
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

impl RegionOwner for Pages {
    type Inner = RawRegion;

    fn inner(&self) -> &RawRegion {
        &self.region
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let start = self.region.start.as_ptr();
        unpin(start, self.mapped);
        if let Some(backing) = self.backing.get() {
            backing.empty(self.mapped);
        }
        // SAFETY: mapped in `new` with this size; no pointer to it is left.
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

    /// A mapping that goes away, in whole or in part.
    #[cfg(target_arch = "x86_64")]
    struct Mapping {
        start: NonNull<u8>,
        len: usize,
    }

    #[cfg(target_arch = "x86_64")]
    impl Mapping {
        const PAGE: usize = 4096;

        fn new(pages: usize) -> Self {
            use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
            let len = pages * Self::PAGE;
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
            let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, rights, MapFlags::PRIVATE) };
            let start = NonNull::new(start.expect("memory").cast()).expect("not at zero");
            Mapping { start, len }
        }

        fn region(&self) -> RawRegion {
            // SAFETY: no other code knows of the mapping.
            unsafe { RawRegion::guarded(self.start, self.len) }
        }

        /// Nothing else is mapped in its place: another test may map at any time.
        fn forbid(&self, from: usize, pages: usize, rights: rustix::mm::MprotectFlags) {
            let start = self.start.as_ptr().wrapping_add(from * Self::PAGE).cast();
            // SAFETY: the pages are the mapping's.
            unsafe { rustix::mm::mprotect(start, pages * Self::PAGE, rights) }.expect("it is mapped");
        }
    }

    #[cfg(target_arch = "x86_64")]
    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: mapped in `new`, and no longer used.
            unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) }.expect("it is mapped");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn every_access_to_forbidden_memory_faults_and_the_thread_goes_on() {
        use rustix::mm::MprotectFlags;
        let mapping = Mapping::new(4);
        let region = mapping.region();
        let mut out = [0; 4096];
        mapping.forbid(0, 4, MprotectFlags::empty());
        for length in [1, 7, 8, 9, 31, 32, 33, 64, 511, 512, 4096] {
            for offset in [0, 1, 5, 8] {
                assert_eq!(region.read(offset, &mut out[..length]), Err(Fault), "{length}");
                assert_eq!(region.write(offset, &out[..length]), Err(Fault), "{length}");
            }
        }
        assert_eq!(region.compare_swap(8, 1, 2), Err(Fault));
        assert_eq!(region.fetch_add(8, 1), Err(Fault));
        assert_eq!(region.store(8, 1), Err(Fault));
        assert_eq!(region.read(0, &mut []), Ok(()), "nothing is touched");
        mapping.forbid(0, 4, MprotectFlags::READ);
        assert_eq!(region.read(0, &mut out), Ok(()));
        assert_eq!(region.write(0, &out), Err(Fault));
        assert_eq!(
            region.fetch_add(8, 0),
            Err(Fault),
            "it is written, if only with itself"
        );
        mapping.forbid(0, 4, MprotectFlags::READ | MprotectFlags::WRITE);
        assert_eq!(region.write(0, &out), Ok(()));
        assert_eq!(region.fetch_add(8, 3), Ok(0));
        assert_eq!(region.compare_swap(8, 3, 9), Ok(3));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn what_precedes_the_first_missing_byte_is_copied() {
        let mapping = Mapping::new(3);
        let region = mapping.region();
        mapping.forbid(1, 1, rustix::mm::MprotectFlags::empty());
        for (before, length) in [(3, 9), (8, 40), (13, 300), (100, 511), (600, 700), (100, 4096)] {
            let data = vec![before as u8; length];
            let offset = Mapping::PAGE - before;
            assert_eq!(region.write(offset, &data), Err(Fault));
            let mut back = vec![0; before];
            assert_eq!(region.read(offset, &mut back), Ok(()));
            // A word is written in one piece; nothing of one that faults is.
            let whole = if length < 512 { before & !7 } else { before };
            assert_eq!(back[..whole], data[..whole], "{before} of {length}");
            assert_eq!(region.read(offset, &mut vec![0; length]), Err(Fault));
        }
        assert_eq!(
            region.write(2 * Mapping::PAGE, &[1; 4096]),
            Ok(()),
            "the page behind is there"
        );
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn unmapped_memory_and_addresses_that_cannot_be_fault() {
        let len = 1 << 30;
        let mapping = Mapping::new(1);
        // Behind the end of what a process can have at all: these faults name no address.
        for start in [usize::MAX / 2 + 1, usize::MAX - len] {
            let start = NonNull::new(std::ptr::without_provenance_mut(start)).expect("not zero");
            // SAFETY: nothing can be there.
            let region = unsafe { RawRegion::guarded(start, len) };
            assert_eq!(region.read(0, &mut [0; 8]), Err(Fault));
            assert_eq!(region.write(8, &[0; 2000]), Err(Fault));
            assert_eq!(region.fetch_add(region.start.align_offset(8), 1), Err(Fault));
        }
        let start = NonNull::new(std::ptr::without_provenance_mut(64)).expect("not zero");
        // SAFETY: the kernel maps nothing at the beginning.
        let region = unsafe { RawRegion::guarded(start, 64) };
        assert_eq!(region.read(0, &mut [0; 8]), Err(Fault));
        assert_eq!(mapping.region().read(0, &mut [0; 8]), Ok(()));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_file_that_is_cut_short_faults() {
        use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let file = memfd_create("cut short", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&file, 8192).expect("it grows");
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), 8192, rights, MapFlags::SHARED, &file, 0) };
        let start = NonNull::new(start.expect("memory").cast()).expect("not at zero");
        let mapping = Mapping { start, len: 8192 };
        let region = mapping.region();
        assert_eq!(region.write(0, &[1; 8192]), Ok(()));
        ftruncate(&file, 4096).expect("it shrinks");
        assert_eq!(region.write(0, &[2; 8192]), Err(Fault));
        assert_eq!(region.read(4096, &mut [0; 8]), Err(Fault));
        assert_eq!(region.fetch_add(4096, 1), Err(Fault));
        assert_eq!(region.fetch_add(4088, 0), Ok(0x0202_0202_0202_0202));
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
