//! How the functions of librdmacm report trouble: −1, or NULL, with `errno` set.

use libc::c_int;

/// An errno.
pub(crate) type Errno = c_int;

/// Sets `errno`.
pub(crate) fn set(errno: Errno) {
    // SAFETY: the C library hands out a pointer to this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// What the C library said last.
pub(crate) fn last() -> Errno {
    let error = std::io::Error::last_os_error();
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// An error of the standard library's.
pub(crate) fn of_io(error: &std::io::Error) -> Errno {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// The answer of a function that answers zero or −1.
pub(crate) fn minus_one(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            set(errno);
            -1
        }
    }
}

/// The answer of a verb that answers zero or an errno.
pub(crate) fn check(code: c_int) -> Result<(), Errno> {
    match code {
        0 => Ok(()),
        // A few verbs answer −1 and leave the reason in `errno`.
        -1 => Err(last()),
        errno => Err(errno.abs()),
    }
}

/// The answer of a verb that answers a pointer.
pub(crate) fn check_pointer<T>(pointer: *mut T) -> Result<*mut T, Errno> {
    if pointer.is_null() {
        Err(last())
    } else {
        Ok(pointer)
    }
}
