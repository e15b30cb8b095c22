//! Fuzzing of lanes: rings that a hostile process writes, and rings that one reads.

use super::ring::{self, RingWriter};
use super::{IncomingLanes, LaneLine};
use crate::host::Block;
use crate::link::Datagrams;
use crate::os::hostile_memory::HostileMemory;
use crate::os::poller::Poller;
use crate::os::shared_memory::{Others, SharedMemory};
use nonic_core::RecordAnswer;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where what is in the memory of a lane.
pub mod layout {
    use super::super::ring;

    /// How far the writer has written.
    pub const WRITTEN: usize = ring::WRITTEN;
    /// How far the reader has read.
    pub const READ: usize = ring::READ;
    /// Whether the reader sleeps.
    pub const ASLEEP: usize = ring::ASLEEP;
    /// How far queue pairs were served directly.
    pub const NOTES: usize = ring::NOTES;
    /// The batches.
    pub const DATA: usize = ring::DATA;
    /// How many bytes of batches there are room for.
    pub const RING: usize = ring::RING as usize;
    /// What batches begin at multiples of.
    pub const ALIGN: usize = ring::ALIGN;
    /// How far records were executed.
    pub const RECORDS_READ: usize = ring::RECORDS_READ;
    /// The records, and how many bytes of them there are room for.
    pub const RECORDS: usize = ring::RECORDS;
    /// See there.
    pub const RECORD_RING: usize = ring::RECORD_RING as usize;
    /// All of it.
    pub const LEN: usize = ring::LEN;
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
        let (memory, fd) =
            SharedMemory::create("nonic-lane", ring::LEN, Others::Write).expect("there is memory");
        let memory = HostileMemory::new(memory, ring::LEN);
        memory.poke(0, ring::MAGIC);
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
        (ReaderVictim { lanes, line }, memory)
    }

    /// Reads what there is, as a poll does. How many batches.
    pub fn receive(&mut self, deliver: &mut dyn FnMut(&Datagrams<'_>)) -> u64 {
        self.lanes.receive(deliver)
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
    pub fn end(&mut self, deliver: &mut dyn FnMut(&Datagrams<'_>)) {
        self.lanes.ended(self.line, deliver);
    }
}

/// The writer of a lane whose reader does not keep to the rules.
#[derive(Debug)]
pub struct WriterVictim(RingWriter);

impl WriterVictim {
    /// One that has made a lane, and the memory of that.
    pub fn new() -> (Self, HostileMemory) {
        let (writer, fd) = RingWriter::create().expect("there is memory");
        let memory = SharedMemory::of_another(fd, ring::LEN, Others::Write).expect("it is a lane");
        (WriterVictim(writer), HostileMemory::new(memory, ring::LEN))
    }

    /// Sends a batch of such bytes, or of as many as there is room for. How many, `None` for a ring that is broken or full.
    pub fn send(&mut self, length: usize, byte: u8) -> Option<usize> {
        if !self.0.has_room().ok()? {
            return None;
        }
        let room = self.0.room();
        let length = length.clamp(1, room.len());
        room[..length].fill(byte);
        self.0.publish(length, length);
        Some(length)
    }
}
