//! Keeping registered memory resident, as far as the limit allows.
//!
//! Hardware needs pinned pages to be correct; we do not, because the CPU that copies faults pages in like
//! any other code. Pinning only keeps the first access, or one after memory pressure, from stalling the
//! wire. So every outcome here is fine and none is an error.
//!
//! Read first: [`pin`], [`PinOutcome`]. This module refuses to count: the kernel's locks do not nest, so
//! after overlapping ranges are pinned, [`unpin`] of one releases the pages they share, as well as any that
//! the program locked itself.

use std::ffi::c_void;

use rustix::io::Errno;

/// What became of an attempt to pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only what was pinned should be unpinned"]
pub enum PinOutcome {
    /// The pages are resident and stay so.
    Pinned,
    /// The process may not lock that much memory (`RLIMIT_MEMLOCK`), or part of the range is not mapped:
    /// the kernel does not tell the two apart.
    LimitReached,
    /// The system does not let this process lock memory at all, or does not know how to.
    Refused,
}

/// Tries to make a range resident and keep it so.
///
/// Any pointer is allowed: the range is named to the kernel, which checks it, and never dereferenced.
pub fn pin(start: *const u8, bytes: usize) -> PinOutcome {
    // SAFETY: locking changes no byte and no mapping, and the kernel checks that the range is mapped.
    match unsafe { rustix::mm::mlock(start.cast_mut().cast::<c_void>(), bytes) } {
        Ok(()) => PinOutcome::Pinned,
        Err(Errno::NOMEM | Errno::AGAIN) => PinOutcome::LimitReached,
        Err(_) => PinOutcome::Refused,
    }
}

/// Lets go of a range that [`pin`] has pinned. Unmapping the memory does the same.
pub fn unpin(start: *const u8, bytes: usize) {
    // A failure means that the range is no longer mapped, and then it is no longer locked.
    // SAFETY: unlocking changes no byte and no mapping, and the kernel checks that the range is mapped.
    let _ = unsafe { rustix::mm::munlock(start.cast_mut().cast::<c_void>(), bytes) };
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, getrlimit};
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

    use super::*;

    fn locked_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmLck:"))
            .expect("a VmLck line");
        line.trim()
            .trim_end_matches(" kB")
            .parse()
            .expect("a number of KiB")
    }

    #[test]
    fn pinned_memory_is_locked_until_unpinned() {
        let memory = vec![0_u8; 64 * 1024];
        let before = locked_kib();
        match pin(memory.as_ptr(), memory.len()) {
            PinOutcome::Pinned => assert!(locked_kib() >= before + 64),
            outcome => panic!("64 KiB fit any sensible limit, but {outcome:?}"),
        }
        unpin(memory.as_ptr(), memory.len());
        assert!(locked_kib() <= before);
    }

    #[test]
    fn the_limit_is_an_outcome_not_an_error() {
        let Some(limit) = getrlimit(Resource::Memlock).current else {
            // Without a limit there is nothing to reach.
            return;
        };
        // The privilege to exceed the limit belongs to a thread, so this one can give it up alone.
        let outcome = std::thread::spawn(move || {
            let sets = capabilities(None).expect("own capabilities");
            let without = sets.effective - CapabilitySet::IPC_LOCK;
            set_capabilities(
                None,
                CapabilitySets {
                    effective: without,
                    ..sets
                },
            )
            .expect("fewer capabilities");
            let memory = vec![0_u8; limit as usize + 1];
            pin(memory.as_ptr(), memory.len())
        });
        assert_eq!(outcome.join().expect("the thread ends"), PinOutcome::LimitReached);
    }

    #[test]
    fn memory_that_is_not_there_is_not_pinned() {
        assert_ne!(pin(std::ptr::null(), 4096), PinOutcome::Pinned);
    }
}
