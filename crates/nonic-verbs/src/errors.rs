//! What the core and the engine refuse, as errnos. An errno says little: why a call was refused is told to whoever reads the log (`NONIC_LOG`).

use nonic_abi::errno::Errno;
use nonic_core::{CreateError, Explanation, KeyError, ModifyError, PostError, RecvRefused};
use nonic_engine::{OpenError, log};

pub(crate) fn of_open(error: &OpenError) -> Errno {
    log::refused_call(error);
    match error {
        OpenError::NotFound { .. } | OpenError::NoAddress(_) => libc::ENODEV,
        OpenError::TooManyFiles { .. } => libc::EMFILE,
        OpenError::Setting(_) => libc::EINVAL,
        OpenError::Io { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::EBUSY,
    }
}

pub(crate) fn of_create(error: CreateError) -> Errno {
    log::refused_call(&Explanation::of_create(error));
    match error {
        CreateError::Unsupported => libc::EOPNOTSUPP,
        CreateError::NoQpn | CreateError::NoMemory => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

pub(crate) fn of_modify(error: ModifyError) -> Errno {
    log::refused_call(&Explanation::of_modify(error));
    libc::EINVAL
}

pub(crate) fn of_key(error: KeyError) -> Errno {
    log::refused_call(&error);
    match error {
        KeyError::Bound | KeyError::Busy => libc::EBUSY,
        KeyError::Exhausted => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

pub(crate) fn of_post(error: PostError) -> Errno {
    log::refused_post(error);
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
