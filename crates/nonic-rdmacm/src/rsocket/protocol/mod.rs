//! The protocol of rsockets without any input or output: what is said, and when.
//!
//! A stream is carried by RDMA WRITEs into a ring of the receiver's. Each write ends in a word ([`Message`]) that says
//! what it was, as immediate data or, over iWARP, in a SEND behind it ([`Carrier`]). Two things limit a sender:
//! *credits* (how many words the receiver has room to remember) and *targets* (pieces of the ring it may write to). The
//! receiver renews both by writing a new piece into a short list in the sender's memory, followed by a word.
//!
//! The formats are those of rdma-core, so that the other end may be its librdmacm. Nothing here calls a verb, reads a
//! clock or has memory of its own: a [`Stream`] names offsets and addresses, and its owner moves the bytes. So the
//! tests run two of them against each other without a device. Nothing here trusts the peer: what it says is checked,
//! and what breaks a rule ends the connection ([`Violation`]).
//!
//! Read first: [`Stream`], then [`Sender`] and [`Receiver`], its two halves. Datagrams are another protocol: [`datagram`].

mod carrier;
pub(crate) mod datagram;
mod hello;
mod message;
mod receiver;
mod sender;
mod stream;

pub(crate) use carrier::Carrier;
pub(crate) use hello::{Hello, Iomapping, Segment, nearest_iomap_size};
pub(crate) use message::Message;
pub(crate) use receiver::{Announcement, Receiver};
pub(crate) use sender::{LOW_WATER, Sender, TargetList, Write};
pub(crate) use stream::{Control, Ending, Sizes, Stream};

/// Work requests kept back for messages that are not data, so that these never wait for data.
pub(crate) const CONTROL_SLOTS: u16 = 4;

/// How many entries a list of targets has.
pub(crate) const TARGETS: usize = 2;

/// The peer broke the protocol.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// It wrote more than it was given room for.
    Space,
    /// It sent more messages than it had credits for.
    Credits,
    /// It said something that has no meaning.
    Meaning,
}

/// A part of a ring.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

/// The two parts (the second often empty) that `length` bytes from `offset` on have in a ring of `size` bytes.
pub(crate) fn pieces(size: u32, offset: u32, length: u32) -> [Piece; 2] {
    let first = length.min(size - offset);
    [
        Piece {
            offset,
            length: first,
        },
        Piece {
            offset: 0,
            length: length - first,
        },
    ]
}
