//! Fuzzing of lanes: rings that a hostile process writes, and rings that one reads.

use super::memory::{self, LaneMemory};
use super::ring::RecordWriter;
use super::{IncomingLanes, LaneLine};
use crate::host::Block;
use crate::os::hostile_memory::HostileMemory;
use crate::os::poller::Poller;
use crate::os::shared_memory::{Others, SharedMemory};
use nonic_core::{Qpn, RecordAnswer, RecordTag};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where what is in the memory of a lane.
pub mod layout {
    use super::super::{memory, ring};

    /// Whether the reader sleeps.
    pub const ASLEEP: usize = memory::ASLEEP;
    /// How far records were executed.
    pub const RECORDS_READ: usize = memory::RECORDS_READ;
    /// The records, and how many bytes of them there are room for.
    pub const RECORDS: usize = memory::RECORDS;
    /// See there.
    pub const RING: usize = memory::RING as usize;
    /// What records begin at multiples of.
    pub const ALIGN: usize = ring::ALIGN as usize;
    /// All of it.
    pub const LEN: usize = memory::LEN;
}

const US: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The reader of a lane whose sender does not keep to the rules.
#[derive(Debug)]
pub struct ReaderVictim {
    lanes: IncomingLanes,
    line: LaneLine,
}

impl ReaderVictim {
    /// One that has taken a lane, and the memory of that.
    pub fn new() -> (Self, HostileMemory) {
        let (shared, fd) =
            SharedMemory::create("nonic-lane", memory::LEN, Others::Write).expect("there is memory");
        let hostile = HostileMemory::new(shared, memory::LEN);
        hostile.poke(0, memory::MAGIC);
        let line = LaneLine {
            block: Block::FIRST,
            number: 1,
        };
        let mut lanes = IncomingLanes::new(US, true);
        let poller = Poller::new().expect("there are descriptors");
        let sender = lanes.ringer(&poller).expect("there are descriptors");
        lanes
            .take(line, SocketAddr::new(US, 9), vec![fd, sender], &poller)
            .expect("it is a lane");
        (ReaderVictim { lanes, line }, hostile)
    }

    /// Executes records, as a poll does. How many.
    pub fn receive_records(&mut self, execute: &mut dyn FnMut(&[u8], &mut [u8]) -> RecordAnswer) -> u64 {
        self.lanes
            .receive_records(&mut |_, request, room| execute(request, room))
    }

    /// Whether it would not sleep because something waits.
    pub fn fall_asleep(&mut self) -> bool {
        self.lanes.fall_asleep()
    }

    /// Wakes up.
    pub fn wake(&mut self, others_sleep: bool) {
        self.lanes.wake(others_sleep);
    }

    /// The sender hangs up.
    pub fn end(&mut self) {
        self.lanes.ended(self.line);
    }

    /// Whether the lane is gone.
    pub fn is_closed(&self) -> bool {
        self.lanes.fds().count() < 2
    }
}

/// The writer of a lane whose reader does not keep to the rules.
#[derive(Debug)]
pub struct WriterVictim(RecordWriter);

impl WriterVictim {
    /// One that has made a lane, and the memory of that.
    pub fn new() -> (Self, HostileMemory) {
        let (memory, fd) = LaneMemory::create().expect("there is memory");
        let theirs = SharedMemory::of_another(fd, memory::LEN, Others::Write).expect("it is a lane");
        let writer = RecordWriter::new(&memory);
        (WriterVictim(writer), HostileMemory::new(theirs, memory::LEN))
    }

    /// Writes a record of so many such bytes, with so much room for the answer. Whether there was room.
    pub fn send(&mut self, length: usize, answer: usize, byte: u8) -> bool {
        let length = length.max(1);
        let Some(room) = self.0.room(length + answer) else {
            return false;
        };
        room[..length].fill(byte);
        let tag = RecordTag {
            qpn: Qpn::new(5),
            attempt: 0,
        };
        self.0.publish(length, tag);
        true
    }

    /// Takes an answer back. How many bytes came with it, `None` if there is none.
    pub fn take_answer(&mut self) -> Option<usize> {
        self.0.take_answer().map(|answered| answered.bytes.len())
    }
}
