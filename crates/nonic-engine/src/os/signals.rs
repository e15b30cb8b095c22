//! Signal masks: signals are the program's, and threads of ours take none.

/// Signals belong to the program: a thread spawned by `f` inherits a mask that blocks them all, but for those that its
/// own instructions cause. Where one of these is blocked the kernel ends the process instead of calling a handler, and
/// accesses to the program's memory rely on theirs.
pub(crate) fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both pointers are to storage of the right type; sigfillset initialises the set it is given.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for caused in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
        ] {
            libc::sigdelset(all.as_mut_ptr(), caused);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let result = f();
    if blocked {
        // SAFETY: the successful call above stored the old mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    result
}
