//! One direction of a byte stream in virtual time: TCP as its two programs see it, without its packets.
//!
//! Bytes arrive in order and once, cut anywhere, after a delay; no more are under way than there is room for, so that a
//! writer is refused now and then. A direction may stall, end, break off or have one bit of it flipped. Loss and
//! reordering do not exist here: TCP hides them.

use nonic_netem::Prng;
use std::collections::VecDeque;

/// Habits of a direction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct PipeProfile {
    pub(crate) latency_ns: u64,
    pub(crate) jitter_ns: u64,
    /// Bytes that may be written and not yet read.
    pub(crate) room: usize,
    /// Bytes that one write takes, at most.
    pub(crate) write_max: usize,
    /// Bytes that one read yields, at most.
    pub(crate) read_max: usize,
}

/// Something that happens to a direction once so many bytes of the stream have passed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum PipeFault {
    /// A bit of the next byte is flipped when it is written.
    Flip { at: u64, bit: u8 },
    /// The reader gets no byte behind it.
    Cut { at: u64 },
}

/// What a reader gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Read {
    Bytes(Vec<u8>),
    /// Nothing yet.
    Nothing,
    /// The writer has ended its half.
    End,
}

/// A direction.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) profile: PipeProfile,
    flight: VecDeque<(u64, Vec<u8>)>,
    arrived: VecDeque<u8>,
    /// Bytes written and not read.
    queued: usize,
    /// Bytes written, and read, so far.
    pub(crate) written: u64,
    pub(crate) read: u64,
    last_arrival_ns: u64,
    /// When the end of this half arrives.
    end_ns: Option<u64>,
    /// Until then nothing is taken from the writer.
    pub(crate) closed_until_ns: u64,
    /// Until then nothing that is written arrives.
    pub(crate) stalled_until_ns: u64,
    pub(crate) fault: Option<PipeFault>,
    /// The fault has happened.
    pub(crate) struck: bool,
}

impl Pipe {
    pub(crate) fn new(profile: PipeProfile) -> Self {
        Pipe {
            profile,
            flight: VecDeque::new(),
            arrived: VecDeque::new(),
            queued: 0,
            written: 0,
            read: 0,
            last_arrival_ns: 0,
            end_ns: None,
            closed_until_ns: 0,
            stalled_until_ns: 0,
            fault: None,
            struck: false,
        }
    }

    /// Takes the first bytes; returns how many, and when they arrive.
    pub(crate) fn write(&mut self, now_ns: u64, bytes: &[u8], prng: &mut Prng) -> (usize, u64) {
        let room = self.profile.room.saturating_sub(self.queued);
        let most = bytes.len().min(room).min(self.profile.write_max);
        if most == 0 || now_ns < self.closed_until_ns {
            return (0, 0);
        }
        let taken = match prng.below(4) {
            0 => prng.range(1, most as u64) as usize,
            _ => most,
        };
        let mut copy = bytes[..taken].to_vec();
        if let Some(PipeFault::Flip { at, bit }) = self.fault {
            let index = at.checked_sub(self.written);
            if let Some(byte) = index.and_then(|index| copy.get_mut(index as usize)) {
                *byte ^= 1 << bit;
                self.struck = true;
            }
        }
        let leaves_ns = now_ns.max(self.stalled_until_ns);
        let arrival_ns = leaves_ns + self.profile.latency_ns + prng.below(self.profile.jitter_ns + 1);
        self.last_arrival_ns = self.last_arrival_ns.max(arrival_ns);
        self.flight.push_back((self.last_arrival_ns, copy));
        self.queued += taken;
        self.written += taken as u64;
        (taken, self.last_arrival_ns)
    }

    /// The writer ends this half; when that arrives.
    pub(crate) fn end(&mut self, now_ns: u64) -> u64 {
        let leaves_ns = now_ns.max(self.stalled_until_ns);
        let arrival_ns = self.last_arrival_ns.max(leaves_ns + self.profile.latency_ns);
        *self.end_ns.get_or_insert(arrival_ns)
    }

