//! Lanes to and from a hostile process, which writes to the shared memory what it likes, when it likes.
//!
//! The input is read as a script of two lanes: one whose writer is hostile, and one whose reader is. What the hostile
//! process does may also fall into the middle of a poll, after any record. Whatever it says:
//! - nothing panics, and nothing is read or written outside of the ring;
//! - a poll executes no more records than it should, however fast the ring is filled, and a lane whose writer has hung up ends;
//! - a record is looked at and answered inside of its own bytes;
//! - a writer has no more under way than fits the ring, and takes back what it wrote.

use arbitrary::{Arbitrary, Unstructured};
use nonic_core::RecordAnswer;
use nonic_engine::fuzzing::{HostileMemory, ReaderVictim, WriterVictim, layout};
use std::cell::RefCell;
use std::collections::VecDeque;

/// A poll executes no more records than this from a lane.
const RECORDS_PER_POLL: u64 = 16;
/// The longest record.
const LONGEST: usize = layout::RING / 4;
/// So many polls take as many records as there can be in a ring.
const POLLS_AT_THE_END: usize = layout::RING / layout::ALIGN / RECORDS_PER_POLL as usize + 1;
/// Steps of a script.
const STEPS: usize = 400;

#[derive(Arbitrary, Debug)]
enum Step {
    /// Any word, anywhere.
    Poke { at: u32, word: u64 },
    /// How far the hostile reader has executed records, and whether it sleeps.
    Read { position: Position, asleep: u8 },
    /// The victim polls.
    Poll,
    /// It falls asleep.
    FallAsleep,
    /// It wakes up.
    Wake { others_sleep: bool },
    /// It sends, with room for an answer.
    Send { length: u16, answer: u16, times: u8 },
    /// It takes answers.
    TakeAnswers { times: u8 },
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
    /// So many slots from where it was.
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
    let hostile = Hostile { written, read };
    // The room for answers of the records that are under way.
    let mut under_way = VecDeque::new();
    let steps = RefCell::new(steps.into_iter().peekable());
    // What the hostile process does while a record is looked at.
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
                let mut records = 0;
                let counted = reader.receive_records(&mut |request, room| {
                    assert!(!request.is_empty() && request.len() + room.len() <= LONGEST);
                    // What is outside is not readable, or not ours.
                    std::hint::black_box(request.iter().fold(0_u8, |sum, byte| sum ^ byte));
                    room.fill(records as u8);
                    records += 1;
                    meanwhile();
                    RecordAnswer::Fetched(records)
                });
                assert!(counted == records && records <= RECORDS_PER_POLL);
            }
            Step::FallAsleep => drop(reader.fall_asleep()),
            Step::Wake { others_sleep } => reader.wake(others_sleep),
            Step::Send {
                length,
                answer,
                times,
            } => {
                for _ in 0..times {
                    if writer.send(length.into(), answer.into(), 0x5a) {
                        under_way.push_back(usize::from(answer));
                    }
                }
                assert!(under_way.len() <= layout::RING / layout::ALIGN, "more than fits");
            }
            Step::TakeAnswers { times } => {
                for _ in 0..times {
                    let Some(bytes) = writer.take_answer() else { break };
                    assert_eq!(
                        Some(bytes),
                        under_way.pop_front(),
                        "in the order in which they were written"
                    );
                }
            }
            step => hostile.act(&step),
        }
    }
    hang_up(&mut reader, &hostile);
}

/// The hostile process hangs up and goes on writing: the lane ends all the same.
fn hang_up(reader: &mut ReaderVictim, hostile: &Hostile) {
    reader.end();
    for _ in 0..POLLS_AT_THE_END {
        reader.receive_records(&mut |_, _| {
            hostile.write_records();
            RecordAnswer::Ignored
        });
        hostile.write_records();
    }
    assert!(reader.is_closed());
}

/// The hostile process.
struct Hostile {
    /// The lane that it writes.
    written: HostileMemory,
    /// The lane that it reads.
    read: HostileMemory,
}

impl Hostile {
    /// Whether a step is one of its.
    fn can(&self, step: &Step) -> bool {
        matches!(step, Step::Poke { .. } | Step::Read { .. } | Step::Record { .. })
    }

    fn act(&self, step: &Step) {
        match step {
            Step::Poke { at, word } => {
                self.written.poke(*at as usize, *word);
                self.read.poke(*at as usize, *word);
            }
            Step::Record {
                slots,
                length,
                request,
            } => {
                let next = self.written.peek(layout::RECORDS_READ);
                let position = next.wrapping_add(u64::from(*slots) * layout::ALIGN as u64);
                self.write_record(position, length.value(), request.value());
            }
            Step::Read { position, asleep } => {
                let here = self.read.peek(layout::RECORDS_READ);
                self.read.poke(layout::RECORDS_READ, position.from(here));
                self.read.poke(layout::ASLEEP, (*asleep).into());
            }
            _ => {}
        }
    }

    fn write_record(&self, position: u64, length: u64, request: u64) {
        let at = layout::RECORDS + position as usize % layout::RING;
        self.written.poke(at + 8, length | request << 32);
        self.written.poke(at, position.wrapping_add(1));
    }

    /// As many short records as a poll executes.
    fn write_records(&self) {
        let next = self.written.peek(layout::RECORDS_READ);
        for ahead in 0..2 * RECORDS_PER_POLL {
            self.write_record(next.wrapping_add(ahead * layout::ALIGN as u64), 16, 16);
        }
    }
}
