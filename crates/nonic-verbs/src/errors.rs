//! Errors of the core and the engine as errnos, with the reasons that these give.

use nonic_abi::errno::{Errno, expected, refused};
use nonic_core::{CreateError, KeyError, ModifyError, PostError, RecvRefused};
use nonic_engine::{OpenError, log};
use nonic_explain::Explanation;

pub(crate) fn of_open(error: &OpenError) -> Errno {
    let number = match error {
        OpenError::NotFound { .. } | OpenError::NoAddress(_) => libc::ENODEV,
        OpenError::TooManyFiles { .. } => libc::EMFILE,
        OpenError::Setting(_) => libc::EINVAL,
        OpenError::Io { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::EBUSY,
    };
    refused(number, error.to_string(), "see what `nonic doctor` says")
}

pub(crate) fn of_create(error: CreateError) -> Errno {
    let number = match error {
        CreateError::Unsupported => libc::EOPNOTSUPP,
        CreateError::NoQpn | CreateError::NoMemory => libc::ENOMEM,
        _ => libc::EINVAL,
    };
    explained(number, &Explanation::of_create(error))
}

pub(crate) fn of_modify(error: ModifyError) -> Errno {
    explained(libc::EINVAL, &Explanation::of_modify(error))
}

pub(crate) fn of_key(error: KeyError) -> Errno {
    let (number, next) = match error {
        KeyError::Bound => (
            libc::EBUSY,
            "deallocate the memory windows that are bound to it first",
        ),
        KeyError::Busy => (libc::EBUSY, "wait for the completions of requests that use it"),
        KeyError::Exhausted => (libc::ENOMEM, "deregister regions that are not used any more"),
        KeyError::InvalidRights => (
            libc::EINVAL,
            "set IBV_ACCESS_LOCAL_WRITE beside remote write and atomic rights",
        ),
        _ => (libc::EINVAL, "check the key, the range and the rights"),
    };
    refused(number, error.to_string(), next)
}

/// That a queue is full is how programs find out when to take completions: that alone is no news, and it may happen often.
pub(crate) fn of_post(error: PostError) -> Errno {
    match error {
        PostError::SendQueueFull | PostError::Receive(RecvRefused::Full) => {
            log::full_queue(error);
            expected(libc::ENOMEM)
        }
        PostError::DeviceFailed => explained(libc::EIO, &Explanation::of_post(error)),
        _ => explained(libc::EINVAL, &Explanation::of_post(error)),
    }
}

pub(crate) fn of_receive(error: RecvRefused) -> Errno {
    of_post(PostError::Receive(error))
}

/// A completion queue that had no room for a completion.
pub(crate) fn overrun() -> Errno {
    refused(
        libc::EOVERFLOW,
        "the completion queue was too short, and a completion is lost (CQ overrun)",
        "create it with at least as many entries as requests can be posted at the same time, or poll more often",
    )
}

fn explained(number: libc::c_int, explanation: &Explanation) -> Errno {
    let what = explanation.happened.trim_end_matches('.').to_owned();
    refused(number, what, explanation.steps.join("; "))
}
