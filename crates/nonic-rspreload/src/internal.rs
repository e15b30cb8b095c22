//! Descriptors that are not the program's to close: those of the libraries that carry its sockets.
//!
//! A program closes what it did not open: a daemon everything from 3 on, iperf3 one number twice, of which the second
//! time may be ours. `libibverbs.so.1` knows which numbers are its own or `librdmacm.so.1`'s; both close theirs without
//! coming past here. Ours, the eventfds of `watch`, are kept by it too.

use crate::rsockets;
use crate::symbol::typed;
use libc::c_int;
use nonic_abi::libibverbs::{
    INTERNAL, nonic_descriptor, nonic_descriptor_close, nonic_descriptor_is_internal, nonic_descriptor_keep,
    nonic_descriptor_next_internal, nonic_descriptor_number,
};

/// Whether a descriptor belongs to the libraries. One load, before the first socket is carried.
pub(crate) fn is_internal(fd: c_int) -> bool {
    let asked = rsockets::verbs().and_then(|verbs| typed!(nonic_descriptor_is_internal in verbs));
    // SAFETY: it takes any number.
    asked.is_some_and(|is_internal| unsafe { is_internal(fd) } != 0)
}

/// The first of them that is not below this number.
pub(crate) fn next_internal(from: c_int) -> Option<c_int> {
    let next = rsockets::verbs().and_then(|verbs| typed!(nonic_descriptor_next_internal in verbs))?;
    // SAFETY: it takes any number.
    let found = unsafe { next(from) };
    (found >= 0).then_some(found)
}

/// A descriptor of this library's own.
pub(crate) struct InternalFd {
    number: c_int,
    /// What `libibverbs.so.1` knows it by, if that is there and ours.
    handle: Option<*mut nonic_descriptor>,
}

// SAFETY: the handle is to something that does not change, and may be used from any thread.
unsafe impl Send for InternalFd {}

impl InternalFd {
    /// Takes over a descriptor, which gets another number.
    pub(crate) fn new(fd: c_int) -> Self {
        Self::kept_by_verbs(fd).unwrap_or(InternalFd {
            number: fd,
            handle: None,
        })
    }

    /// The same, if there is a library that keeps it.
    fn kept_by_verbs(fd: c_int) -> Option<Self> {
        let verbs = rsockets::verbs()?;
        let number = typed!(nonic_descriptor_number in verbs)?;
        let keep = typed!(nonic_descriptor_keep in verbs)?;
        // SAFETY: the descriptor is given away, and the handle is the one we were given.
        unsafe {
            let handle = keep(fd, INTERNAL);
            Some(InternalFd {
                number: number(handle),
                handle: Some(handle),
            })
        }
    }

    pub(crate) fn number(&self) -> c_int {
        self.number
    }
}

impl Drop for InternalFd {
    fn drop(&mut self) {
        match self.handle {
            Some(handle) => {
                let close = rsockets::verbs().and_then(|verbs| typed!(nonic_descriptor_close in verbs));
                if let Some(close) = close {
                    // SAFETY: the handle is not used again.
                    unsafe { close(handle) };
                }
            }
            // SAFETY: it is ours.
            None => drop(unsafe { crate::next::close(self.number) }),
        }
    }
}
