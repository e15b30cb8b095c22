//! A ring of packet batches in shared memory: one process writes, one reads.
//!
//! The writer creates the memory. Each side keeps its position in private memory and publishes it. It checks the position
//! that the other side publishes, and treats a ring whose positions make no sense as [`Broken`] for good. A position counts
//! bytes since the beginning and never goes back.
//!
//! | offset | written by | |
//! |---|---|---|
//! | 0 | writer | what this is, and its version |
//! | 64 | writer | how far it has written |
//! | 128 | reader | how far it has read |
//! | 192 | both | the reader sleeps and wants to be woken: set by the reader, cleared by the first side to act |
//! | 256 | writer | the access to the reader's memory that is under way ([`crate::direct`]) |
//! | 4096 | writer | how far each of the reader's queue pairs has been served by direct access |
//! | 320, 384, [`RECORDS`] | both | records ([`super::record_ring`]) |
//! | [`DATA`] | writer | the batches |
//!
//! A batch is its length and the length of its packets, then the packets, end to end. It lies in one piece: where one does
//! not fit before the end of the ring, the rest is skipped.
//!
//! The ring promises no order beyond its own, and neither side waits here.

use super::sleep;
use crate::os::shared_memory::{Others, SharedMemory};
use nonic_core::MAX_BATCH_LEN;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// "nonic" and a version.
pub(super) const MAGIC: u64 = 0x6e6f_6e69_6300_0003;
pub(super) const WRITTEN: usize = 64;
pub(super) const READ: usize = 128;
pub(super) const ASLEEP: usize = 192;
const HAZARD: usize = 256;
pub(super) const NOTES: usize = 4096;
/// As many queue pairs as a process publishes.
pub(crate) const NOTE_COUNT: usize = 1 << 14;
/// Where the batches are.
pub(super) const DATA: usize = NOTES + 8 * NOTE_COUNT;
/// Bytes of batches. More than the window to a peer, so that reliable connections do not fill it.
pub(super) const RING: u64 = 1 << 20;
/// Bytes of records.
pub(super) const RECORD_RING: u64 = 1 << 20;
/// Where they are.
pub(super) const RECORDS: usize = DATA + RING as usize;
pub(super) const RECORDS_READ: usize = 320;
const WRITER_ASLEEP: usize = 384;
pub(super) const LEN: usize = RECORDS + RECORD_RING as usize;
/// Length and packet length of a batch.
const HEADER: usize = 8;
/// Batches begin at multiples of this: two of them do not share a cache line.
pub(super) const ALIGN: usize = 64;
/// The most batches that there can be at a time.
pub(crate) const MOST_BATCHES: usize = RING as usize / ALIGN;
/// In place of a length: nothing up to the end of the ring.
const SKIP: u32 = u32::MAX;
/// Room for less than this is none: the longest packet and what goes with it.
const LEAST_ROOM: u64 = HEADER as u64 + 4096 + 256;

/// What is in the ring makes no sense: the other process does not keep to the rules.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Broken;

/// The memory of a ring, for [`crate::direct`], which needs more of it than the batches.
#[derive(Debug)]
pub(crate) struct RingMemory(SharedMemory);

impl RingMemory {
    /// The direct access that is under way, as its requester says.
    pub(crate) fn hazard(&self) -> &AtomicU64 {
        self.0.word(HAZARD)
    }

    /// How far the reader has executed records.
    #[inline]
    pub(super) fn records_read(&self) -> &AtomicU64 {
        self.0.word(RECORDS_READ)
    }

    /// Whether the reader sleeps.
    #[inline]
    pub(super) fn asleep(&self) -> &AtomicU32 {
        self.0.half_word(ASLEEP)
    }

    /// Whether the writer sleeps and waits for answers.
    #[inline]
    pub(super) fn writer_asleep(&self) -> &AtomicU32 {
        self.0.half_word(WRITER_ASLEEP)
    }

    /// A word among the records.
    #[inline]
    pub(super) fn record_word(&self, offset: usize) -> &AtomicU64 {
        self.0.word(RECORDS + offset)
    }

    /// The words that a record begins with.
    #[inline]
    pub(super) fn record_words(&self, offset: usize) -> &[AtomicU64; 4] {
        self.0.words(RECORDS + offset)
    }

    /// The address of bytes among the records.
    #[inline]
    pub(super) fn record_bytes(&self, offset: usize, length: usize) -> NonNull<u8> {
        self.0.bytes(RECORDS + offset, length)
    }

