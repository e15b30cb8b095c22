//! A connected stream: both halves, the messages about them, and how it ends.
//!
//! Its owner posts what [`Stream::send`] and [`Stream::next_control`] yield, in that order, and reports each
//! completion: [`Stream::handle_sent`] for its own writes, in the order they were posted (once for each, also if its
//! word is a work request of its own), and [`Stream::handle_message`] for the words that arrive. After each of these
//! [`Stream::next_control`] may have something new.

use super::{
    Announcement, CONTROL_SLOTS, Carrier, Hello, Message, Piece, Receiver, Segment, Sender, TargetList,
    Violation, Write,
};
use std::collections::VecDeque;

/// How much of everything there is.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Sizes {
    pub(crate) send_queue: u16,
    pub(crate) receive_queue: u16,
    pub(crate) send_buffer: u32,
    pub(crate) receive_buffer: u32,
}

/// A message that is not data, to be posted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) message: Message,
    /// What to write before the peer is told, and where in its memory.
    pub(crate) record: Option<(Segment, u64)>,
    /// Which of the [`CONTROL_SLOTS`] buffers is free for the record.
    pub(crate) slot: u16,
}

/// Which directions a program has enough of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Reading,
    Writing,
    Both,
}

/// What was posted, and as how many work requests.
#[derive(Copy, Clone, Debug)]
enum Posted {
    Write(u32, u16),
    Control(Message, u16),
}

/// A connected stream.
#[derive(Debug)]
pub(crate) struct Stream {
    carrier: Carrier,
    sender: Sender,
    receiver: Receiver,
    posted: VecDeque<Posted>,
    control_slots: u16,
    controls: u16,
    /// The last word, when it was not said yet.
    goodbye: Option<Message>,
    /// More may come, more may go.
    readable: bool,
    writable: bool,
    connected: bool,
    /// It ended otherwise than by the word of either side.
    broken: bool,
    keepalive: bool,
}

impl Stream {
    /// `ring` is our receive buffer as we named it to the peer, of which the first half is its first target.
    pub(crate) fn new(carrier: Carrier, sizes: Sizes, ring: Segment, peer: &Hello) -> Self {
        let slots = sizes.send_queue.saturating_sub(CONTROL_SLOTS);
        let slots = slots.max(carrier.work_requests(true));
        Stream {
            carrier,
            sender: Sender::new(carrier, slots, sizes.send_buffer, peer.credits, peer.buffer),
            receiver: Receiver::new(sizes.receive_queue, ring, peer),
            posted: VecDeque::new(),
            control_slots: CONTROL_SLOTS,
            controls: 0,
            goodbye: None,
            readable: true,
            writable: true,
            connected: true,
            broken: false,
            keepalive: false,
        }
    }

    /// More may come from the peer.
    pub(crate) fn is_readable(&self) -> bool {
        self.readable
    }

    /// More may be sent.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    /// It ended by a fault.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Everything posted is done, and everything to say was said.
    pub(crate) fn is_idle(&self) -> bool {
        self.posted.is_empty() && self.goodbye.is_none()
    }

    /// Whether [`send`](Self::send) would yield something.
    pub(crate) fn can_send(&self) -> bool {
        self.writable && self.sender.can_send()
    }

    /// Whether [`send_directly`](Self::send_directly) would.
    pub(crate) fn can_send_directly(&self) -> bool {
        self.writable && self.sender.can_send_directly()
    }

    /// Room for up to `wanted` bytes: fill it and post it.
    pub(crate) fn send(&mut self, wanted: u32) -> Option<Write> {
        let write = self.writable.then(|| self.sender.send(wanted))??;
        Some(self.note(write))
    }

    /// Room for up to `to.length` bytes for a buffer the peer mapped.
    pub(crate) fn send_directly(&mut self, to: Segment) -> Option<Write> {
        let write = self.writable.then(|| self.sender.send_directly(to))??;
        Some(self.note(write))
    }

    /// Room for the record of a buffer we mapped.
    pub(crate) fn send_iomapping(&mut self, to: Segment, index: u16) -> Option<Write> {
        let write = self.writable.then(|| self.sender.send_iomapping(to, index))??;
        Some(self.note(write))
    }

