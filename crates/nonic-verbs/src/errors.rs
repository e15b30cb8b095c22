//! What the core and the engine refuse, as errnos.

use nonic_abi::errno::Errno;
use nonic_core::{CreateError, KeyError, ModifyError, PostError, RecvRefused};
use nonic_engine::OpenError;

pub(crate) fn of_open(error: &OpenError) -> Errno {
    match error {
        OpenError::NotFound { .. } | OpenError::NoAddress(_) => libc::ENODEV,
        OpenError::TooManyFiles { .. } => libc::EMFILE,
        OpenError::Setting(_) => libc::EINVAL,
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
        KeyError::Bound | KeyError::Busy => libc::EBUSY,
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