    /// How far a queue pair of the reader's has been served directly.
    pub(crate) fn note(&self, index: usize) -> &AtomicU64 {
        assert!(index < NOTE_COUNT);
        self.0.word(NOTES + 8 * index)
    }
}

/// What a batch of this length takes in the ring.
fn whole(length: u32) -> u64 {
    (HEADER as u64 + u64::from(length)).next_multiple_of(ALIGN as u64)
}

/// The end that writes.
#[derive(Debug)]
pub(crate) struct RingWriter {
    memory: Arc<RingMemory>,
    written: u64,
    /// How far the reader was when it was last looked at.
    read: u64,
}

impl RingWriter {
    /// A new ring, and the descriptor for the reader.
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let (memory, fd) = SharedMemory::create("nonic-lane", LEN, Others::Write)?;
        // Until the reader says otherwise: a thread of the process that accepts the lane may be asleep already.
        memory.half_word(ASLEEP).store(1, Ordering::Relaxed);
        // The same of ours, which waits for answers to records that another thread writes.
        memory.half_word(WRITER_ASLEEP).store(1, Ordering::Relaxed);
        memory.word(0).store(MAGIC, Ordering::Release);
        let writer = RingWriter {
            memory: Arc::new(RingMemory(memory)),
            written: 0,
            read: 0,
        };
        Ok((writer, fd))
    }

    /// The memory of the ring.
    pub(crate) fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }

    /// How far the reader has come.
    pub(crate) fn position_of_reader(&self) -> u64 {
        self.memory.0.word(READ).load(Ordering::Acquire)
    }

    /// Whether the reader has read all that was published.
    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        self.memory.0.word(WRITTEN).load(Ordering::Relaxed) == self.position_of_reader()
    }

    /// Whether there is room for a batch.
    #[inline]
    pub(crate) fn has_room(&mut self) -> Result<bool, Broken> {
        let to_end = self.to_end();
        if to_end < LEAST_ROOM {
            if self.free() < to_end && !self.look_at_reader(to_end)? {
                return Ok(false);
            }
            self.put_header(SKIP, 0);
            self.written += to_end;
        }
        Ok(self.free() >= LEAST_ROOM || self.look_at_reader(LEAST_ROOM)?)
    }

    /// The room there is for one batch.
    #[inline]
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let length = (self.free().min(self.to_end()) as usize).saturating_sub(HEADER);
        let at = DATA + (self.written % RING) as usize + HEADER;
        let start = self.memory.0.bytes(at, length);
        // SAFETY: the part of the ring that is not published is the writer's alone. A reader that does not keep to that can
        // change what we write, which it can do anyway; nothing that is written is read back.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length.min(MAX_BATCH_LEN)) }
    }

    fn to_end(&self) -> u64 {
        RING - self.written % RING
    }

    fn free(&self) -> u64 {
        RING - (self.written - self.read)
    }

    /// Asks how far the reader is. Whether so much is free now.
    #[cold]
    fn look_at_reader(&mut self, needed: u64) -> Result<bool, Broken> {
        let read = self.position_of_reader();
        // Honest readers stop between batches. In the middle of one, what is free would be less than what a batch takes.
        if read < self.read || read > self.written || read % (ALIGN as u64) != 0 {
            return Err(Broken);
        }
        self.read = read;
        Ok(self.free() >= needed)
    }

    /// Publishes what was written to the room that there was: `length` bytes in packets of `stride`. Whether the reader
    /// wants to be woken, which is ours to do then.
    #[inline]
    pub(crate) fn publish(&mut self, length: usize, stride: usize) -> bool {
        self.put_header(length as u32, stride as u32);
        self.written += whole(length as u32);
        self.memory.0.word(WRITTEN).store(self.written, Ordering::Release);
        sleep::must_wake(self.memory.0.half_word(ASLEEP))
    }

    fn put_header(&self, length: u32, stride: u32) {
        let at = DATA + (self.written % RING) as usize;
        self.memory.0.half_word(at).store(length, Ordering::Relaxed);
        self.memory.0.half_word(at + 4).store(stride, Ordering::Relaxed);
    }
}

/// The end that reads.
#[derive(Debug)]
pub(crate) struct RingReader {
    memory: Arc<RingMemory>,
    read: u64,
    broken: bool,
}

/// A batch in the ring.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Batch<'a> {
    /// Its bytes. The writer may change them while we look, if it does not keep to the rules.
    pub(crate) bytes: &'a [u8],
    /// The length of each packet but the last.
    pub(crate) stride: usize,
}

