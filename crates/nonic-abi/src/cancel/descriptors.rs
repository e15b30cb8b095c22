//! A wait for descriptors: the thread sleeps in `poll`.

use super::{CancellableWait, poll};
use crate::errno::{self, Errno, expected};
use crate::eventfd;
use libc::{c_int, nfds_t, pollfd};
use std::os::fd::RawFd;

/// Up to `N` descriptors. The wait ends when one of them can be read.
#[derive(Copy, Clone)]
pub struct Descriptors<const N: usize> {
    fds: [pollfd; N],
    count: usize,
}

impl<const N: usize> Descriptors<N> {
    /// One that is the program's, and those through which something may come for it.
    pub fn new(own: RawFd, others: &[RawFd]) -> Self {
        let mut fds = [readable(-1); N];
        let all = std::iter::once(&own).chain(others);
        for (place, fd) in fds.iter_mut().zip(all) {
            *place = readable(*fd);
        }
        Descriptors {
            fds,
            count: N.min(1 + others.len()),
        }
    }
}

impl<const N: usize> CancellableWait for Descriptors<N> {
    #[inline(always)]
    fn wait(mut self) -> Result<(), c_int> {
        // SAFETY: so many structures of ours.
        match unsafe { poll(self.fds.as_mut_ptr(), self.count as nfds_t, -1) } {
            0.. => Ok(()),
            _ => Err(errno::last()),
        }
    }
}

fn readable(fd: RawFd) -> pollfd {
    pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Takes something, or finds that the program must wait for the descriptor, unless that is non-blocking.
pub fn take<T>(fd: RawFd, take: impl FnOnce() -> Option<T>) -> Result<Result<T, RawFd>, Errno> {
    if let Some(item) = take() {
        return Ok(Ok(item));
    }
    match eventfd::is_nonblocking(fd)? {
        true => Err(expected(libc::EAGAIN)),
        false => Ok(Err(fd)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn any_of_the_descriptors_ends_the_wait() {
        let [quiet, ready] = [0, 0].map(|flags| eventfd::new(flags).expect("an eventfd"));
        eventfd::signal(ready.as_raw_fd());
        let [quiet, ready] = [&quiet, &ready].map(AsRawFd::as_raw_fd);
        assert_eq!(Descriptors::<2>::new(ready, &[quiet]).wait(), Ok(()));
        assert_eq!(Descriptors::<2>::new(quiet, &[ready]).wait(), Ok(()));
    }

    #[test]
    fn what_does_not_block_is_not_waited_for() {
        let blocking = eventfd::new(0).expect("an eventfd");
        let fd = blocking.as_raw_fd();
        assert_eq!(take(fd, || Some(7)), Ok(Ok(7)));
        assert_eq!(take::<u8>(fd, || None), Ok(Err(fd)));
        let nonblocking = eventfd::new(libc::EFD_NONBLOCK).expect("an eventfd");
        let taken = take::<u8>(nonblocking.as_raw_fd(), || None);
        assert!(taken.is_err_and(|errno| errno.is(libc::EAGAIN)));
    }
}