    fn note(&mut self, write: Write) -> Write {
        let work_requests = self.sender.work_requests(&write);
        self.posted
            .push_back(Posted::Write(write.length(), work_requests));
        write
    }

    /// What has to be said besides data, if there is a work request left to say it with.
    pub(crate) fn next_control(&mut self) -> Option<Control> {
        if !self.connected || self.control_slots == 0 {
            return None;
        }
        let Announcement { message, target } = if let Some(message) = self.goodbye.take() {
            Announcement {
                message,
                target: None,
            }
        } else if self.receiver.is_due() {
            if self.control_slots < self.carrier.work_requests(true) {
                return None;
            }
            self.receiver.announce()
        } else if std::mem::take(&mut self.keepalive) {
            Announcement {
                message: Message::Keepalive,
                target: None,
            }
        } else {
            return None;
        };
        let slot = self.controls % CONTROL_SLOTS;
        self.controls = self.controls.wrapping_add(1);
        let work_requests = self.carrier.work_requests(target.is_some());
        self.control_slots -= work_requests;
        self.posted.push_back(Posted::Control(message, work_requests));
        Some(Control {
            message,
            record: target,
            slot,
        })
    }

    /// The peer is to be asked whether it is alive.
    pub(crate) fn probe(&mut self) {
        self.keepalive = true;
    }

    /// The oldest of what was posted has completed.
    pub(crate) fn handle_sent(&mut self, succeeded: bool) {
        match self.posted.pop_front() {
            Some(Posted::Write(length, work_requests)) => self.sender.sent(length, work_requests),
            Some(Posted::Control(message, work_requests)) => {
                self.control_slots += work_requests;
                if message == Message::Disconnect {
                    self.end();
                }
            }
            None => {}
        }
        if !succeeded {
            self.fail();
        }
    }

    /// The peer sent a word: what it means. The list is ours, for its targets.
    pub(crate) fn handle_message(
        &mut self,
        word: u32,
        list: &mut impl TargetList,
    ) -> Result<Message, Violation> {
        let understood = match Message::decode(word) {
            Some(Message::Data(length)) => self.receiver.received(length),
            Some(Message::Credits(limit)) => {
                self.sender.renewed(limit, list);
                Ok(())
            }
            Some(Message::Iomap(_)) => {
                self.receiver.noticed();
                Ok(())
            }
            Some(Message::Disconnect) => {
                self.end();
                Ok(())
            }
            Some(Message::Shutdown) => {
                self.readable = false;
                if !self.writable {
                    self.end();
                }
                Ok(())
            }
            Some(Message::Keepalive) => Ok(()),
            None => Err(Violation::Meaning),
        };
        let message = understood.and(Message::decode(word).ok_or(Violation::Meaning));
        message.inspect_err(|_| self.fail())
    }

    /// The program has had enough.
    pub(crate) fn shut_down(&mut self, ending: Ending) {
        if !self.connected {
            return;
        }
        if ending != Ending::Writing {
            self.readable = false;
        }
        let was_writable = self.writable;
        if ending != Ending::Reading {
            self.writable = false;
        }
        let message = match (self.readable, self.writable) {
            (_, true) => return,
            (true, false) => Message::Shutdown,
            (false, false) => Message::Disconnect,
        };
        // Writing that has ended before was told before; only the end of both is news.
        if was_writable || message == Message::Disconnect {
            self.goodbye = Some(message);
        }
    }

    /// The connection is over: the peer said so, or the connection manager.
    pub(crate) fn end(&mut self) {
        self.readable = false;
        self.writable = false;
        self.connected = false;
        self.goodbye = None;
    }

    /// The connection is over by a fault.
    pub(crate) fn fail(&mut self) {
        if self.connected {
            self.broken = true;
            self.end();
        }
    }

    /// How many bytes can be read.
    pub(crate) fn unread(&self) -> u32 {
        self.receiver.unread()
    }

    /// Where the next bytes to read are in the receive buffer.
    pub(crate) fn peek(&self, length: u32) -> [Piece; 2] {
        self.receiver.peek(length)
    }

    /// So many of them were read.
    pub(crate) fn read(&mut self, length: u32) {
        self.receiver.read(length);
    }
}