impl RingReader {
    /// Reads a ring that another process writes.
    pub(crate) fn open(fd: impl AsFd) -> io::Result<Self> {
        let memory = SharedMemory::of_another(fd, LEN, Others::Write)?;
        if memory.word(0).load(Ordering::Acquire) != MAGIC {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(RingReader {
            memory: Arc::new(RingMemory(memory)),
            read: 0,
            broken: false,
        })
    }

    /// The memory of the ring.
    pub(crate) fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }

    /// Whether there is something to read.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.memory.0.word(WRITTEN).load(Ordering::Acquire) != self.read && !self.broken
    }

    /// Reads the next batch, if there is one.
    #[inline]
    pub(crate) fn read<T>(&mut self, take: impl FnOnce(Batch<'_>) -> T) -> Result<Option<T>, Broken> {
        let written = self.memory.0.word(WRITTEN).load(Ordering::Acquire);
        if written == self.read {
            return Ok(None);
        }
        if self.broken {
            return Err(Broken);
        }
        let Ok((length, stride)) = self.find_batch(written) else {
            self.broken = true;
            return Err(Broken);
        };
        let at = DATA + (self.read % RING) as usize + HEADER;
        let start = self.memory.0.bytes(at, length as usize);
        // SAFETY: inside the ring. The writer leaves alone what it has published until it is read; one that does not can
        // change bytes while they are copied, which is why nothing is decided by looking at them twice.
        let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), length as usize) };
        let taken = take(Batch {
            bytes,
            stride: stride as usize,
        });
        self.read += whole(length);
        self.memory.0.word(READ).store(self.read, Ordering::Release);
        Ok(Some(taken))
    }

    /// Where the next batch is: skips to it. Its length and that of its packets.
    #[inline]
    fn find_batch(&mut self, written: u64) -> Result<(u32, u32), Broken> {
        let (mut waiting, mut length, mut stride) = self.header(written)?;
        if length == SKIP {
            self.read += RING - self.read % RING;
            // No writer publishes a skip alone.
            (waiting, length, stride) = self.header(written)?;
        }
        let to_end = RING - self.read % RING;
        if length == 0 || length == SKIP || stride == 0 || whole(length) > waiting.min(to_end) {
            return Err(Broken);
        }
        Ok((length, stride))
    }

    /// How much there is from here on, and the header that is here.
    fn header(&self, written: u64) -> Result<(u64, u32, u32), Broken> {
        let waiting = written.wrapping_sub(self.read);
        if waiting == 0 || waiting > RING || waiting % (ALIGN as u64) != 0 {
            return Err(Broken);
        }
        let at = DATA + (self.read % RING) as usize;
        let length = self.memory.0.half_word(at).load(Ordering::Relaxed);
        let stride = self.memory.0.half_word(at + 4).load(Ordering::Relaxed);
        Ok((waiting, length, stride))
    }

    /// We are about to sleep. Whether something has come meanwhile, so that there is no reason to.
    pub(crate) fn fall_asleep(&self) -> bool {
        sleep::fall_asleep(self.memory.0.half_word(ASLEEP), || self.is_waiting())
    }

    /// We are awake, and look by ourselves.
    pub(crate) fn wake(&self) {
        sleep::wake(self.memory.0.half_word(ASLEEP));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring() -> (RingWriter, RingReader) {
        let (writer, fd) = RingWriter::create().expect("memory");
        let reader = RingReader::open(&fd).expect("a ring");
        (writer, reader)
    }

    fn write(writer: &mut RingWriter, bytes: &[u8], stride: usize) -> bool {
        if !writer.has_room().expect("the reader is honest") {
            return false;
        }
        let room = writer.room();
        assert!(room.len() >= LEAST_ROOM as usize - HEADER);
        let length = bytes.len().min(room.len());
        room[..length].copy_from_slice(&bytes[..length]);
        writer.publish(length, stride);
        length == bytes.len()
    }

    fn read(reader: &mut RingReader) -> Result<Option<(Vec<u8>, usize)>, Broken> {
        reader.read(|batch| (batch.bytes.to_vec(), batch.stride))
    }

    #[test]
    fn batches_come_out_as_they_went_in_many_times_around() {
        let (mut writer, mut reader) = ring();
        for round in 0..3000_usize {
            let bytes: Vec<u8> = (0..round * 7 % 4000 + 1).map(|i| (i + round) as u8).collect();
            assert!(write(&mut writer, &bytes, round + 1));
            assert_eq!(read(&mut reader), Ok(Some((bytes, round + 1))));
            assert_eq!(read(&mut reader), Ok(None));
        }
    }

    #[test]
    fn a_full_ring_has_no_room_until_it_is_read() {
        let (mut writer, mut reader) = ring();
        let mut batches = 0;
        while write(&mut writer, &[batches as u8; 4000], 4000) {
            batches += 1;
        }
        assert!(batches as u64 > RING / 4200, "{batches}");
        for batch in 0..batches {
            let (bytes, _) = read(&mut reader).expect("a ring").expect("a batch");
            assert_eq!(bytes, [batch as u8; 4000]);
        }
        assert_eq!(read(&mut reader), Ok(None));
        assert!(write(&mut writer, &[1; 4000], 1));
    }

    #[test]
    fn whoever_falls_asleep_is_woken_once() {
        let (mut writer, mut reader) = ring();
        assert!(writer.publish(8, 8), "a reader may sleep from the beginning");
        reader.wake();
        assert!(!writer.publish(8, 8), "nobody sleeps");
        assert!(reader.fall_asleep(), "something waits");
        while read(&mut reader).expect("a ring").is_some() {}
        assert!(!reader.fall_asleep());
        assert!(writer.publish(8, 8), "the reader sleeps");
        assert!(!writer.publish(8, 8), "it has been woken");
        assert!(!reader.fall_asleep() || reader.is_waiting());
        reader.wake();
        assert!(!writer.publish(8, 8), "it is awake");
    }

    #[test]
    fn two_threads_pass_every_batch_on() {
        let (mut writer, mut reader) = ring();
        const BATCHES: u32 = 200_000;
        let thread = std::thread::spawn(move || {
            let mut next = 0;
            while next < BATCHES {
                match read(&mut reader).expect("a ring") {
                    Some((bytes, stride)) => {
                        assert!(bytes.chunks(4).all(|word| word == next.to_ne_bytes()), "{next}");
                        assert_eq!(stride, 4);
                        next += 1;
                    }
                    None => std::hint::spin_loop(),
                }
            }
        });
        let mut next: u32 = 0;
        while next < BATCHES {
            if !writer.has_room().expect("a ring") {
                std::thread::yield_now();
                continue;
            }
            let room = writer.room();
            let length = 4 * (1 + next as usize % 200);
            for word in room[..length].chunks_mut(4) {
                word.copy_from_slice(&next.to_ne_bytes());
            }
            writer.publish(length, 4);
            next += 1;
        }
        thread.join().expect("every batch was whole");
    }

    #[test]
    fn a_reader_that_claims_too_much_breaks_the_ring() {
        for claimed in [64, u64::MAX, RING * 3, 4033] {
            let (mut writer, reader) = ring();
            reader.memory.0.word(READ).store(claimed, Ordering::Release);
            let mut outcome = Ok(());
            for _ in 0..2 * RING as usize / 4096 {
                match writer.has_room() {
                    Ok(true) => drop(writer.publish(4000, 4000)),
                    Ok(false) => break,
                    Err(broken) => {
                        outcome = Err(broken);
                        break;
                    }
                }
            }
            // A small claim is caught up with before it is looked at; unless it is in the middle of a batch.
            assert!(claimed == 64 || outcome == Err(Broken), "{claimed}");
        }
    }

    proptest! {
        /// Whatever another process writes, reading ends, stays inside, and goes on to the end of what it claims.
        #[test]
        fn nothing_in_the_ring_can_lead_the_reader_astray(
            written in prop_oneof![any::<u64>(), 0..2 * RING, (0..2 * RING / 64).prop_map(|n| 64 * n)],
            begin in (0..RING / 64).prop_map(|n| 64 * n),
            headers in prop::collection::vec((0..RING / 64, prop_oneof![any::<u32>(), 0_u32..5000, Just(SKIP)], 0_u32..5000), 0..64),
        ) {
            let (_writer, mut reader) = ring();
            for (at, length, stride) in headers {
                let at = DATA + 64 * at as usize;
                reader.memory.0.half_word(at).store(length, Ordering::Relaxed);
                reader.memory.0.half_word(at + 4).store(stride, Ordering::Relaxed);
            }
            reader.read = begin;
            reader.memory.0.word(WRITTEN).store(written, Ordering::Release);
            for _ in 0..RING / 64 + 1 {
                match reader.read(|batch| (batch.bytes.len(), batch.stride)) {
                    Ok(Some((length, stride))) => prop_assert!(length as u64 <= RING && length > 0 && stride > 0),
                    Ok(None) => return Ok(()),
                    Err(Broken) => return Ok(()),
                }
            }
            prop_assert!(false, "it never ends");
        }
    }
}
