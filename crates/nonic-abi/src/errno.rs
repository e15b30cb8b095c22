//! `errno`, and how functions of C libraries report trouble.
//!
//! Inside the libraries an error is an [`Errno`] in a `Result`. A function that C calls turns it into the answer that its
//! man page promises; a function of C that was called is turned into a `Result` by [`check`] or [`check_pointer`].

use libc::c_int;

/// An errno.
pub type Errno = c_int;

/// Sets `errno`.
pub fn set(errno: Errno) {
    // SAFETY: the C library hands out a pointer to this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// What the last call that failed said.
pub fn last() -> Errno {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// An error of the standard library's.
pub fn of_io(error: &std::io::Error) -> Errno {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// The answer of a function that fails: −1 of whatever type it answers, and `errno` set.
pub fn fail<T: From<i8>>(errno: Errno) -> T {
    set(errno);
    T::from(-1)
}

/// For functions that answer with a pointer: NULL with `errno` set.
pub fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|errno| {
        set(errno);
        std::ptr::null_mut()
    })
}

/// For functions that answer zero or an errno, which most verbs do.
pub fn code(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            set(errno);
            errno
        }
    }
}

/// For functions that answer zero or −1 with `errno` set.
pub fn minus_one(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => fail(errno),
    }
}

/// What a verb answered that answers zero or an errno.
pub fn check(code: c_int) -> Result<(), Errno> {
    match code {
        0 => Ok(()),
        // A few verbs answer −1 and leave the reason in `errno`.
        -1 => Err(last()),
        errno => Err(errno.abs()),
    }
}

/// What a function answered that answers a pointer, or NULL with `errno` set.
pub fn check_pointer<T>(pointer: *mut T) -> Result<*mut T, Errno> {
    match pointer.is_null() {
        true => Err(last()),
        false => Ok(pointer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_function_reports_trouble_in_its_own_way() {
        assert_eq!(code(Err(libc::EBUSY)), libc::EBUSY);
        assert_eq!(last(), libc::EBUSY);
        assert_eq!(minus_one(Err(libc::EINVAL)), -1);
        assert_eq!(last(), libc::EINVAL);
        assert!(pointer::<u8>(Err(libc::ENOMEM)).is_null());
        assert_eq!(last(), libc::ENOMEM);
        assert_eq!(fail::<i64>(libc::EAGAIN), -1);
        assert_eq!(last(), libc::EAGAIN);
        assert_eq!((code(Ok(())), minus_one(Ok(()))), (0, 0));
    }

    #[test]
    fn what_a_verb_answers_is_an_errno_of_either_sign_or_minus_one() {
        assert_eq!(check(0), Ok(()));
        assert_eq!(check(libc::EBUSY), Err(libc::EBUSY));
        assert_eq!(check(-libc::EOVERFLOW), Err(libc::EOVERFLOW));
        set(libc::ENODATA);
        assert_eq!(check(-1), Err(libc::ENODATA));
        assert_eq!(check_pointer(std::ptr::null_mut::<u8>()), Err(libc::ENODATA));
    }
}
