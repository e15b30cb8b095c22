//! Forking: nothing needs to be done, and this says so.
//!
//! Hardware must keep pinned pages from being moved by copy-on-write; the NIC here is the CPU of this
//! process and sees the same pages as the program. What a child may not do is use the parent's objects: it
//! has no thread that serves them, and may have been born while one held a lock. Destroying them in the child is
//! allowed and does nothing: [`Birth`] tells whose they are.

use libc::{c_int, c_void, size_t};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often this process's line has forked, counted in the children.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The process an object was made in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Birth(u32);

impl Birth {
    /// Made here and now.
    pub(crate) fn now() -> Self {
        static REGISTERED: Once = Once::new();
        // SAFETY: the handler does nothing but count, which is allowed in a child of fork.
        REGISTERED.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(count));
        });
        Birth(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this is a child of the process it was made in.
    pub(crate) fn is_elsewhere(self) -> bool {
        self.0 != GENERATION.load(Ordering::Relaxed)
    }
}

unsafe extern "C" fn count() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

const IBV_FORK_UNNEEDED: c_int = 2;

#[unsafe(no_mangle)]
extern "C" fn ibv_fork_init() -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_is_fork_initialized() -> c_int {
    IBV_FORK_UNNEEDED
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: size_t) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: size_t) -> c_int {
    0
}
