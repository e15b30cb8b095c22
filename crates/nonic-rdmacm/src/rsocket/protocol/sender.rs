//! The sending half: where the next bytes go, and whether they may.

use super::{Carrier, Message, Piece, Segment, TARGETS, pieces};
use std::collections::VecDeque;

/// Less room than this in the send buffer is no room: better to wait than to send crumbs.
pub(crate) const LOW_WATER: u32 = 2048;

/// A write to post: from these parts of the send buffer to there.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) from: [Piece; 2],
    pub(crate) to: Segment,
    /// What the peer is told; `None` for bytes that go to a mapped buffer unannounced.
    pub(crate) message: Option<Message>,
}

impl Write {
    pub(crate) fn length(&self) -> u32 {
        self.to.length
    }
}

/// The list of targets, which the peer writes to at any time.
pub(crate) trait TargetList {
    /// An entry; one without length is empty, also if it is being written.
    fn read(&mut self, index: usize) -> Segment;

    /// Empties an entry that was not empty. The peer leaves such a one alone until its target was used up.
    fn clear(&mut self, index: usize);
}

/// What is left to send with.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Messages sent, and how far they may count.
    sequence: u16,
    limit: u16,
    /// Credits kept for words that are not data.
    reserved: u16,
    carrier: Carrier,
    /// Work requests that may still be posted.
    slots: u16,
    /// The send buffer, a ring: bytes leave it in the order they came.
    size: u32,
    at: u32,
    room: u32,
    targets: VecDeque<Segment>,
    /// The entry of the list where the next target will appear.
    next_target: usize,
}

impl Sender {
    /// `slots` work requests can be under way; the peer said how many messages and gave a first target.
    pub(crate) fn new(carrier: Carrier, slots: u16, size: u32, credits: u16, target: Segment) -> Self {
        let mut sender = Sender {
            sequence: 0,
            limit: credits,
            reserved: carrier.reserved_credits(credits),
            carrier,
            slots,
            size,
            at: 0,
            room: size,
            targets: VecDeque::with_capacity(TARGETS),
            next_target: 0,
        };
        sender.add_target(target);
        sender
    }

    fn add_target(&mut self, target: Segment) {
        if target.length > 0 {
            self.targets.push_back(target);
        }
        self.next_target = (self.next_target + 1) % TARGETS;
    }

    /// Whether a write would be let through.
    pub(crate) fn can_send(&self) -> bool {
        let credits = self.limit.wrapping_sub(self.sequence);
        self.has_slots(self.carrier.work_requests(true))
            && credits > self.reserved
            && !self.targets.is_empty()
    }

    /// Whether bytes for a mapped buffer would be let through: they are not announced, so they need no credit.
    pub(crate) fn can_send_directly(&self) -> bool {
        self.has_slots(1)
    }

    fn has_slots(&self, needed: u16) -> bool {
        self.slots >= needed && self.room >= LOW_WATER.min(self.size)
    }

    /// Takes room for up to `wanted` bytes of the stream.
    pub(crate) fn send(&mut self, wanted: u32) -> Option<Write> {
        if !self.can_send() || wanted == 0 {
            return None;
        }
        let target = self.targets.front_mut()?;
        let length = wanted.min(self.room).min(target.length);
        let to = Segment { length, ..*target };
        target.address = target.address.wrapping_add(u64::from(length));
        target.length -= length;
        if target.length == 0 {
            self.targets.pop_front();
        }
        self.sequence = self.sequence.wrapping_add(1);
        Some(self.write(to, Some(Message::Data(length))))
    }

    /// Takes room for up to `to.length` bytes for a mapped buffer.
    pub(crate) fn send_directly(&mut self, to: Segment) -> Option<Write> {
        if !self.can_send_directly() || to.length == 0 {
            return None;
        }
        let length = to.length.min(self.room);
        Some(self.write(Segment { length, ..to }, None))
    }

    /// Takes room for a record about our mapped buffer number `index`.
    pub(crate) fn send_iomapping(&mut self, to: Segment, index: u16) -> Option<Write> {
        if !self.can_send() {
            return None;
        }
        self.sequence = self.sequence.wrapping_add(1);
        Some(self.write(to, Some(Message::Iomap(index))))
    }

    fn write(&mut self, to: Segment, message: Option<Message>) -> Write {
        let from = pieces(self.size, self.at, to.length);
        self.at = (self.at + to.length) % self.size;
        self.room -= to.length;
        let write = Write { from, to, message };
        self.slots -= self.work_requests(&write);
        write
    }

    /// How many work requests a write is posted as.
    pub(crate) fn work_requests(&self, write: &Write) -> u16 {
        match write.message {
            Some(_) => self.carrier.work_requests(true),
            None => 1,
        }
    }

    /// A write of this length, which was so many work requests, is done: its room is free.
    pub(crate) fn sent(&mut self, length: u32, work_requests: u16) {
        self.slots += work_requests;
        self.room += length;
    }

    /// The peer renewed credits and perhaps wrote a target to our list.
    pub(crate) fn renewed(&mut self, limit: u16, list: &mut impl TargetList) {
        self.limit = limit;
        if self.targets.len() == TARGETS {
            return;
        }
        // Each target comes with a word of its own, so there is no need to look further.
        let index = self.next_target;
        let target = list.read(index);
        if target.length > 0 {
            // Only now: the peer may be writing to an entry that was found empty.
            list.clear(index);
            self.add_target(target);
        }
    }
}
