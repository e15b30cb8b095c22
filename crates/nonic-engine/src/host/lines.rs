//! Lines between processes: how one is made and written to, and how many this process keeps open.
//!
//! A line is a descriptor, and descriptors belong to the program: all lines together take at most a quarter of what it may
//! have ([`LineBudget`]). Senders of other users get a handful ([`Senders`]): they must not be able to use up what the
//! processes of this user need.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Resource, geteuid, getrlimit};

use super::message::Message;
use crate::os::descriptors::InternalFd;
use crate::os::peer_socket::PeerSocket;

/// A quarter of the descriptors that the program may have, but not more than this.
const MOST: usize = 4096;
/// Not fewer: with less, processes that talk to each other would open a line for every message.
const LEAST: usize = 8;
/// Lines that one other user may have to one inbox.
const PER_OTHER_USER: usize = 4;
/// Lines that all other users together may have to one inbox.
const ALL_OTHER_USERS: usize = 32;

/// The most descriptors that come with a message. More are closed by the kernel.
const MOST_DESCRIPTORS: usize = 2;

static OPEN: AtomicUsize = AtomicUsize::new(0);
static LIMIT: LazyLock<usize> = LazyLock::new(|| {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 4)
        .unwrap_or(MOST)
        .clamp(LEAST, MOST)
});

/// The right to keep one line open; given back when dropped.
#[derive(Debug)]
pub(super) struct LineBudget(());

impl LineBudget {
    /// One line more, if there is room.
    pub(super) fn take() -> Option<Self> {
        let limit = *LIMIT;
        let taken = OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
            (open < limit).then_some(open + 1)
        });
        taken.is_ok().then(|| LineBudget(()))
    }
}

impl Drop for LineBudget {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The lines of an inbox, counted by user.
#[derive(Debug, Default)]
pub(super) struct Senders {
    others: HashMap<u32, usize>,
}

impl Senders {
    /// Whether this user may keep one line more. If so, it is counted.
    pub(super) fn admit(&mut self, uid: u32) -> bool {
        if uid == geteuid().as_raw() {
            return true;
        }
        let all: usize = self.others.values().sum();
        let own = self.others.get(&uid).copied().unwrap_or(0);
        let admitted = own < PER_OTHER_USER && all < ALL_OTHER_USERS;
        if admitted {
            self.others.insert(uid, own + 1);
        }
        admitted
    }

    /// One of this user's lines has ended.
    pub(super) fn leave(&mut self, uid: u32) {
        if let Some(count) = self.others.get_mut(&uid) {
            *count -= 1;
            if *count == 0 {
                self.others.remove(&uid);
            }
        }
    }
}

/// A socket for packets, to be connected or listened on.
pub(super) fn new_socket() -> rustix::io::Result<InternalFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map(InternalFd::from)
}

/// Writes a message to a line, without waiting for room, and descriptors with it.
pub(super) fn send(
    line: &PeerSocket,
    message: &Message<'_>,
    fds: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let (header, payload) = message.encode();
    let pieces = [IoSlice::new(header.as_bytes()), IoSlice::new(payload)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(rustix::io::Errno::INVAL);
    }
    rustix::io::retry_on_intr(|| rustix::net::sendmsg(line, &pieces, &mut ancillary, flags)).map(drop)
}

/// Reads a message from a line, without waiting: how long it was, which may be more than fitted, and the descriptors that
/// came with it. [`rustix::io::Errno::BADMSG`] if another user has attached some: then nothing more can be read.
pub(super) fn receive(line: &PeerSocket, bytes: &mut [u8]) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    if !line.is_of_our_user() {
        line.refuse_descriptors(&mut [])?;
    }
    // TRUNC makes the kernel say how long the message was, not how much of it fitted.
    let flags = RecvFlags::TRUNC | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(bytes)];
    let received =
        rustix::io::retry_on_intr(|| rustix::net::recvmsg(line, &mut pieces, &mut ancillary, flags))?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok((received.bytes, fds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_user_has_a_handful_and_takes_nothing_from_the_rest() {
        let mut senders = Senders::default();
        let (own, stranger) = (geteuid().as_raw(), geteuid().as_raw() + 1);
        assert_eq!(
            (0..100).filter(|_| senders.admit(stranger)).count(),
            PER_OTHER_USER
        );
        assert!(senders.admit(stranger + 1), "a second stranger");
        assert!((0..100).all(|_| senders.admit(own)));
        senders.leave(stranger);
        assert!(senders.admit(stranger) && !senders.admit(stranger));
        let crowd = (2..1000).filter(|user| senders.admit(stranger + user)).count();
        assert_eq!(crowd + PER_OTHER_USER + 1, ALL_OTHER_USERS);
    }

    #[test]
    fn all_lines_together_leave_the_program_its_descriptors() {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let taken: Vec<LineBudget> = std::iter::from_fn(LineBudget::take).collect();
        assert!(
            taken.len() >= LEAST.min(*LIMIT) && taken.len() as u64 <= (descriptors / 4).max(LEAST as u64)
        );
        drop(taken);
        assert!(LineBudget::take().is_some());
    }
}