    /// Moves what has arrived by now to where it can be read; returns how much.
    pub(crate) fn arrive(&mut self, now_ns: u64) -> usize {
        let before = self.arrived.len();
        while self.flight.front().is_some_and(|(at_ns, _)| *at_ns <= now_ns) {
            let first = self.flight.pop_front();
            self.arrived
                .extend(first.into_iter().flat_map(|(_, bytes)| bytes));
        }
        self.arrived.len() - before
    }

    /// Reads what has arrived, as much as one read yields.
    pub(crate) fn read(&mut self, now_ns: u64, prng: &mut Prng) -> Read {
        self.arrive(now_ns);
        let mut most = self.arrived.len().min(self.profile.read_max);
        if let Some(PipeFault::Cut { at }) = self.fault {
            most = most.min(at.saturating_sub(self.read) as usize);
            self.struck |= self.read >= at;
        }
        if most == 0 {
            let ended = self.end_ns.is_some_and(|end_ns| end_ns <= now_ns) && self.queued == 0;
            return if ended { Read::End } else { Read::Nothing };
        }
        let length = match prng.below(3) {
            0 => prng.range(1, most as u64) as usize,
            _ => most,
        };
        self.queued -= length;
        self.read += length as u64;
        Read::Bytes(self.arrived.drain(..length).collect())
    }

    /// Throws away what was written and not read.
    pub(crate) fn discard(&mut self) {
        self.flight.clear();
        self.arrived.clear();
        self.queued = 0;
    }

    /// Bytes that could be read now.
    pub(crate) fn readable(&self) -> usize {
        self.arrived.len()
    }

    /// Whether a read at this time would yield bytes or the end.
    pub(crate) fn is_readable(&self, now_ns: u64) -> bool {
        !self.arrived.is_empty()
            || self.flight.front().is_some_and(|(at_ns, _)| *at_ns <= now_ns)
            || (self.queued == 0 && self.end_ns.is_some_and(|end_ns| end_ns <= now_ns))
    }

    /// Whether everything that was written has been read.
    pub(crate) fn is_empty(&self) -> bool {
        self.queued == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: PipeProfile = PipeProfile {
        latency_ns: 100,
        jitter_ns: 50,
        room: 10,
        write_max: 4,
        read_max: 3,
    };

    #[test]
    fn bytes_arrive_in_order_and_once_however_they_are_cut() {
        let (mut pipe, mut prng) = (Pipe::new(PROFILE), Prng::new(1));
        let sent: Vec<u8> = (0..200).collect();
        let (mut offset, mut got, mut now_ns) = (0, Vec::new(), 0);
        while got.len() < sent.len() {
            offset += pipe.write(now_ns, &sent[offset..], &mut prng).0;
            assert!(pipe.queued <= PROFILE.room);
            if let Read::Bytes(bytes) = pipe.read(now_ns, &mut prng) {
                got.extend(bytes);
            }
            now_ns += 20;
        }
        assert_eq!(got, sent);
        let end_ns = pipe.end(now_ns);
        assert_eq!(pipe.read(now_ns, &mut prng), Read::Nothing);
        assert_eq!(pipe.read(end_ns, &mut prng), Read::End);
    }

    #[test]
    fn one_bit_is_flipped_where_it_was_asked_for() {
        let (mut pipe, mut prng) = (Pipe::new(PROFILE), Prng::new(1));
        pipe.fault = Some(PipeFault::Flip { at: 5, bit: 2 });
        let (mut got, mut now_ns, mut offset) = (Vec::new(), 0, 0);
        while got.len() < 9 {
            offset += pipe.write(now_ns, &[0; 9][offset..], &mut prng).0;
            if let Read::Bytes(bytes) = pipe.read(now_ns, &mut prng) {
                got.extend(bytes);
            }
            now_ns += 50;
        }
        assert_eq!(got, [0, 0, 0, 0, 0, 4, 0, 0, 0]);
        assert!(pipe.struck);
    }
}
