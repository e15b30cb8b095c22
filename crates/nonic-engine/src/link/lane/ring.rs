//! A ring of records in the memory of a lane: one process writes them, the other executes them in place.
//!
//! A record begins at a multiple of [`ALIGN`]:
//!
//! | bytes | written by | |
//! |---|---|---|
//! | 8 | writer | its *stamp*: its position and one more. Written last, so that a reader needs to look at nothing else |
//! | 4 + 4 | writer | how long it is, and how much of that is the request |
//! | 4 + 4 + 8 | reader | the answer; zeros, which the writer left there, are the usual one |
//! | | both | the request, and behind it room for what a READ brings |
//!
//! Where a stamp will be next, the writer puts a zero before it shows a record. So what lies there from earlier rounds is never taken
//! for a stamp.
//!
//! Each side keeps its position, and the writer also what it wrote where, in private memory. What the other process publishes is
//! checked, or harms nobody but itself.

use super::memory::{LaneMemory, RING};
use super::sleep;
use nonic_core::{Answered, RecordAnswer, RecordTag};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Records begin at multiples of this.
pub(super) const ALIGN: u64 = 64;
/// What a record has before the request.
const HEADER: usize = 32;
/// The words of that.
const STAMP: usize = 0;
const LENGTHS: usize = 1;
const ANSWER: usize = 2;
const ANSWER_WORD: usize = 3;
/// In place of a length: nothing up to the end of the ring.
const SKIP: u32 = u32::MAX;
/// The longest record: so that one fits even where it must begin anew at the start of the ring.
const LONGEST: usize = RING as usize / 4;
/// A writer that is so far and has nothing under way begins anew at the start of the ring. Of 1 MiB for each peer, the caches would keep
/// nothing: with eight ranks that exchange 64 KiB, half of the time went into waiting for memory.
const REWIND: u64 = RING / 8;
/// Requests up to this length are copied before they are looked at. Of longer ones, headers are copied when they are parsed, and payload
/// is copied to where it belongs.
const COPIED: usize = 512;

/// What is in the ring makes no sense: the other process does not keep to the rules.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Broken;

/// What a record takes in the ring.
fn slot(bytes: usize) -> u64 {
    ((HEADER + bytes) as u64).next_multiple_of(ALIGN)
}

fn offset(position: u64) -> usize {
    (position % RING) as usize
}

/// Shows the reader the record that begins at a position, or how far it is to the next.
#[inline]
fn show(words: &[AtomicU64; 4], position: u64, length: u32, request: u32) {
    let lengths = u64::from(length) | u64::from(request) << 32;
    words[LENGTHS].store(lengths, Ordering::Relaxed);
    words[STAMP].store(position + 1, Ordering::Release);
}

/// The end that writes.
#[derive(Debug)]
pub(crate) struct RecordWriter {
    shared: Arc<WriterSleep>,
    written: u64,
    /// How far the reader was when it was last looked at.
    read: u64,
    /// Everything before has been taken back.
    tail: u64,
    /// Bytes of the room that was asked for last.
    room: usize,
    under_way: VecDeque<UnderWay>,
}

/// A record that was published.
#[derive(Copy, Clone, Debug)]
struct UnderWay {
    tag: RecordTag,
    begin: u64,
    end: u64,
    request: usize,
    length: usize,
}

/// What a thread that is about to sleep needs to know of a lane that its shard writes to.
#[derive(Debug)]
pub(crate) struct WriterSleep {
    memory: Arc<LaneMemory>,
    /// When the reader has come so far, there is an answer. The largest number if none is waited for.
    awaited: AtomicU64,
    /// Records that were published.
    published: AtomicU64,
}

impl WriterSleep {
    fn has_answer(&self) -> bool {
        self.memory.records_read().load(Ordering::Acquire) >= self.awaited.load(Ordering::Relaxed)
    }

    /// How many records were published.
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }

    /// Whether an answer is waited for.
    #[inline]
    pub(crate) fn awaits_answer(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) != u64::MAX
    }

    /// A thread is about to sleep: the reader must wake it with an answer, also with one to a record that another thread writes
    /// while it sleeps. Whether one has come already.
    pub(crate) fn fall_asleep(&self) -> bool {
        sleep::fall_asleep(self.memory.writer_asleep(), || self.has_answer())
    }

    /// All threads are awake, and look by themselves.
    pub(crate) fn wake(&self) {
        sleep::wake(self.memory.writer_asleep());
    }
}

