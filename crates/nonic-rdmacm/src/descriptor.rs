//! Descriptors of this library's own, kept as the engine keeps its: those that no program sees have high numbers, and
//! none is closed, read or written once the program has closed it.

use libc::c_int;
use nonic_abi::errno::{Errno, of_system};
use nonic_abi::libibverbs::{
    INTERNAL, PROGRAM, SOCKET, nonic_descriptor, nonic_descriptor_close, nonic_descriptor_is_lost,
    nonic_descriptor_keep, nonic_descriptor_number,
};
use nonic_abi::{event_queue, eventfd};
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};

/// Whether the program knows a descriptor's number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Audience {
    /// No: it is this library's own.
    Library,
    /// The program, which polls it.
    Program,
    /// It is the number of an rsocket: the program's, unless its sockets are carried by rsockets.
    Socket,
}

/// A descriptor. It is closed with its owner, unless the program has closed it.
pub(crate) struct Descriptor {
    handle: *mut nonic_descriptor,
    number: RawFd,
}

// SAFETY: the handle is to something that does not change, and may be used from any thread.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    /// Takes over what a function of the C library answered: a descriptor, or a negative number and `errno`.
    pub(crate) fn keep(fd: c_int, audience: Audience) -> Result<Self, Errno> {
        if fd < 0 {
            return Err(of_system("making a descriptor"));
        }
        let kind = match audience {
            Audience::Library => INTERNAL,
            Audience::Program => PROGRAM,
            Audience::Socket => SOCKET,
        };
        // SAFETY: the descriptor was just opened and nothing else owns it; the handle is the one we were given.
        unsafe {
            let handle = nonic_descriptor_keep(fd, kind);
            let number = nonic_descriptor_number(handle);
            Ok(Descriptor { handle, number })
        }
    }

    /// An eventfd.
    pub(crate) fn eventfd(flags: c_int, audience: Audience) -> Result<Self, Errno> {
        Self::keep(eventfd::new(flags)?.into_raw_fd(), audience)
    }
}

impl event_queue::Descriptor for Descriptor {
    fn number(&self) -> RawFd {
        self.number
    }

    fn is_lost(&self) -> bool {
        // SAFETY: the handle is ours until we are dropped.
        unsafe { nonic_descriptor_is_lost(self.handle) != 0 }
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.number
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is not used again.
        unsafe { nonic_descriptor_close(self.handle) };
    }
}
