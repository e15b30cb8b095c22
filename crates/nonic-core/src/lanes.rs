//! Lanes: how requests to a process of this host are carried, in place of packets.
//!
//! A lane leads from one NIC to another, through memory that both have. It holds *records*. A record is a request: a header
//! (`roce::local::header`) and payload of any length. The reader executes the records of a lane one after the other,
//! writes into each how it went ([`RecordAnswer`]), and gives it back. So a record arrives exactly once and in order, and nothing is
//! acknowledged: what was given back was executed, or says why not. (Messages of unreliable services are given back whatever became
//! of them.)
//!
//! An embedder that has such memory (`nonic-engine`, or a simulator) implements [`Lanes`] and gives it to the NIC. It passes on what it
//! finds: records that came ([`Nic::handle_record`](crate::Nic::handle_record)), answers ([`Nic::handle_answers`](crate::Nic::handle_answers))
//! and the end of a lane ([`Nic::lane_ended`](crate::Nic::lane_ended)).
//!
//! The process at the other end is trusted as much as the network is. What it writes is parsed and checked as a packet would be.
//!
//! Nothing here moves a byte. When a record is written, and what its answer leads to, is in `roce::local` and, for unreliable services, in
//! `roce::sender`.

use nonic_wire::{NakCode, Qpn};
use std::net::IpAddr;

/// A lane that a NIC writes to. A number is not used again for another.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct LaneId(pub u32);

/// The lanes that a NIC writes to.
pub trait Lanes: Send {
    /// The lane from one of our addresses to the process that has a queue pair at another, if there is one. What comes through it is
    /// from that address to the reader.
    fn find(&mut self, local: IpAddr, remote: IpAddr, qpn: Qpn) -> Option<LaneId>;

    /// Room for one more record of this length; `None` if there is none now.
    fn room(&mut self, lane: LaneId, bytes: usize) -> Option<&mut [u8]>;

    /// Shows the reader the record that was written to the room asked for last. The request takes its first `request` bytes; the rest is
    /// for the answer. `tag` comes back with the answer, from memory that the reader cannot change.
    fn publish(&mut self, lane: LaneId, request: usize, tag: RecordTag);

    /// Whether [`Lanes::take_answer`] may have one. Who polls asks this most of the time.
    fn has_answer(&mut self) -> bool {
        true
    }

    /// The oldest record of a lane that its reader has given back, of whichever lane has one. It is forgotten with the next call.
    fn take_answer(&mut self) -> Option<Answered<'_>>;

    /// Whether a record was written, since this was asked last, to a lane that leads back to this NIC.
    fn wrote_to_itself(&mut self) -> bool {
        false
    }

    /// A lane has ended: nothing is written to it any more.
    fn close(&mut self, lane: LaneId);
}

/// Whose record it is, and of which attempt of its queue pair.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecordTag {
    /// The queue pair that wrote it.
    pub qpn: Qpn,
    /// Counts how often that queue pair went back.
    pub attempt: u32,
}

/// A record that its reader has given back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Answered<'a> {
    /// What was passed when it was published.
    pub tag: RecordTag,
    /// How it went.
    pub answer: RecordAnswer,
    /// What stands behind the request.
    pub bytes: &'a [u8],
}

/// What became of a record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RecordAnswer {
    /// It was executed. What a READ asked for stands in the record.
    Executed,
    /// An atomic was executed; what the word was before.
    Fetched(u64),
    /// No receive was posted for it, and nothing happened. Come again after this time: a 5-bit code.
    NotReady(u8),
    /// It was refused for good.
    Refused(NakCode),
    /// Nothing happened: the queue pair does not receive yet.
    Ignored,
    /// Nothing happened: the queue pair expects a record of another number. It does not say which: a forger must guess.
    Unexpected,
    /// Nothing happened: the queue pair was destroyed.
    Gone,
    /// Nothing happened: the bytes that the record names cannot be fetched. They must come with it.
    Unreadable,
}

impl RecordAnswer {
    /// Two words that stand for it, in memory that processes share. Zeros stand for [`RecordAnswer::Executed`].
    pub fn to_words(self) -> (u32, u64) {
        match self {
            RecordAnswer::Executed => (0, 0),
            RecordAnswer::Fetched(word) => (1, word),
            RecordAnswer::NotReady(timer) => (2, u64::from(timer)),
            RecordAnswer::Refused(code) => (3, u64::from(code.value())),
            RecordAnswer::Ignored => (4, 0),
            RecordAnswer::Gone => (5, 0),
            RecordAnswer::Unexpected => (6, 0),
            RecordAnswer::Unreadable => (7, 0),
        }
    }

    /// What two words stand for. Whatever else a process writes there is taken for a refusal: it harms its own connection.
    pub fn from_words((kind, word): (u32, u64)) -> Self {
        match kind {
            0 => RecordAnswer::Executed,
            1 => RecordAnswer::Fetched(word),
            2 => RecordAnswer::NotReady(word as u8 & 0x1f),
            4 => RecordAnswer::Ignored,
            5 => RecordAnswer::Gone,
            6 => RecordAnswer::Unexpected,
            7 => RecordAnswer::Unreadable,
            _ => RecordAnswer::Refused(NakCode::from_value(word as u8 & 0x1f)),
        }
    }

    /// Whether the record was executed.
    pub(crate) fn is_executed(self) -> bool {
        matches!(self, RecordAnswer::Executed | RecordAnswer::Fetched(_))
    }
}
