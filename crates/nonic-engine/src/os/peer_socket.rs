//! Unix sockets whose other end may be a process of another user.
//!
//! A sender can attach descriptors to everything that it writes to a Unix socket. The thread that frees the message closes
//! them: a reader that has no room for them, or the thread that closes the socket they wait in. Closing a file may take as
//! long as its maker likes: a TCP socket with `SO_LINGER` and unsent data, a file of a FUSE that does not answer. So we do
//! not read what another user wrote before it is known that nothing is attached ([`PeerSocket::refuse_descriptors`]). And
//! no thread that another waits for frees it (dropping a [`PeerSocket`], [`close_listener`]). This needs nothing of the
//! kernel that 5.10 does not have.
//!
//! `SO_PASSRIGHTS`, by which Linux 6.16 lets a socket refuse descriptors, is not used: most kernels in use lack it, and one
//! way that serves all of them is tested on all of them.

use super::descriptors::InternalFd;
use super::signals::with_signals_blocked;
use crate::socket::{Credentials, peer_credentials};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, Shutdown, SocketFlags};
use std::io::{IoSliceMut, Read};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the closing thread waits between two batches, so that a process that makes it busy uses little of a processor.
const PAUSE: Duration = Duration::from_millis(10);
/// Threads that close descriptors call nothing deep.
const STACK_BYTES: usize = 64 << 10;

/// A connected socket, and the process at its other end when it was connected.
#[derive(Debug)]
pub(crate) struct PeerSocket {
    fd: ManuallyDrop<InternalFd>,
    peer: Option<Credentials>,
    of_our_user: bool,
}

impl PeerSocket {
    /// One that is connected.
    pub(crate) fn new(fd: InternalFd) -> Self {
        let peer = peer_credentials(&fd).ok();
        let own = rustix::process::geteuid().as_raw();
        PeerSocket {
            of_our_user: peer.is_some_and(|peer| peer.uid == own),
            peer,
            fd: ManuallyDrop::new(fd),
        }
    }

    /// The process at its other end, if the kernel says.
    pub(crate) fn peer(&self) -> Option<Credentials> {
        self.peer
    }

    /// Whether a process of our user is at its other end.
    pub(crate) fn is_of_our_user(&self) -> bool {
        self.of_our_user
    }

    /// Looks at what a read of this many bytes would find, without waiting, and how many of them there are. [`Errno::BADMSG`] if
    /// descriptors are attached: then it must not be read.
    pub(crate) fn refuse_descriptors(&self, bytes: &mut [u8]) -> rustix::io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut pieces = [IoSliceMut::new(bytes)];
        // Looking at a message makes copies of its descriptors, and drops them for want of room. The message keeps its own, so
        // nothing is closed.
        let mut no_room = RecvAncillaryBuffer::default();
        let seen =
            rustix::io::retry_on_intr(|| rustix::net::recvmsg(&*self.fd, &mut pieces, &mut no_room, flags))?;
        match seen.flags.contains(ReturnFlags::CTRUNC) {
            true => Err(Errno::BADMSG),
            false => Ok(seen.bytes),
        }
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for PeerSocket {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        // SAFETY: `self` is being dropped, so its field is not used again.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        // What is inherited is not the last of its kind, and the parent goes on using it.
        let harmless = self.is_of_our_user() || fd.is_inherited() || fd.is_lost();
        if harmless || holds_no_descriptors(&fd) {
            drop(fd);
        } else {
            close_elsewhere(fd);
        }
    }
}

/// Closes a listening socket. Senders that wait to be accepted may have written already.
pub(crate) fn close_listener(listener: InternalFd) {
    if listener.is_inherited() || listener.is_lost() {
        return;
    }
    // From now on no sender can connect, so the loop ends. It listens; there is no other reason to fail.
    let _ = rustix::net::shutdown(&listener, Shutdown::Both);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        match rustix::net::accept_with(&listener, flags) {
            Ok(line) => drop(PeerSocket::new(line.into())),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            // Without a free descriptor, we cannot look which senders wait.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                return close_elsewhere(listener);
            }
            // No sender waits.
            Err(_) => return,
        }
    }
}

/// Whether a socket can be closed here, for no descriptor waits in it and none can come.
fn holds_no_descriptors(fd: &InternalFd) -> bool {
    // What is connected can be shut down.
    let _ = rustix::net::shutdown(fd, Shutdown::Read);
    let path = format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd());
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    let mut counts = text.lines().filter_map(|line| line.strip_prefix("scm_fds:"));
    // If in doubt, it is not closed here.
    read.is_ok() && counts.next().is_some_and(|count| count.trim() == "0")
}

/// What is to be closed by a thread that no other thread waits for.
struct Closing {
    waiting: Vec<InternalFd>,
    /// The process that has a thread for it.
    process: u32,
}

static CLOSING: Mutex<Closing> = Mutex::new(Closing {
    waiting: Vec::new(),
    process: 0,
});

fn closing() -> MutexGuard<'static, Closing> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes a descriptor soon, in a thread of its own. Without a thread to be had it stays open until one can be started.
fn close_elsewhere(fd: InternalFd) {
    let mut closing = closing();
    closing.waiting.push(fd);
    let process = std::process::id();
    if closing.process != process && spawn(close_all).is_some() {
        closing.process = process;
    }
}

