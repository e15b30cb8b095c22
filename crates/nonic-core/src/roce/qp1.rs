//! Queue pair 1, the general services interface: sends and receives management datagrams.
//!
//! Every NIC has one from the beginning; programs can neither create nor destroy it. A datagram has 256 bytes and goes
//! as a UD SEND from queue pair 1 to queue pair 1 with a well-known queue key. Received datagrams wait in a queue until
//! the caller takes them ([`Nic::poll_management`](crate::Nic::poll_management)); datagrams to be sent wait in another
//! for their turn among the queue pairs. Both queues are bounded: management protocols repeat what is lost.
//!
//! Nothing here looks into a datagram. That is up to the manager behind queue pair 1: [`crate::cm`].

use nonic_wire::mad::{GSI_QKEY, MAD_LEN};
use nonic_wire::{Bth, Deth, Headers, ICRC_LEN, Opcode, Packet, Psn, Qpn};
use std::collections::VecDeque;
use std::net::IpAddr;

/// Datagrams that wait to be taken, at most. A datagram of 64 KiB that the kernel merged holds fewer.
const MAX_RECEIVED: usize = 1024;
/// Datagrams that wait to be sent, at most.
const MAX_TO_SEND: usize = 1024;

/// Where messages go and where they come from.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Route {
    /// Our address.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
}

/// A management datagram, to be sent or received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManagementDatagram {
    /// Between which addresses.
    pub route: Route,
    /// The datagram.
    pub mad: [u8; MAD_LEN],
}

/// Why a packet for queue pair 1 is not taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NotManagement {
    /// It is not a UD SEND of one packet.
    Opcode,
    /// It is of another partition.
    Partition,
    /// It does not have the queue key of queue pair 1.
    QueueKey,
    /// It does not have 256 bytes.
    Length,
}

/// The datagram that a packet for queue pair 1 carries. Says nothing about its ICRC.
pub fn management_datagram<'a>(packet: &Packet<'a>) -> Result<&'a [u8; MAD_LEN], NotManagement> {
    let headers = &packet.headers;
    if headers.bth.opcode != Opcode::UD_SEND_ONLY {
        return Err(NotManagement::Opcode);
    }
    if !headers.bth.is_default_partition() {
        return Err(NotManagement::Partition);
    }
    if headers.deth.qkey != GSI_QKEY {
        return Err(NotManagement::QueueKey);
    }
    packet.payload.try_into().map_err(|_| NotManagement::Length)
}

/// A NIC's queue pair 1.
#[derive(Debug, Default)]
pub(crate) struct Qp1 {
    next_psn: Psn,
    received: VecDeque<ManagementDatagram>,
    to_send: VecDeque<Outgoing>,
}

/// A datagram that waits for its turn.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) datagram: ManagementDatagram,
    /// Which queue pair [`Transmit::dest_qpn`](crate::Transmit::dest_qpn) names.
    pub(crate) dest_qpn: Qpn,
}

impl Qp1 {
    /// Keeps a datagram for the caller, unless too many wait already. Returns whether it did.
    pub(crate) fn receive(&mut self, datagram: ManagementDatagram) -> bool {
        let room = self.received.len() < MAX_RECEIVED;
        if room {
            self.received.push_back(datagram);
        }
        room
    }

    pub(crate) fn poll_received(&mut self) -> Option<ManagementDatagram> {
        self.received.pop_front()
    }

    #[inline]
    pub(crate) fn has_received(&self) -> bool {
        !self.received.is_empty()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.to_send.len() < MAX_TO_SEND
    }

    pub(crate) fn send(&mut self, outgoing: Outgoing) {
        self.to_send.push_back(outgoing);
    }

    pub(crate) fn next_to_send(&mut self) -> Option<Outgoing> {
        self.to_send.pop_front()
    }

    pub(crate) fn has_to_send(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// Datagrams that wait to be taken or sent.
    pub(crate) fn len(&self) -> usize {
        self.received.len() + self.to_send.len()
    }

    /// Writes a datagram as a packet whose ICRC is still to be computed; its length.
    pub(crate) fn write(&mut self, mad: &[u8; MAD_LEN], out: &mut [u8]) -> usize {
        let mut headers = Headers::new(Bth::new(Opcode::UD_SEND_ONLY, Qpn::GSI, self.next_psn));
        headers.deth = Deth {
            qkey: GSI_QKEY,
            src_qp: Qpn::GSI,
        };
        self.next_psn = self.next_psn.next();
        let start = headers.emit(out);
        let end = start + MAD_LEN;
        out[start..end].copy_from_slice(mad);
        end + ICRC_LEN
    }

    /// Empties both queues: the link is gone, and no caller takes what came.
    pub(crate) fn clear(&mut self) {
        self.received.clear();
        self.to_send.clear();
    }
}
