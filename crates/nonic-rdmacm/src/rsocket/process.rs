//! Which process this is: a child of fork inherits memory, but neither threads nor connections.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A number that differs between a process and its children. Cheaper than asking the system for one.
pub(crate) fn generation() -> u32 {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // SAFETY: the function does nothing that a child of fork may not do.
        unsafe { libc::pthread_atfork(None, None, Some(is_child)) };
    });
    GENERATION.load(Ordering::Relaxed)
}

unsafe extern "C" fn is_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