impl RecordWriter {
    pub(crate) fn new(memory: &Arc<LaneMemory>) -> Self {
        let shared = WriterSleep {
            memory: Arc::clone(memory),
            awaited: AtomicU64::new(u64::MAX),
            published: AtomicU64::new(0),
        };
        RecordWriter {
            shared: Arc::new(shared),
            written: 0,
            read: 0,
            tail: 0,
            room: 0,
            under_way: VecDeque::new(),
        }
    }

    /// What a thread that is about to sleep needs to know.
    pub(crate) fn sleep(&self) -> &Arc<WriterSleep> {
        &self.shared
    }

    fn memory(&self) -> &LaneMemory {
        &self.shared.memory
    }

    /// Room for a record of so many bytes, if there is any.
    #[inline]
    pub(crate) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let slot = slot(bytes);
        let at = self.written % RING;
        let to_end = RING - at;
        let rewinds = at >= REWIND && self.under_way.is_empty() && slot + ALIGN <= at;
        let skipped = if to_end < slot || rewinds { to_end } else { 0 };
        let free = RING - (self.written - self.tail);
        // One stamp more, which is put to zero.
        if bytes > LONGEST || free < skipped + slot + ALIGN {
            return None;
        }
        if skipped > 0 {
            self.memory()
                .record_word(offset(self.written + skipped))
                .store(0, Ordering::Relaxed);
            show(
                self.memory().record_words(offset(self.written)),
                self.written,
                SKIP,
                0,
            );
            self.written += skipped;
        }
        self.room = bytes;
        let start = self.memory().record_bytes(offset(self.written) + HEADER, bytes);
        // SAFETY: the part of the ring that is not published is the writer's alone. A reader that does not keep to that can change
        // what we write, which it can do anyway; nothing that is written is read back.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) })
    }

    /// Publishes the record that was written to the room. Whether the reader wants to be woken, which is ours to do then.
    #[inline]
    pub(crate) fn publish(&mut self, request: usize, tag: RecordTag) -> bool {
        let (begin, end) = (self.written, self.written + slot(self.room));
        let memory = self.memory();
        memory.record_word(offset(end)).store(0, Ordering::Relaxed);
        let words = memory.record_words(offset(begin));
        words[ANSWER].store(0, Ordering::Relaxed);
        show(words, begin, self.room as u32, request as u32);
        if self.under_way.is_empty() {
            self.shared.awaited.store(end, Ordering::Relaxed);
        }
        self.under_way.push_back(UnderWay {
            tag,
            begin,
            end,
            request,
            length: self.room,
        });
        self.written = end;
        // Nobody else changes it.
        self.shared
            .published
            .store(self.shared.published() + 1, Ordering::Relaxed);
        sleep::must_wake(self.memory().asleep())
    }

    /// Whether the oldest record was given back.
    #[inline]
    pub(crate) fn has_answer(&mut self) -> bool {
        let Some(oldest) = self.under_way.front() else {
            return false;
        };
        if oldest.end > self.read {
            // A reader that lies about how far it is gets answers taken for its own that it did not give.
            self.read = self.memory().records_read().load(Ordering::Acquire);
        }
        oldest.end <= self.read
    }

    /// Takes back the oldest record, if it was given back.
    #[inline]
    pub(crate) fn take_answer(&mut self) -> Option<Answered<'_>> {
        if !self.has_answer() {
            return None;
        }
        let record = self.under_way.pop_front()?;
        if self.under_way.is_empty() {
            // The next one goes where this one was, which is in the nearest cache.
            self.under_way.clear();
        }
        self.tail = record.end;
        let awaited = self.under_way.front().map_or(u64::MAX, |next| next.end);
        self.shared.awaited.store(awaited, Ordering::Relaxed);
        let memory = self.memory();
        let at = offset(record.begin);
        let words = memory.record_words(at);
        let kind = words[ANSWER].load(Ordering::Relaxed) as u32;
        let word = match kind {
            0 => 0,
            _ => words[ANSWER_WORD].load(Ordering::Relaxed),
        };
        let length = record.length - record.request;
        let start = memory.record_bytes(at + HEADER + record.request, length);
        // SAFETY: what was given back is the writer's alone, and is not written again while this is borrowed. A reader that does not
        // keep to that can change bytes while they are copied, and so its own answer.
        let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), length) };
        Some(Answered {
            tag: record.tag,
            answer: RecordAnswer::from_words((kind, word)),
            bytes,
        })
    }
}

