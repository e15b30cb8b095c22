//! Bells: wake-up calls between processes that do not trust each other.
//!
//! An eventfd is for friends. All processes that have a descriptor of it share what is behind it. A process that clears
//! `O_NONBLOCK`, or passes something else in its place, makes the next call of every other process block for good. A
//! process that reads it takes the calls that were for another.
//!
//! A [`Bell`] is a datagram socket that no other process has a descriptor of. A process that may ring it gets a socket of
//! its own that leads there ([`BellRinger`]), with which it cannot spoil the sockets of others. Of the datagrams only their
//! presence matters: the kernel decides how many can wait, and when there is no room for another one the bell is as rung as
//! can be. It does not show when a ringer is closed or shut down. No call blocks, whatever flags another process has set on
//! the descriptor.
//!
//! The bell has a name of the kernel's choice, so any process of the network namespace that finds that name can ring it.
//! That has the effect of a packet to our UDP socket: we are awake for a moment.

use crate::os::descriptors::InternalFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Calls that one [`Bell::drain`] takes. A few more than can wait as kernels are configured; a process that gets the kernel
/// to hold more of them wakes us more often.
const MOST_CALLS: usize = 16;

/// What wakes us: readable from the first call until the next [`drain`](Self::drain).
#[derive(Debug)]
pub(crate) struct Bell(InternalFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let socket = socket()?;
        rustix::net::bind(&socket, &SocketAddrUnix::new_unnamed())?;
        Ok(Bell(socket.into()))
    }

    /// A descriptor to ring it by, for one other process.
    pub(crate) fn ringer(&self) -> io::Result<OwnedFd> {
        let ringer = socket()?;
        rustix::net::connect(&ringer, &rustix::net::getsockname(&self.0)?)?;
        Ok(ringer)
    }

    /// Makes it unreadable. If the program has closed it, what is in its place is not touched.
    pub(crate) fn drain(&self) {
        if self.0.is_lost() {
            return;
        }
        for _ in 0..MOST_CALLS {
            let mut call = [0];
            match rustix::net::recv(&self.0, &mut call, RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What wakes another process.
#[derive(Debug)]
pub(crate) struct BellRinger(InternalFd);

impl BellRinger {
    /// What another process has given us to wake it by, if it is something of the kind.
    pub(crate) fn of_another(fd: OwnedFd) -> Option<Self> {
        // Writing to other things may wait however it is asked for, or do something else altogether.
        let domain = rustix::net::sockopt::socket_domain(&fd).ok()?;
        (domain == AddressFamily::UNIX).then(|| BellRinger(fd.into()))
    }

    /// Rings. A process that does not hear it is gone, or finds out by itself.
    pub(crate) fn ring(&self) {
        if !self.0.is_lost() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::io::retry_on_intr(|| rustix::net::send(&self.0, &[0], flags));
        }
    }
}

impl AsFd for BellRinger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{OFlags, fcntl_setfl};

    fn is_rung(bell: &Bell) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&now)).expect("poll works") == 1
    }

    fn bell() -> (Bell, BellRinger) {
        let bell = Bell::new().expect("a socket");
        let ringer = bell.ringer().expect("a socket");
        (bell, BellRinger::of_another(ringer).expect("one of ours"))
    }

    #[test]
    fn calls_merge_until_drained() {
        let (bell, ringer) = bell();
        assert!(!is_rung(&bell));
        bell.drain();
        for _ in 0..100 {
            ringer.ring();
        }
        assert!(is_rung(&bell));
        bell.drain();
        assert!(!is_rung(&bell));
        ringer.ring();
        assert!(is_rung(&bell));
    }

    /// With an eventfd, draining or ringing would not return.
    #[test]
    fn nobody_can_make_it_wait() {
        let (bell, ringer) = bell();
        fcntl_setfl(&ringer, OFlags::empty()).expect("our own");
        bell.drain();
        for _ in 0..100 {
            ringer.ring();
        }
        bell.drain();
        assert!(!is_rung(&bell));
    }

    #[test]
    fn what_one_ringer_does_is_nothing_to_the_others() {
        let (bell, ringer) = bell();
        let hostile = bell.ringer().expect("a socket");
        let _ = rustix::net::recv(&hostile, &mut [0; 8], RecvFlags::DONTWAIT);
        rustix::net::shutdown(&hostile, rustix::net::Shutdown::Both).expect("our own");
        assert!(!is_rung(&bell), "its end does not show");
        drop(hostile);
        assert!(!is_rung(&bell), "nor that it is closed");
        ringer.ring();
        assert!(is_rung(&bell));
    }

    #[test]
    fn what_is_no_bell_is_not_rung() {
        let (pipe, _other) = rustix::pipe::pipe().expect("a pipe");
        assert!(BellRinger::of_another(pipe).is_none());
        let network = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(BellRinger::of_another(network.into()).is_none());
        let (bell, ringer) = bell();
        drop(bell);
        // No process hears it.
        ringer.ring();
    }
}
