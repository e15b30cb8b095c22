//! How verbs report trouble.

use libc::c_int;
use nonic_core::{CreateError, KeyError, ModifyError, PostError, RecvRefused};
use nonic_engine::OpenError;

/// An errno.
pub(crate) type Errno = c_int;

/// Sets `errno`.
pub(crate) fn set(errno: Errno) {
    // SAFETY: the C library hands out a pointer to this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// What the C library said last.
pub(crate) fn last() -> Errno {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// For verbs that answer with a pointer.
pub(crate) fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|errno| {
        set(errno);
        std::ptr::null_mut()
    })
}

/// For verbs that answer zero or an errno.
pub(crate) fn code(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            set(errno);
            errno
        }
    }
}

/// For verbs that answer zero or −1 with `errno` set.
pub(crate) fn minus_one(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            set(errno);
            -1
        }
    }
}

pub(crate) fn of_open(error: &OpenError) -> Errno {
    match error {
        OpenError::NotFound { .. } | OpenError::NoAddress(_) => libc::ENODEV,
        OpenError::TooManyFiles { .. } => libc::EMFILE,
        OpenError::Io { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::EBUSY,
    }
}

pub(crate) fn of_create(error: CreateError) -> Errno {
    match error {
        CreateError::Unsupported => libc::EOPNOTSUPP,
        CreateError::NoQpn => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

pub(crate) fn of_modify(_error: ModifyError) -> Errno {
    libc::EINVAL
}

pub(crate) fn of_key(error: KeyError) -> Errno {
    match error {
        KeyError::Bound => libc::EBUSY,
        KeyError::Exhausted => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

pub(crate) fn of_post(error: PostError) -> Errno {
    match error {
        PostError::SendQueueFull | PostError::Receive(RecvRefused::Full) => libc::ENOMEM,
        PostError::DeviceFailed => libc::EIO,
        _ => libc::EINVAL,
    }
}

pub(crate) fn of_receive(error: RecvRefused) -> Errno {
    match error {
        RecvRefused::Full => libc::ENOMEM,
        RecvRefused::TooManySges => libc::EINVAL,
    }
}
