//! A ring in shared memory with one producer and one consumer: each message is copied in, and copied out.
//!
//! There are two counters, each on a cache line of its own and each written by one side, which also remembers what it last
//! read of the other. Messages longer than a slot go in pieces, so that the copies of both sides overlap and stay in the
//! cache. It knows neither sleeping nor misbehaving peers: nothing can be faster and do the same work.

use super::shared::Shared;
use super::{BATCH, Figure, spin, typical_us};
use anyhow::{Context, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testbed::stats::quantile;

/// The longest piece.
const LONGEST_PIECE: usize = 16 << 10;
/// Slots of a ring take so much together, unless there would be more than [`MOST_SLOTS`].
const RING_BYTES: usize = 512 << 10;
const MOST_SLOTS: usize = 1024;
/// Two cache lines, since processors fetch them by pairs.
const LINE: usize = 128;

/// How the memory is divided: the counters of both rings, then their slots.
#[derive(Copy, Clone)]
struct Layout {
    size: usize,
    piece: usize,
    slots: usize,
}

impl Layout {
    fn new(size: usize) -> Self {
        let piece = size.clamp(1, LONGEST_PIECE);
        let slots = (RING_BYTES / piece).min(MOST_SLOTS);
        Self { size, piece, slots }
    }

    /// From one slot to the next: a message shares no cache line with another.
    fn stride(self) -> usize {
        self.piece.next_multiple_of(64)
    }

    fn ring_bytes(self) -> usize {
        2 * LINE + self.stride() * self.slots
    }

    fn bytes(self) -> usize {
        2 * self.ring_bytes()
    }
}

/// Half a round trip.
pub(super) fn latency(server: &str, size: usize, duration: Duration) -> Result<f64> {
    let batch = if size <= LONGEST_PIECE { BATCH } else { 1 };
    with_round_trips(server, size, |round_trip| {
        Ok(typical_us(duration, batch, round_trip)? / 2.0)
    })
}

/// Half a round trip, each one timed.
pub(super) fn tail(server: &str, size: usize, duration: Duration) -> Result<Figure> {
    with_round_trips(server, size, |round_trip| {
        let mut half_trips = Vec::new();
        let start = Instant::now();
        let mut last = start;
        while last - start < duration {
            round_trip()?;
            let now = Instant::now();
            half_trips.push((now - last).as_secs_f64() * 1e6 / 2.0);
            last = now;
        }
        // The first tenth warms up.
        let timed = half_trips.split_off(half_trips.len() / 10);
        Ok(Figure {
            typical: quantile(&timed, 0.5).context("no time to measure in")?,
            p99: quantile(&timed, 0.99),
        })
    })
}

/// Measures with round trips to the server.
fn with_round_trips<T>(
    server: &str,
    size: usize,
    measure: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> Result<T>,
) -> Result<T> {
    let layout = Layout::new(size);
    let memory = Shared::open(server, layout.bytes())?;
    let mut out = End::new(&memory, layout, 0);
    let mut back = End::new(&memory, layout, 1);
    let mut message = vec![0x5a; size];
    measure(&mut || {
        out.send(&message)?;
        back.receive(&mut message)
    })
}

/// One direction: bytes per second.
pub(super) fn bandwidth(server: &str, size: usize, duration: Duration) -> Result<f64> {
    let layout = Layout::new(size);
    let memory = Shared::open(server, layout.bytes())?;
    let mut out = End::new(&memory, layout, 0);
    let message = vec![0x5a; size];
    let start = Instant::now();
    let mut sent = 0_u64;
    while start.elapsed() < duration {
        for _ in 0..BATCH {
            out.send(&message)?;
        }
        sent += u64::from(BATCH) * size as u64;
    }
    spin(|| Ok(out.is_drained().then_some(())))?;
    Ok(sent as f64 / start.elapsed().as_secs_f64())
}

/// Sends every message back.
pub(super) fn serve_echo(size: usize) -> Result<()> {
    let layout = Layout::new(size);
    let memory = Shared::create(layout.bytes())?;
    println!("{}", memory.line());
    let mut arriving = End::new(&memory, layout, 0);
    let mut leaving = End::new(&memory, layout, 1);
    let mut message = vec![0; size];
    loop {
        arriving.receive(&mut message)?;
        leaving.send(&message)?;
    }
}

/// Copies every message out.
pub(super) fn serve_sink(size: usize) -> Result<()> {
    let layout = Layout::new(size);
    let memory = Shared::create(layout.bytes())?;
    println!("{}", memory.line());
    let mut arriving = End::new(&memory, layout, 0);
    let mut message = vec![0; size];
    loop {
        arriving.receive(&mut message)?;
    }
}

/// One end of a ring: the producer's or the consumer's.
struct End<'a> {
    memory: &'a Shared,
    layout: Layout,
    /// Where the first slot is.
    slots: usize,
    produced: &'a AtomicU64,
    consumed: &'a AtomicU64,
    /// Our own counter.
    ours: u64,
    /// The other side's, as last seen.
    theirs: u64,
}

