//! `errno`, as callers of the C library know it.

use libc::c_int;

/// What the last call that failed said.
pub(crate) fn last() -> c_int {
    // SAFETY: the C library hands out a pointer to this thread's own errno.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub(crate) fn set(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// The answer of a function that fails: −1, and why.
pub(crate) fn fail<T: From<i8>>(errno: c_int) -> T {
    set(errno);
    T::from(-1)
}