/// The end that executes.
#[derive(Debug)]
pub(crate) struct RecordReader {
    memory: Arc<LaneMemory>,
    read: u64,
    broken: bool,
    /// Where short requests are copied to.
    copy: Box<[u8; COPIED]>,
}

impl RecordReader {
    pub(crate) fn new(memory: &Arc<LaneMemory>) -> Self {
        RecordReader {
            memory: Arc::clone(memory),
            read: 0,
            broken: false,
            copy: Box::new([0; COPIED]),
        }
    }

    /// The memory of the lane.
    pub(crate) fn memory(&self) -> &Arc<LaneMemory> {
        &self.memory
    }

    /// How many bytes of the ring it has passed.
    pub(crate) fn position(&self) -> u64 {
        self.read
    }

    /// We are about to sleep: a writer must wake us. Whether a record has come meanwhile, so that there is no reason to.
    pub(crate) fn fall_asleep(&self) -> bool {
        sleep::fall_asleep(self.memory.asleep(), || self.is_waiting())
    }

    /// We are awake, and look by ourselves.
    pub(crate) fn wake(&self) {
        sleep::wake(self.memory.asleep());
    }

    /// Whether there is a record.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        let stamp = self.memory.record_word(offset(self.read)).load(Ordering::Acquire);
        stamp == self.read + 1 && !self.broken
    }

    /// Executes the next record, if there is one. Whether there was.
    #[inline]
    pub(crate) fn read(
        &mut self,
        execute: &mut dyn FnMut(&[u8], &mut [u8]) -> RecordAnswer,
    ) -> Result<bool, Broken> {
        if !self.is_waiting() {
            return Ok(false);
        }
        let Ok((length, request)) = self.find_record() else {
            self.broken = true;
            return Err(Broken);
        };
        if length == 0 {
            return Ok(false);
        }
        let at = offset(self.read);
        let start = self.memory.record_bytes(at + HEADER, length);
        // SAFETY: inside the ring. Between stamp and giving back, the record is the reader's. A writer that does not keep to that can
        // change bytes while they are copied, which is why nothing is decided by looking at them twice.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) };
        let (request, room) = bytes.split_at_mut(request);
        let request = match self.copy.get_mut(..request.len()) {
            Some(copy) => {
                copy.copy_from_slice(request);
                copy
            }
            None => request,
        };
        let answer = execute(request, room);
        if answer != RecordAnswer::Executed {
            let (kind, word) = answer.to_words();
            let words = self.memory.record_words(at);
            words[ANSWER_WORD].store(word, Ordering::Relaxed);
            words[ANSWER].store(u64::from(kind), Ordering::Relaxed);
        }
        self.read += slot(length);
        Ok(true)
    }

    /// The record that is here, or at the start of the ring if the rest of it is skipped: its length and that of its request. A length of
    /// zero is none.
    #[inline]
    fn find_record(&mut self) -> Result<(usize, usize), Broken> {
        let mut lengths = self.lengths();
        if lengths.0 == SKIP {
            self.read += RING - self.read % RING;
            if !self.is_waiting() {
                return Ok((0, 0));
            }
            lengths = self.lengths();
        }
        let (length, request) = (lengths.0 as usize, lengths.1 as usize);
        let to_end = RING - self.read % RING;
        if length == 0 || length > LONGEST || request == 0 || request > length || slot(length) > to_end {
            return Err(Broken);
        }
        Ok((length, request))
    }

    fn lengths(&self) -> (u32, u32) {
        let lengths = self
            .memory
            .record_word(offset(self.read) + 8)
            .load(Ordering::Relaxed);
        (lengths as u32, (lengths >> 32) as u32)
    }

    /// Gives back what was executed. Whether the writer wants to be woken, which is ours to do then.
    #[inline]
    pub(crate) fn give_back(&self) -> bool {
        self.memory.records_read().store(self.read, Ordering::Release);
        sleep::must_wake(self.memory.writer_asleep())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use nonic_core::Qpn;
    use proptest::prelude::*;

    fn ring() -> (RecordWriter, RecordReader) {
        let (memory, fd) = LaneMemory::create().expect("memory");
        let theirs = LaneMemory::open(&fd).expect("it is a lane's");
        (RecordWriter::new(&memory), RecordReader::new(&theirs))
    }

    fn tag(attempt: u32) -> RecordTag {
        RecordTag {
            qpn: Qpn::new(5),
            attempt,
        }
    }

    fn write(writer: &mut RecordWriter, request: &[u8], room: usize, attempt: u32) -> bool {
        let Some(bytes) = writer.room(request.len() + room) else {
            return false;
        };
        bytes[..request.len()].copy_from_slice(request);
        writer.publish(request.len(), tag(attempt));
        true
    }

    fn execute(reader: &mut RecordReader, answer: RecordAnswer) -> Option<Vec<u8>> {
        let mut seen = None;
        let read = reader.read(&mut |request, room| {
            seen = Some(request.to_vec());
            room.fill(7);
            answer
        });
        assert_eq!(read, Ok(seen.is_some()));
        reader.give_back();
        seen
    }

    #[test]
    fn records_come_out_as_they_went_in_many_times_around_and_so_do_answers() {
        let (mut writer, mut reader) = ring();
        for round in 0..4000_u32 {
            let request: Vec<u8> = (0..round * 37 % 9000 + 1).map(|i| (i + round) as u8).collect();
            let room = (round * 11 % 3000) as usize;
            assert!(write(&mut writer, &request, room, round));
            assert!(writer.take_answer().is_none(), "it was not executed");
            let answer = match round % 3 {
                0 => RecordAnswer::Executed,
                1 => RecordAnswer::Fetched(u64::from(round) << 32),
                _ => RecordAnswer::NotReady(3),
            };
            assert_eq!(execute(&mut reader, answer), Some(request));
            assert_eq!(execute(&mut reader, answer), None);
            let answered = writer.take_answer().expect("it was executed");
            assert_eq!((answered.tag, answered.answer), (tag(round), answer));
            assert_eq!(answered.bytes, vec![7; room]);
            assert!(writer.take_answer().is_none());
        }
    }

    #[test]
    fn a_full_ring_has_room_again_when_answers_are_taken() {
        let (mut writer, mut reader) = ring();
        let mut written = 0;
        while write(&mut writer, &[1; 1000], 0, written) {
            written += 1;
        }
        assert!(u64::from(written) > RING / 1100, "{written}");
        for _ in 0..written {
            assert!(execute(&mut reader, RecordAnswer::Executed).is_some());
        }
        assert!(
            !write(&mut writer, &[1; 1000], 0, written),
            "what was not taken back is not overwritten"
        );
        for attempt in 0..written {
            assert_eq!(
                writer.take_answer().map(|answered| answered.tag),
                Some(tag(attempt))
            );
        }
        assert!(write(&mut writer, &[1; 1000], 0, written));
    }

    #[test]
    fn a_writer_with_nothing_under_way_stays_near_the_start_of_the_ring() {
        const BYTES: usize = 30_000;
        let (mut writer, mut reader) = ring();
        for round in 0..100 {
            assert!(write(&mut writer, &[round as u8; BYTES], 0, round));
            assert!(writer.written % RING <= REWIND + slot(BYTES), "round {round}");
            assert_eq!(
                execute(&mut reader, RecordAnswer::Executed),
                Some(vec![round as u8; BYTES])
            );
            assert!(writer.take_answer().is_some());
        }
        // With one under way, all of the ring is used.
        let mut furthest = 0;
        for round in 0..100 {
            assert!(write(&mut writer, &[round as u8; BYTES], 0, round));
            furthest = furthest.max(writer.written % RING);
            if round > 0 {
                let before = vec![round as u8 - 1; BYTES];
                assert_eq!(execute(&mut reader, RecordAnswer::Executed), Some(before));
                assert!(writer.take_answer().is_some());
            }
        }
        assert!(furthest > RING - 2 * slot(BYTES), "{furthest}");
    }

    /// What a program sent lies in the ring until it is written over. It may look like a stamp.
    #[test]
    fn what_lies_there_from_earlier_rounds_is_no_record() {
        let (mut writer, mut reader) = ring();
        for round in 0..40_u64 {
            // Every word of the payload is the stamp of a position in the next round.
            let mut payload = Vec::new();
            let next = (writer.written / RING + 1) * RING;
            let begin = writer.written % RING + HEADER as u64;
            for at in (begin..begin + (200 << 10)).step_by(8) {
                payload.extend_from_slice(&(next + at % RING + 1).to_ne_bytes());
            }
            assert!(write(&mut writer, &payload, 0, round as u32));
            assert!(execute(&mut reader, RecordAnswer::Executed).is_some());
            assert!(!reader.is_waiting(), "round {round}");
            assert!(writer.take_answer().is_some());
        }
    }

    /// The thread that sleeps is not the one that posts.
    #[test]
    fn an_answer_wakes_who_fell_asleep_before_the_record_was_written() {
        let (mut writer, mut reader) = ring();
        assert!(!writer.sleep().fall_asleep());
        assert!(write(&mut writer, &[1], 0, 0));
        let executed = reader.read(&mut |_, _| RecordAnswer::Executed);
        assert_eq!(executed, Ok(true));
        assert!(reader.give_back(), "the writer is to be woken");
        assert!(!reader.give_back(), "once");
        assert!(writer.sleep().fall_asleep(), "there is an answer");
        writer.sleep().wake();
        assert!(writer.take_answer().is_some());
        assert!(!writer.sleep().fall_asleep());
    }

    #[test]
    fn a_reader_that_falls_asleep_is_woken_once() {
        let (mut writer, mut reader) = ring();
        let mut publish = || {
            writer.room(8).expect("room");
            writer.publish(8, tag(0))
        };
        assert!(publish(), "a reader may sleep from the beginning");
        reader.wake();
        assert!(!publish(), "nobody sleeps");
        assert!(reader.fall_asleep(), "something waits");
        while execute(&mut reader, RecordAnswer::Executed).is_some() {}
        assert!(!reader.fall_asleep());
        assert!(publish(), "the reader sleeps");
        assert!(!publish(), "it has been woken");
        assert!(!reader.fall_asleep() || reader.is_waiting());
        reader.wake();
        assert!(!publish(), "it is awake");
    }

    #[test]
    fn a_record_that_is_too_long_has_no_room() {
        let (mut writer, _) = ring();
        assert!(writer.room(LONGEST + 1).is_none());
        assert!(writer.room(LONGEST).is_some());
    }

    #[test]
    fn two_threads_exchange_many() {
        const RECORDS: u32 = 200_000;
        let (mut writer, mut reader) = ring();
        let other = std::thread::spawn(move || {
            let mut next = 0_u32;
            while next < RECORDS {
                let read = reader.read(&mut |request, _| {
                    assert_eq!(request[..4], next.to_ne_bytes());
                    next += 1;
                    RecordAnswer::Fetched(u64::from(next))
                });
                assert!(read.is_ok());
                reader.give_back();
            }
        });
        let (mut written, mut answered) = (0_u32, 0_u32);
        while answered < RECORDS {
            let mut request = vec![0; 4 + (written as usize * 7) % 300];
            request[..4].copy_from_slice(&written.to_ne_bytes());
            if written < RECORDS && write(&mut writer, &request, 0, written) {
                written += 1;
            }
            while let Some(record) = writer.take_answer() {
                assert_eq!(record.tag, tag(answered));
                answered += 1;
                assert_eq!(record.answer, RecordAnswer::Fetched(u64::from(answered)));
            }
        }
        other.join().expect("the reader found what it expected");
    }

    proptest! {
        /// Whatever a writer leaves in the ring, reading it ends, and stays inside.
        #[test]
        fn a_hostile_writer_is_survived(
            words in prop::collection::vec((0..RING / 8, prop_oneof![any::<u64>(), 0..RING]), 0..64),
            begin in (0..RING / 64).prop_map(|n| 64 * n),
            lengths: u64,
        ) {
            let (_writer, mut reader) = ring();
            reader.read = begin;
            for (at, word) in words {
                reader.memory.record_word(at as usize * 8).store(word, Ordering::Relaxed);
            }
            reader.memory.record_word(offset(begin) + 8).store(lengths, Ordering::Relaxed);
            reader.memory.record_word(offset(begin)).store(begin + 1, Ordering::Relaxed);
            for _ in 0..RING / 64 + 1 {
                match reader.read(&mut |request, room| {
                    assert!(request.len() + room.len() <= LONGEST);
                    RecordAnswer::Ignored
                }) {
                    Ok(true) => {}
                    Ok(false) | Err(Broken) => break,
                }
            }
        }

        /// Whatever a reader says of how far it is, the writer goes on or waits.
        #[test]
        fn a_hostile_reader_is_survived(claims in prop::collection::vec(any::<u64>(), 1..20)) {
            let (mut writer, _reader) = ring();
            for claim in claims {
                write(&mut writer, &[1; 100], 50, 0);
                writer.memory().records_read().store(claim, Ordering::Relaxed);
                if let Some(answered) = writer.take_answer() {
                    prop_assert_eq!(answered.bytes.len(), 50);
                }
            }
        }
    }
}
