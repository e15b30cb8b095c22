//! A bottleneck: a line with a rate, and the queue of bytes that wait for it.
//!
//! The queue is not a list: how many bytes wait follows from when the line will have sent them. A packet that does not fit
//! is dropped at the tail. With RED, packets are marked (ECN) or dropped before the queue is full.

use crate::{Marking, Prng, Rate, Red};

/// What a bottleneck is like.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BottleneckSettings {
    /// How fast the line is.
    pub rate: Rate,
    /// Bytes that may wait for it.
    pub queue_bytes: u64,
    /// Random early detection.
    pub red: Option<Marking>,
    /// RED drops packets even if they can be marked.
    pub red_drops: bool,
}

/// A bottleneck in operation.
#[derive(Clone, Debug)]
pub struct Bottleneck {
    settings: BottleneckSettings,
    /// When everything accepted so far has been put on the wire.
    free_at_ns: u64,
    red: Red,
}

/// How a packet leaves the line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Departure {
    /// When its last byte has left.
    pub at_ns: u64,
    /// With congestion experienced (CE).
    pub marked: bool,
}

/// Why a packet was dropped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The queue was full.
    Full,
    /// RED chose it.
    Early,
}

impl Bottleneck {
    /// An idle one.
    pub fn new(settings: BottleneckSettings) -> Self {
        Bottleneck {
            settings,
            free_at_ns: 0,
            red: Red::default(),
        }
    }

    /// Changes what it is like from now on. What waits leaves when it would have.
    pub fn change(&mut self, settings: BottleneckSettings) {
        self.settings = settings;
    }

    /// Bytes that wait for the line.
    pub fn backlog(&self, now_ns: u64) -> u64 {
        let waiting_ns = self.free_at_ns.saturating_sub(now_ns);
        self.settings.rate.bytes_in(waiting_ns)
    }

    /// Bytes that still fit the queue.
    pub fn room(&self, now_ns: u64) -> u64 {
        self.settings.queue_bytes.saturating_sub(self.backlog(now_ns))
    }

    /// Puts bytes on the wire behind all others, whether or not there is room; when the last has left.
    pub fn send(&mut self, now_ns: u64, bytes: u64) -> u64 {
        self.free_at_ns = self.free_at_ns.max(now_ns) + self.settings.rate.occupied_ns(bytes);
        self.free_at_ns
    }

    /// Takes a packet, if there is room and RED lets it. An idle line takes any packet, however small its queue is.
    pub fn accept(
        &mut self,
        now_ns: u64,
        bytes: u64,
        can_be_marked: bool,
        prng: &mut Prng,
    ) -> Result<Departure, Refusal> {
        if bytes > self.room(now_ns) && self.free_at_ns > now_ns {
            return Err(Refusal::Full);
        }
        let chosen = self.red_chooses(now_ns, bytes, prng);
        let marked = chosen && can_be_marked && !self.settings.red_drops;
        if chosen && !marked {
            return Err(Refusal::Early);
        }
        let at_ns = self.send(now_ns, bytes);
        Ok(Departure { at_ns, marked })
    }

    fn red_chooses(&mut self, now_ns: u64, bytes: u64, prng: &mut Prng) -> bool {
        let Some(marking) = self.settings.red else {
            return false;
        };
        let idle_ns = now_ns.saturating_sub(self.free_at_ns);
        let packet_ns = self.settings.rate.occupied_ns(bytes).max(1);
        let idle_packets = idle_ns as f64 / packet_ns as f64;
        let backlog = self.backlog(now_ns);
        self.red.chooses(&marking, backlog, idle_packets, prng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: BottleneckSettings = BottleneckSettings {
        rate: Rate::of_byte_time_ps(1_000),
        queue_bytes: 3_500,
        red: None,
        red_drops: false,
    };

    #[test]
    fn packets_wait_for_each_other_and_the_tail_is_dropped() {
        let (mut line, mut prng) = (Bottleneck::new(SETTINGS), Prng::new(0));
        let mut offer = |now_ns| {
            let departure = line.accept(now_ns, 1_000, true, &mut prng);
            departure.map(|departure| departure.at_ns)
        };
        assert_eq!([offer(0), offer(0), offer(0)], [Ok(1_000), Ok(2_000), Ok(3_000)]);
        assert_eq!(offer(0), Err(Refusal::Full));
        assert_eq!(offer(600), Ok(4_000));
        assert_eq!(offer(10_000), Ok(11_000));
    }

    #[test]
    fn a_line_without_a_limit_has_no_queue() {
        let unlimited = BottleneckSettings {
            rate: Rate::UNLIMITED,
            ..SETTINGS
        };
        let (mut line, mut prng) = (Bottleneck::new(unlimited), Prng::new(0));
        let departure = Departure {
            at_ns: 7,
            marked: false,
        };
        for _ in 0..100 {
            assert_eq!(line.accept(7, 1_000, true, &mut prng), Ok(departure));
        }
        assert_eq!((line.backlog(7), line.room(7)), (0, 3_500));
    }
}