impl<'a> End<'a> {
    fn new(memory: &'a Shared, layout: Layout, ring: usize) -> Self {
        let start = ring * layout.ring_bytes();
        Self {
            memory,
            layout,
            slots: start + 2 * LINE,
            produced: memory.word(start),
            consumed: memory.word(start + LINE),
            ours: 0,
            theirs: 0,
        }
    }

    fn slot(&self) -> *mut u8 {
        let index = self.ours as usize % self.layout.slots;
        self.memory
            .at(self.slots + index * self.layout.stride(), self.layout.piece)
    }

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        debug_assert_eq!(message.len(), self.layout.size);
        for piece in message.chunks(self.layout.piece) {
            if self.ours - self.theirs == self.layout.slots as u64 {
                let (ours, slots) = (self.ours, self.layout.slots as u64);
                self.theirs = spin(|| {
                    let consumed = self.consumed.load(Ordering::Acquire);
                    Ok((ours - consumed < slots).then_some(consumed))
                })?;
            }
            let slot = self.slot();
            // SAFETY: the slot has room for a piece, and the consumer does not read it before it is announced.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), slot, piece.len()) };
            self.ours += 1;
            self.produced.store(self.ours, Ordering::Release);
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Result<()> {
        debug_assert_eq!(message.len(), self.layout.size);
        for piece in message.chunks_mut(self.layout.piece) {
            if self.theirs == self.ours {
                let ours = self.ours;
                self.theirs = spin(|| {
                    let produced = self.produced.load(Ordering::Acquire);
                    Ok((produced > ours).then_some(produced))
                })?;
            }
            let slot = self.slot();
            // SAFETY: the slot was announced, and the producer does not write it again before it is given back.
            unsafe { std::ptr::copy_nonoverlapping(slot, piece.as_mut_ptr(), piece.len()) };
            self.ours += 1;
            self.consumed.store(self.ours, Ordering::Release);
        }
        Ok(())
    }

    fn is_drained(&self) -> bool {
        self.consumed.load(Ordering::Acquire) == self.ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_any_length_come_out_as_they_went_in() {
        for size in [8, 64, 100, LONGEST_PIECE, LONGEST_PIECE + 1, 5 * LONGEST_PIECE] {
            let layout = Layout::new(size);
            let memory = Shared::create(layout.bytes()).expect("there is memory");
            let mut producer = End::new(&memory, layout, 1);
            let mut consumer = End::new(&memory, layout, 1);
            for turn in 0..3 * layout.slots {
                let message: Vec<u8> = (0..size).map(|at| (at + turn) as u8).collect();
                producer.send(&message).expect("there is room");
                let mut copy = vec![0; size];
                consumer.receive(&mut copy).expect("it was sent");
                assert_eq!(copy, message, "{size} bytes");
            }
            assert!(producer.is_drained());
        }
    }
}
