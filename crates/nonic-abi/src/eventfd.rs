//! Event descriptors (eventfd): readable while there is something to take.

use crate::errno::{self, Errno};
use libc::c_int;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// A new one that cannot be read yet, with these flags of `eventfd` (`EFD_NONBLOCK` or none). Closed on `exec`, so that
/// another program does not inherit it.
pub fn new(flags: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::eventfd(0, flags | libc::EFD_CLOEXEC) };
    match fd {
        0.. => {
            // SAFETY: just opened, and nothing else owns it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(errno::of_system("eventfd")),
    }
}

/// Makes it readable. It fails only if it has been signalled 2⁶⁴ times and never drained.
pub fn signal(fd: RawFd) {
    // SAFETY: no memory of ours is involved; a descriptor that is no eventfd refuses.
    unsafe { libc::eventfd_write(fd, 1) };
}

/// Makes it unreadable. Never waits, even if it is in blocking mode and another reader was faster.
pub fn drain(fd: RawFd) {
    let mut count = 0_u64;
    let place = libc::iovec {
        iov_base: (&raw mut count).cast(),
        iov_len: size_of::<u64>(),
    };
    // SAFETY: the number goes to our variable.
    let taken = unsafe { libc::preadv2(fd, &raw const place, 1, -1, libc::RWF_NOWAIT) };
    // Linux before 5.8 knows no such read of an eventfd.
    if taken < 0 && errno::last() == libc::EOPNOTSUPP && is_readable(fd) {
        // SAFETY: as above.
        unsafe { libc::read(fd, (&raw mut count).cast(), size_of::<u64>()) };
    }
}

fn is_readable(fd: RawFd) -> bool {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure of ours.
    unsafe { libc::poll(&raw mut polled, 1, 0) > 0 }
}

/// Whether the program has made a descriptor non-blocking: then no call may wait for it on the program's behalf.
pub fn is_nonblocking(fd: RawFd) -> Result<bool, Errno> {
    // SAFETY: asks about a descriptor, no memory is involved.
    match unsafe { libc::fcntl(fd, libc::F_GETFL) } {
        flags @ 0.. => Ok(flags & libc::O_NONBLOCK != 0),
        _ => Err(errno::of_system("fcntl of the descriptor of events")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn signals_merge_until_drained_and_draining_never_waits() {
        for flags in [0, libc::EFD_NONBLOCK] {
            let event = new(flags).expect("an eventfd");
            let fd = event.as_raw_fd();
            assert_eq!(is_nonblocking(fd), Ok(flags != 0));
            assert!(!is_readable(fd));
            drain(fd);
            signal(fd);
            signal(fd);
            assert!(is_readable(fd));
            drain(fd);
            assert!(!is_readable(fd));
        }
        assert!(is_nonblocking(-1).is_err_and(|errno| errno.is(libc::EBADF)));
    }
}
