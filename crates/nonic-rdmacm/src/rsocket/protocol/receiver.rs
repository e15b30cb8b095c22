//! The receiving half: what is in the ring, and what the peer may write to it next.
//!
//! The ring is given away in halves. The peer has one from the start; the other, and each half that has been read
//! since, is announced to it. It fills a half before it begins the next, so the stream is contiguous in the ring.

use super::{Hello, Message, Piece, Segment, Violation, pieces};
use std::collections::VecDeque;

/// New credits, with a new target if one is due.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) message: Message,
    /// What to write, and where in the peer's memory.
    pub(crate) target: Option<(Segment, u64)>,
}

/// What has been received, and what may be.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// The ring: its place in our memory as the peer names it, and its size.
    ring: Segment,
    /// The next byte to read, and how many there are.
    at: u32,
    unread: u32,
    /// What is left to read of each message.
    messages: VecDeque<u32>,
    /// How many messages there is room for.
    queue: u16,
    /// Messages read, and when that is to be announced.
    sequence: u16,
    announce_at: u16,
    /// Bytes the peer may still write.
    granted: u32,
    /// Bytes that were read and not announced yet, and where they are.
    free: u32,
    free_at: u32,
    /// The peer's list of targets (its length is counted in entries), and the entry that is next.
    list: Segment,
    next_target: u32,
}

impl Receiver {
    /// The first half of the ring is the peer's already.
    pub(crate) fn new(queue: u16, ring: Segment, peer: &Hello) -> Self {
        let half = ring.length / 2;
        Receiver {
            ring,
            at: 0,
            unread: 0,
            messages: VecDeque::new(),
            queue,
            sequence: 0,
            announce_at: queue / 2,
            granted: half,
            free: half,
            free_at: half,
            list: peer.targets,
            next_target: 1,
        }
    }

    fn half(&self) -> u32 {
        self.ring.length / 2
    }

    /// The peer says it wrote so many bytes.
    pub(crate) fn received(&mut self, length: u32) -> Result<(), Violation> {
        if length > self.granted {
            return Err(Violation::Space);
        }
        if self.messages.len() >= usize::from(self.queue) {
            return Err(Violation::Credits);
        }
        if length == 0 {
            // The program will not read it, so it counts as read.
            self.noticed();
            return Ok(());
        }
        self.granted -= length;
        self.unread += length;
        self.messages.push_back(length);
        Ok(())
    }

    /// A message came that is read by being received.
    pub(crate) fn noticed(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// How many bytes there are to read.
    pub(crate) fn unread(&self) -> u32 {
        self.unread
    }

    /// Where the next `length` bytes are; fewer if there are fewer.
    pub(crate) fn peek(&self, length: u32) -> [Piece; 2] {
        pieces(self.ring.length, self.at, length.min(self.unread))
    }

    /// So many bytes, at most those of [`peek`](Self::peek), were read.
    pub(crate) fn read(&mut self, length: u32) {
        let length = length.min(self.unread);
        self.unread -= length;
        self.free += length;
        self.at = (self.at + length) % self.ring.length;
        let mut left = length;
        while let Some(first) = self.messages.front_mut() {
            if *first > left {
                *first -= left;
                break;
            }
            left -= *first;
            self.messages.pop_front();
            self.sequence = self.sequence.wrapping_add(1);
        }
    }

    /// Whether the peer should hear of room.
    pub(crate) fn is_due(&self) -> bool {
        self.free >= self.half() || self.sequence.wrapping_sub(self.announce_at) as i16 >= 0
    }

    /// What to tell it. It counts as told.
    pub(crate) fn announce(&mut self) -> Announcement {
        self.announce_at = self.sequence.wrapping_add(self.queue / 2);
        let message = Message::Credits(self.sequence.wrapping_add(self.queue));
        let half = self.half();
        if self.free < half {
            return Announcement {
                message,
                target: None,
            };
        }
        let target = Segment {
            address: self.ring.address + u64::from(self.free_at),
            length: half,
            ..self.ring
        };
        let entry = u64::from(self.next_target) * Segment::LEN as u64;
        self.free -= half;
        self.free_at = (self.free_at + half) % self.ring.length;
        self.granted += half;
        self.next_target = (self.next_target + 1) % self.list.length;
        Announcement {
            message,
            target: Some((target, self.list.address.wrapping_add(entry))),
        }
    }
}
