//! Carriers: how words reach the peer, which depends on what its device can do.

use super::CONTROL_SLOTS;

/// How a [`Message`](super::Message) reaches the peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// As the immediate data of an RDMA WRITE.
    Immediate,
    /// As a SEND of its own, behind the RDMA WRITE that it is about. So it is on iWARP, where rdma-core expects no device to have
    /// immediate data.
    Send,
}

impl Carrier {
    /// How many work requests a message takes, with or without bytes to be written before it.
    pub(crate) fn work_requests(self, has_write: bool) -> u16 {
        match self {
            Carrier::Immediate => 1,
            Carrier::Send => 1 + u16::from(has_write),
        }
    }

    /// How many of a peer's credits data leaves alone. Words that are not data need no credit, but they take receives. A device with
    /// immediate data waits for a receive; over iWARP a connection ends when there is none.
    pub(crate) fn reserved_credits(self, credits: u16) -> u16 {
        match self {
            Carrier::Immediate => 0,
            // A peer renews credits when half are used, so most of them have to be.
            Carrier::Send => CONTROL_SLOTS.min(credits / 4),
        }
    }

    /// How many receives there are besides those that the peer has credits for. A peer that is rdma-core's leaves no credits alone, and
    /// says that it ends after all others are used.
    pub(crate) fn spare_receives(self) -> u16 {
        match self {
            Carrier::Immediate => 0,
            Carrier::Send => 2 * CONTROL_SLOTS,
        }
    }
}
