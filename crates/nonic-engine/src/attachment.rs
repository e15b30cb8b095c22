//! One of the device's addresses, and everything of the operating system that hangs on it.
//!
//! - its *own* socket, on a port of the kernel's choice: all packets leave from here, and peers on this host
//!   send here directly;
//! - the *seat* at port 4791: held by one process per address, which passes on what is for others;
//! - the *claims*: blocks of queue pair numbers that are ours, each with an inbox;
//! - the *services*: what we listen on, each with an inbox for requests to connect.

use crate::netdev::LocalAddress;
use crate::registry::{
    Block, BlockClaim, BlockName, Delivery, Inbox, Message, Outbox, Seat, ServiceClaim, ServiceName,
};
use crate::socket::{Datagrams, WireSocket};
use nonic_core::cm::ListenerId;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// An address in use.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) address: LocalAddress,
    pub(crate) own: WireSocket,
    pub(crate) seat: Seat,
    pub(crate) claims: Vec<BlockClaim>,
    pub(crate) services: Vec<(ListenerId, ServiceClaim)>,
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
            services: Vec::new(),
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
    pub(crate) fn hand_over(&mut self, block: Block, packets: &Datagrams<'_>) -> bool {
        let to = BlockName {
            address: self.address,
            block,
        };
        matches!(
            self.outbox.post(to, &Message::Handover(*packets)),
            Ok(Delivery::Sent)
        )
    }

    /// Tells a process of this host where we listen.
    pub(crate) fn answer(&mut self, asked: BlockName, reply_to: BlockName, token: u64) {
        let udp_port = self.own.local_addr().port();
        let answer = Message::IAm {
            who: asked,
            udp_port,
            token,
        };
        // Whoever asked and is gone, or does not read, takes the detour.
        let _ = self.outbox.post(reply_to, &answer);
    }

    /// Everything other processes of this host write to.
    pub(crate) fn inboxes(&self) -> impl Iterator<Item = &Inbox> {
        let blocks = self.claims.iter().map(BlockClaim::inbox);
        blocks.chain(self.services.iter().map(|(_, claim)| claim.inbox()))
    }

    /// Gives a request that came to port 4791 to the process that listens on its service. Whether one took it.
    pub(crate) fn hand_request_over(&mut self, service_id: u64, packets: &Datagrams<'_>) -> bool {
        let to = ServiceName {
            address: self.address,
            service_id,
        };
        matches!(
            self.outbox.post(to, &Message::Handover(*packets)),
            Ok(Delivery::Sent | Delivery::Full)
        )
    }

    /// Whether we listen on a service here.
    pub(crate) fn serves(&self, service_id: u64) -> bool {
        self.services
            .iter()
            .any(|(_, claim)| claim.name().service_id == service_id)
    }

    /// Descriptors whose readability means work.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let seat = [self.seat.fd(), self.seat.socket().map(AsFd::as_fd)];
        let inboxes = self.inboxes().map(AsFd::as_fd);
        [self.own.as_fd(), self.outbox.as_fd()]
            .into_iter()
            .chain(seat.into_iter().flatten())
            .chain(inboxes)
    }
}
