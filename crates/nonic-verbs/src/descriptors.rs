//! Descriptors that the other libraries keep here, and ask about: the part of the private interface that has no use for devices.
//!
//! `librdmacm.so.1` has descriptors of its own and keeps them as the engine does: at high numbers, closed only while
//! they are still its own. `librspreload.so` stands in front of the C library's `close` and must know which numbers are
//! not the program's to close.

use libc::c_int;
use nonic_abi::libibverbs::{INTERNAL, SOCKET, nonic_descriptor};
use nonic_engine::os::descriptors::{self, InternalFd};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the program does not see the numbers of rsockets: they carry sockets of its own.
static SOCKETS_ARE_INTERNAL: AtomicBool = AtomicBool::new(false);

/// Takes over a descriptor of one of the kinds of [`nonic_abi::libibverbs`]. Its number may change.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_descriptor_keep(fd: c_int, kind: u32) -> *mut nonic_descriptor {
    // SAFETY: the library gives its descriptor away.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let internal = match kind {
        INTERNAL => true,
        SOCKET => SOCKETS_ARE_INTERNAL.load(Ordering::Relaxed),
        _ => false,
    };
    let kept: Box<InternalFd> = Box::new(match internal {
        true => fd.into(),
        false => InternalFd::seen_by_the_program(fd),
    });
    Box::into_raw(kept).cast()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_descriptor_number(descriptor: *const nonic_descriptor) -> c_int {
    // SAFETY: the library passes what it keeps.
    unsafe { &*descriptor.cast::<InternalFd>() }.as_raw_fd()
}

/// Whether the program has closed it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_descriptor_is_lost(descriptor: *const nonic_descriptor) -> c_int {
    // SAFETY: the library passes what it keeps.
    unsafe { &*descriptor.cast::<InternalFd>() }.is_lost().into()
}

/// Closes it, unless the program has.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_descriptor_close(descriptor: *mut nonic_descriptor) {
    // SAFETY: the library gives back what it kept, and does not use it again.
    drop(unsafe { Box::from_raw(descriptor.cast::<InternalFd>()) });
}

/// From now on rsockets have internal numbers.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nonic_descriptor_hide_sockets() {
    SOCKETS_ARE_INTERNAL.store(true, Ordering::Relaxed);
}

/// Whether a number is internal.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nonic_descriptor_is_internal(fd: c_int) -> c_int {
    descriptors::is_ours(fd).into()
}

/// The first internal number from this one on, or −1.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nonic_descriptor_next_internal(from: c_int) -> c_int {
    descriptors::next_of_ours(from).unwrap_or(-1)
}
