//! Lanes to and from a hostile process, which writes to the shared memory what it likes, when it likes.
//!
//! The input is read as a script of two lanes: one whose writer is hostile, and one whose reader is. What the hostile
//! process does may also fall into the middle of a poll, after any batch. Whatever it says:
//! - nothing panics, and nothing is read or written outside of the ring;
//! - a poll, and the end of a lane, deliver no more than they should, however fast the ring is filled;
//! - what is delivered can be walked through in packets;
//! - a writer writes no more than the reader says it has read, and a ring;
//! - a record is looked at and answered inside of its own bytes.

use arbitrary::{Arbitrary, Unstructured};
use nonic_core::RecordAnswer;
use nonic_engine::Datagrams;
use nonic_engine::fuzzing::{HostileMemory, ReaderVictim, WriterVictim, layout};
use std::cell::{Cell, RefCell};

/// A poll takes no more batches than this from a lane.
const BATCHES_PER_POLL: usize = 16;
/// Nor the end of a lane than this: as many as there can be in a ring.
const BATCHES_AT_THE_END: usize = layout::RING / layout::ALIGN;
/// Steps of a script.
const STEPS: usize = 400;

#[derive(Arbitrary, Debug)]
enum Step {
    /// Any word, anywhere.
    Poke { at: u32, word: u64 },
    /// The header of a batch, where one may begin, or where the reader will look next.
    Header {
        slot: Option<u16>,
        length: Number,
        stride: Number,
    },
    /// How far the hostile writer has written.
    Written(Position),
    /// How far the hostile reader has read, and whether it sleeps.
    Read { position: Position, asleep: u8 },
    /// The victim polls.
    Poll,
    /// It falls asleep.
    FallAsleep,
    /// It wakes up.
    Wake { others_sleep: bool },
    /// It sends.
    Send { length: u16, times: u8 },
    /// A record, where the reader will look next or so many slots behind.
    Record {
        slots: u16,
        length: Number,
        request: Number,
    },
}

#[derive(Arbitrary, Debug)]
enum Number {
    Small(u8),
    Medium(u16),
    Any(u32),
    Skip,
}

