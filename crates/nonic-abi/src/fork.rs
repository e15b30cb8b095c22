//! Fork detection: which process this is.
//!
//! A child of `fork` inherits memory and descriptors, but neither the threads nor the connections that its parent's
//! objects need: it may not use them, and may have been born while a thread held a lock. [`Birth`] tells which process
//! made an object. It costs a load, where asking the system for the process's number costs a system call.
//!
//! A child of `vfork` runs in its parent's memory, and no handler of `pthread_atfork` is called for it. Code that would
//! change that memory asks [`is_owner`], which does ask the system.

use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// How often this process's line has forked, counted in the children.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The process that owns this memory; 0 before [`watch`].
static OWNER: AtomicI32 = AtomicI32::new(0);

/// The process that something was made in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Birth(u32);

impl Birth {
    /// Made here and now.
    pub fn now() -> Self {
        watch();
        Birth(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this is a child of the process it was made in.
    pub fn is_elsewhere(self) -> bool {
        self.0 != GENERATION.load(Ordering::Relaxed)
    }
}

/// From now on forks are noticed. Handlers of `pthread_atfork` that are registered after this find a child to be itself.
pub fn watch() {
    static REGISTERED: Once = Once::new();
    // SAFETY: the handler stores numbers, which is allowed in a child of fork, and lives as long as the process: none of
    // the libraries is ever unloaded.
    REGISTERED.call_once(|| unsafe {
        OWNER.store(libc::getpid(), Ordering::Relaxed);
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

unsafe extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // SAFETY: cannot fail.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
}

/// Whether this process may change the memory it runs in; not before [`watch`]. A child of `vfork` may not: it has another
/// number, and its parent's memory.
pub fn is_owner() -> bool {
    // SAFETY: cannot fail.
    OWNER.load(Ordering::Relaxed) == unsafe { libc::getpid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `child` in a forked child; what it answers is its exit code.
    fn forked(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls nothing but what may be called between fork and exit.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(child().into());
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1
        }
    }

    #[test]
    fn a_child_knows_what_was_made_by_its_parent() {
        let birth = Birth::now();
        assert!(!birth.is_elsewhere() && is_owner());
        assert!(forked(move || birth.is_elsewhere()
            && is_owner()
            && Birth::now() != birth));
        assert!(!birth.is_elsewhere() && is_owner());
    }

    #[test]
    fn another_process_in_this_memory_does_not_own_it() {
        watch();
        assert!(forked(|| {
            // As a child of vfork finds it: the number stored is not its own.
            OWNER.store(1, Ordering::Relaxed);
            !is_owner()
        }));
    }
}
