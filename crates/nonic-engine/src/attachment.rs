//! One of the device's addresses, and everything of the operating system that hangs on it.
//!
//! - its *own* socket, on a port of the kernel's choice: all packets leave from here, and peers on this host
//!   send here directly;
//! - the *seat* at port 4791: held by one process per address, which passes on what is for others;
//! - the *claims*: blocks of queue pair numbers that are ours, each with an inbox.

use crate::netdev::LocalAddress;
use crate::registry::{Block, BlockClaim, BlockName, Delivery, Message, Outbox, Seat};
use crate::socket::{Datagrams, WireSocket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// An address in use.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) address: LocalAddress,
    pub(crate) own: WireSocket,
    pub(crate) seat: Seat,
    pub(crate) claims: Vec<BlockClaim>,
    pub(crate) outbox: Outbox,
}

impl Attachment {
    pub(crate) fn new(address: LocalAddress, interface_index: u32, now_ns: u64) -> io::Result<Self> {
        let own = WireSocket::bind(address.with_port(0))?;
        // Not every interface carries multicast; sending to a group will say so.
        let _ = own.set_multicast_interface(interface_index);
        Ok(Attachment {
            address,
            own,
            seat: Seat::take(address, now_ns),
            claims: Vec::new(),
            outbox: Outbox::new()?,
        })
    }

    /// The name of our first inbox: where answers go.
    pub(crate) fn name(&self) -> Option<BlockName> {
        self.claims.first().map(BlockClaim::name)
    }

    /// Whether a queue pair number is ours.
    pub(crate) fn owns(&self, block: Block) -> bool {
        self.claims.iter().any(|claim| claim.block() == block)
    }

    /// Gives packets that came to port 4791 to the process that owns their queue pair. Whether one took it.
    pub(crate) fn hand_over(&self, block: Block, packets: &Datagrams<'_>) -> bool {
        let to = BlockName {
            address: self.address,
            block,
        };
        matches!(
            self.outbox.post(&to, &Message::Handover(*packets)),
            Ok(Delivery::Sent)
        )
    }

    /// Tells a process of this host where we listen.
    pub(crate) fn answer(&self, asked: &BlockClaim, reply_to: &BlockName, token: u64) {
        let udp_port = self.own.local_addr().port();
        let answer = Message::IAm {
            who: asked.name(),
            udp_port,
            token,
        };
        // Whoever asked and is gone, or does not read, takes the detour.
        let _ = self.outbox.post(reply_to, &answer);
    }

    /// Descriptors whose readability means work.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let seat = [self.seat.fd(), self.seat.socket().map(AsFd::as_fd)];
        let claims = self.claims.iter().map(AsFd::as_fd);
        std::iter::once(self.own.as_fd())
            .chain(seat.into_iter().flatten())
            .chain(claims)
    }
}