fn close_all() {
    loop {
        let batch = {
            let mut closing = closing();
            let batch = std::mem::take(&mut closing.waiting);
            if batch.is_empty() {
                closing.process = 0;
                return;
            }
            batch
        };
        close_batch(batch);
        std::thread::sleep(PAUSE);
    }
}

/// Closes descriptors that may take long to close.
///
/// The kernel does not linger where a thread closes by ending. So a second thread takes a table of descriptors of its own,
/// which is a copy of the process's, and ends when the first has closed what it has in common with it: only then no table
/// has it, and what is attached is closed.
fn close_batch(batch: Vec<InternalFd>) {
    let (unshared, has_copy) = channel();
    let (_end, may_end) = sync_channel::<()>(0);
    let holder = spawn(move || {
        let _ = unshared.send(has_own_descriptors());
        // Until `_end` is dropped.
        let _ = may_end.recv();
    });
    if holder.is_some() && has_copy.recv() == Ok(true) {
        drop(batch);
        return;
    }
    for fd in batch {
        // Without a thread to be had this one closes it, and takes as long as that takes.
        let _ = spawn(move || drop(fd));
    }
}

/// Gives this thread a table of descriptors of its own. Whether that is possible.
fn has_own_descriptors() -> bool {
    // No descriptor has such a number, so none is closed. SAFETY: numbers are given to the kernel.
    let closed = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            u32::MAX - 1,
            u32::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    };
    // SAFETY: as above; no other thread loses a descriptor by it.
    closed == 0 || unsafe { libc::unshare(libc::CLONE_FILES) } == 0
}

fn spawn(run: impl FnOnce() + Send + 'static) -> Option<()> {
    let builder = std::thread::Builder::new()
        .name("nonic-close".to_owned())
        .stack_size(STACK_BYTES);
    with_signals_blocked(|| builder.spawn(run)).ok().map(drop)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::time::Instant;

    /// How long closing the descriptor takes the thread that closes it.
    const LINGER: u64 = 30;
    /// Much less than that, and more than a busy machine needs.
    const SOON: Duration = Duration::from_secs(10);

    /// A TCP connection with unsent data, whose last descriptor takes long to close; and its other end, which does not read.
    fn lingering() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("any port");
        let mut sender = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (reader, _) = listener.accept().expect("a connection");
        rustix::net::sockopt::set_socket_send_buffer_size(&sender, 1 << 16).expect("a socket");
        sender.set_nonblocking(true).expect("a socket");
        while sender.write(&[0; 1 << 16]).is_ok() {}
        let patience = Some(Duration::from_secs(LINGER));
        rustix::net::sockopt::set_socket_linger(&sender, patience).expect("a socket");
        (sender, reader)
    }

    fn pair(kind: SocketType) -> (OwnedFd, PeerSocket) {
        let (theirs, ours) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair");
        let mut ours = PeerSocket::new(ours.into());
        // Of another user.
        ours.of_our_user = false;
        (theirs, ours)
    }

    fn attach(line: &OwnedFd, message: &[u8], fd: BorrowedFd<'_>) {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        let pieces = [std::io::IoSlice::new(message)];
        rustix::net::sendmsg(line, &pieces, &mut ancillary, SendFlags::NOSIGNAL).expect("there is room");
    }

    /// Waits until the other end of the connection sees its end, which comes when all descriptors are closed.
    fn wait_until_closed(reader: &mut TcpStream) {
        reader.set_read_timeout(Some(SOON)).expect("a socket");
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).expect("its end comes");
    }

    #[test]
    fn what_has_descriptors_attached_is_refused_and_its_socket_closed_without_waiting() {
        for (kind, message) in [
            (SocketType::STREAM, &b"x"[..]),
            (SocketType::SEQPACKET, b"x"),
            (SocketType::SEQPACKET, b""),
        ] {
            let (theirs, ours) = pair(kind);
            let (sender, mut reader) = lingering();
            attach(&theirs, message, sender.as_fd());
            drop(sender);
            let began = Instant::now();
            assert_eq!(ours.refuse_descriptors(&mut [0; 8]), Err(Errno::BADMSG));
            drop(ours);
            assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
            wait_until_closed(&mut reader);
        }
    }

    #[test]
    fn descriptors_behind_other_messages_are_found() {
        let (theirs, ours) = pair(SocketType::SEQPACKET);
        let (sender, mut reader) = lingering();
        rustix::net::send(&theirs, b"", SendFlags::NOSIGNAL).expect("there is room");
        rustix::net::send(&theirs, b"x", SendFlags::NOSIGNAL).expect("there is room");
        attach(&theirs, b"y", sender.as_fd());
        drop(sender);
        assert_eq!(ours.refuse_descriptors(&mut [0; 8]), Ok(0));
        let began = Instant::now();
        drop((theirs, ours));
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        wait_until_closed(&mut reader);
    }

    #[test]
    fn what_has_none_is_read_and_closed_at_once() {
        let (theirs, ours) = pair(SocketType::SEQPACKET);
        rustix::net::send(&theirs, b"hello", SendFlags::NOSIGNAL).expect("there is room");
        let mut bytes = [0; 8];
        assert_eq!(ours.refuse_descriptors(&mut bytes), Ok(5));
        assert_eq!(&bytes[..5], b"hello");
        let number = ours.as_raw_fd();
        drop(ours);
        assert!(
            super::super::descriptors::Identity::of(number).is_none(),
            "it is closed"
        );
    }
}
