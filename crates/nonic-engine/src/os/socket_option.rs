//! Socket options that are an integer and that no safe wrapper covers.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets an option.
pub(crate) fn set(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the borrow, and the pointer and length describe
    // `value`, which outlives the call; the kernel only reads it.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
