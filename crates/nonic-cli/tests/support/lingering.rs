//! Descriptors that take long to close, attached to messages.

use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// How long a thread that closes the last of our descriptors waits, if it is fooled.
pub(crate) const LINGER: Duration = Duration::from_secs(60);
/// A TCP connection with unsent data: its last descriptor takes long to close. Its other end is kept and not read.
pub(crate) struct Lingering {
    listener: TcpListener,
    ends: Vec<TcpStream>,
}

impl Lingering {
    pub(crate) fn new() -> Self {
        Lingering {
            listener: TcpListener::bind("127.0.0.1:0").expect("any port"),
            ends: Vec::new(),
        }
    }

    fn make(&mut self) -> TcpStream {
        let address = self.listener.local_addr().expect("it is bound");
        let mut sender = TcpStream::connect(address).expect("it listens");
        // The kernel need not keep megabytes for it.
        rustix::net::sockopt::set_socket_send_buffer_size(&sender, 1 << 16).expect("a socket");
        self.ends.push(self.listener.accept().expect("it connected").0);
        sender.set_nonblocking(true).expect("a socket");
        while sender.write(&[0; 1 << 16]).is_ok() {}
        rustix::net::sockopt::set_socket_linger(&sender, Some(LINGER)).expect("a socket");
        sender
    }

    /// Attaches one to a message, and makes the message the last to have it.
    pub(crate) fn attach(&mut self, line: &OwnedFd, message: &[u8]) -> rustix::io::Result<()> {
        let sender = self.make();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [sender.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        let sent = rustix::net::sendmsg(
            line,
            &[IoSlice::new(message)],
            &mut ancillary,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
        // If the message was read and dropped already, closing takes us long, and not them.
        std::thread::spawn(move || drop(sender));
        sent.map(drop)
    }
}