impl Number {
    fn value(&self) -> u64 {
        match *self {
            Number::Small(number) => number.into(),
            Number::Medium(number) => number.into(),
            Number::Any(number) => number.into(),
            Number::Skip => u32::MAX.into(),
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Position {
    Any(u64),
    /// So many slots from where the other side is.
    Slots(i16),
    /// So many bytes from there.
    Bytes(i8),
}

impl Position {
    fn from(&self, here: u64) -> u64 {
        match *self {
            Position::Any(position) => position,
            Position::Slots(slots) => here.wrapping_add_signed(i64::from(slots) * layout::ALIGN as i64),
            Position::Bytes(bytes) => here.wrapping_add_signed(bytes.into()),
        }
    }
}

/// Runs the script in `bytes`.
pub fn rings(bytes: &[u8]) {
    let mut script = Unstructured::new(bytes);
    let mut steps: Vec<Step> = Vec::new();
    while !script.is_empty() && steps.len() < STEPS {
        let Ok(step) = script.arbitrary() else { break };
        steps.push(step);
    }
    let (mut reader, written) = ReaderVictim::new();
    let (mut writer, read) = WriterVictim::new();
    let mut sent = 0;
    let hostile = Hostile {
        written,
        read,
        furthest: Cell::new(0),
    };
    let steps = RefCell::new(steps.into_iter().peekable());
    // What the hostile process does while a batch is looked at.
    let meanwhile = || {
        if let Some(step) = steps.borrow_mut().next_if(|step| hostile.can(step)) {
            hostile.act(&step);
        }
    };
    loop {
        let Some(step) = steps.borrow_mut().next() else {
            break;
        };
        match step {
            Step::Poll => {
                let mut inspection = Inspection::default();
                let batches = reader.receive(&mut |datagrams| {
                    inspection.look_at(datagrams);
                    meanwhile();
                });
                assert_eq!(batches, inspection.batches as u64);
                assert!(inspection.batches <= BATCHES_PER_POLL);
                let mut records = 0;
                let counted = reader.receive_records(&mut |request, room| {
                    assert!(!request.is_empty() && request.len() + room.len() <= layout::RECORD_RING / 4);
                    std::hint::black_box(request.iter().fold(0_u8, |sum, byte| sum ^ byte));
                    room.fill(records as u8);
                    records += 1;
                    meanwhile();
                    RecordAnswer::Fetched(records)
                });
                assert!(counted == records && records <= BATCHES_PER_POLL as u64);
            }
            Step::FallAsleep => drop(reader.fall_asleep()),
            Step::Wake { others_sleep } => reader.wake(others_sleep),
            Step::Send { length, times } => {
                for _ in 0..times {
                    let room = writer.send(length.into(), 0x5a);
                    sent += room.unwrap_or(0) as u64;
                }
                // No more than fits behind the furthest that the reader said it has read.
                assert!(sent <= hostile.furthest.get().saturating_add(layout::RING as u64));
            }
            step => hostile.act(&step),
        }
    }
    let mut inspection = Inspection::default();
    // It goes on writing after it has hung up.
    let refill = || {
        let read = hostile.written.peek(layout::READ);
        hostile
            .written
            .poke(layout::WRITTEN, read.wrapping_add(layout::RING as u64));
    };
    reader.end(&mut |datagrams| {
        inspection.look_at(datagrams);
        refill();
    });
    assert!(inspection.batches <= BATCHES_AT_THE_END);
}

/// The hostile process.
struct Hostile {
    /// The lane that it writes.
    written: HostileMemory,
    /// The lane that it reads.
    read: HostileMemory,
    /// The furthest that it said it has read there.
    furthest: Cell<u64>,
}

impl Hostile {
    /// Whether a step is one of its.
    fn can(&self, step: &Step) -> bool {
        matches!(
            step,
            Step::Poke { .. }
                | Step::Header { .. }
                | Step::Written(_)
                | Step::Read { .. }
                | Step::Record { .. }
        )
    }

    fn act(&self, step: &Step) {
        match step {
            Step::Poke { at, word } => {
                self.written.poke(*at as usize, *word);
                self.read.poke(*at as usize, *word);
            }
            Step::Header { slot, length, stride } => {
                let here = self.written.peek(layout::READ) as usize;
                let at = slot.map_or(here, |slot| usize::from(slot) * layout::ALIGN) % layout::RING;
                let header = length.value() | stride.value() << 32;
                self.written.poke(layout::DATA + at, header);
            }
            Step::Record {
                slots,
                length,
                request,
            } => {
                let next = self.written.peek(layout::RECORDS_READ);
                let position = next.wrapping_add(u64::from(*slots) * layout::ALIGN as u64);
                let at = layout::RECORDS + position as usize % layout::RECORD_RING;
                self.written.poke(at + 8, length.value() | request.value() << 32);
                self.written.poke(at, position.wrapping_add(1));
            }
            Step::Written(position) => {
                let here = self.written.peek(layout::READ);
                self.written.poke(layout::WRITTEN, position.from(here));
            }
            Step::Read { position, asleep } => {
                let here = self.read.peek(layout::WRITTEN);
                self.read.poke(layout::READ, position.from(here));
                self.read.poke(layout::ASLEEP, (*asleep).into());
            }
            _ => {}
        }
        let said = self.read.peek(layout::READ);
        self.furthest.set(self.furthest.get().max(said));
    }
}

/// What a victim was given.
#[derive(Default)]
struct Inspection {
    batches: usize,
}

impl Inspection {
    fn look_at(&mut self, datagrams: &Datagrams<'_>) {
        assert!(!datagrams.sealed && datagrams.stride > 0);
        assert!(!datagrams.bytes.is_empty() && datagrams.bytes.len() < layout::RING);
        let sum: usize = datagrams.segments().map(<[u8]>::len).sum();
        assert_eq!(sum, datagrams.bytes.len());
        // Whatever is outside is not readable, or not ours.
        std::hint::black_box(datagrams.bytes.iter().fold(0_u8, |sum, byte| sum ^ byte));
        self.batches += 1;
    }
}
