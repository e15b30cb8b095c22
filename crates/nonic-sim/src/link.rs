//! A link: delays packets, and drops those that do not fit its queue.
//!
//! Packets leave in the order they came and never overtake each other. All other faults are injected by
//! [`FaultInjector`](nonic_netem::FaultInjector), which wraps a link. The queue stands for a socket's receive
//! buffer, which is what overflows first in practice.

use nonic_netem::{Bottleneck, BottleneckSettings, Prng, Rate, Train};

/// What a link is like.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LinkProfile {
    /// Time from one end to the other.
    pub latency_ns: u64,
    /// Up to this much more, at random. Order is kept.
    pub jitter_ns: u64,
    /// Time one byte occupies the link: 80 for 100 Gbit/s, 8000 for 1 Gbit/s.
    pub byte_time_ps: u64,
    /// Bytes that may wait; a packet that does not fit is dropped.
    pub queue_bytes: usize,
    /// The longest packet (UDP payload) that passes.
    pub max_packet: usize,
}

impl Default for LinkProfile {
    fn default() -> Self {
        LinkProfile {
            latency_ns: 2_000,
            jitter_ns: 0,
            byte_time_ps: 80,
            queue_bytes: 4 << 20,
            max_packet: 9_000,
        }
    }
}

impl LinkProfile {
    /// The longest a packet may take that is not dropped.
    pub fn worst_delay_ns(&self) -> u64 {
        let queue_bytes = self.queue_bytes as u64;
        self.latency_ns + self.jitter_ns + self.rate().occupied_ns(queue_bytes)
    }

    fn rate(&self) -> Rate {
        Rate::of_byte_time_ps(self.byte_time_ps)
    }
}

/// A link in operation.
#[derive(Clone, Debug)]
pub struct Link {
    profile: LinkProfile,
    bottleneck: Bottleneck,
    last_arrival_ns: u64,
    dropped_packets: u64,
}

impl Link {
    /// An idle link.
    pub fn new(profile: LinkProfile) -> Self {
        Link {
            profile,
            bottleneck: Bottleneck::new(BottleneckSettings {
                rate: profile.rate(),
                queue_bytes: profile.queue_bytes as u64,
                red: None,
                red_drops: false,
            }),
            last_arrival_ns: 0,
            dropped_packets: 0,
        }
    }

    /// What it is like.
    pub fn profile(&self) -> &LinkProfile {
        &self.profile
    }

    /// Packets dropped because the queue was full or they were too long.
    pub fn dropped_packets(&self) -> u64 {
        self.dropped_packets
    }

    /// Takes a train at `now_ns`. Packets that do not fit are cut off its end (or, if too long for the link, all of
    /// them). Returns when the rest arrives, `None` if there is no rest.
    pub fn offer(&mut self, now_ns: u64, train: &mut Train, prng: &mut Prng) -> Option<u64> {
        let profile = self.profile;
        let packets = train.len();
        let room = self.bottleneck.room(now_ns) as usize;
        if train.stride.min(train.bytes.len()) > profile.max_packet {
            train.bytes.clear();
        } else if train.bytes.len() > room {
            // An empty queue takes one packet, however small it is.
            let least = usize::from(self.bottleneck.backlog(now_ns) == 0);
            let whole = (room / train.stride).max(least);
            train.bytes.truncate(whole * train.stride);
        }
        self.dropped_packets += (packets - train.len()) as u64;
        if train.is_empty() {
            return None;
        }
        let done = self.bottleneck.send(now_ns, train.bytes.len() as u64);
        let jitter = if profile.jitter_ns > 0 {
            prng.below(profile.jitter_ns + 1)
        } else {
            0
        };
        self.last_arrival_ns = self.last_arrival_ns.max(done + profile.latency_ns + jitter);
        Some(self.last_arrival_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(packets: usize) -> Train {
        Train {
            src: "10.0.0.1:4791".parse().unwrap(),
            dst: "10.0.0.2".parse().unwrap(),
            stride: 1000,
            first_id: 0,
            bytes: vec![0; packets * 1000],
        }
    }

    fn profile() -> LinkProfile {
        LinkProfile {
            latency_ns: 100,
            jitter_ns: 0,
            byte_time_ps: 1000,
            queue_bytes: 3500,
            max_packet: 1500,
        }
    }

    #[test]
    fn bytes_take_their_time_and_queue_behind_each_other() {
        let mut link = Link::new(profile());
        let mut prng = Prng::new(0);
        assert_eq!(link.offer(0, &mut train(1), &mut prng), Some(1100));
        assert_eq!(link.offer(0, &mut train(1), &mut prng), Some(2100));
        assert_eq!(link.offer(10_000, &mut train(1), &mut prng), Some(11_100));
    }

    #[test]
    fn what_does_not_fit_the_queue_is_dropped_from_the_tail() {
        let mut link = Link::new(profile());
        let mut prng = Prng::new(0);
        let mut long = train(8);
        assert_eq!(link.offer(0, &mut long, &mut prng), Some(3100));
        assert_eq!((long.len(), link.dropped_packets()), (3, 5));
        assert_eq!(link.offer(0, &mut train(1), &mut prng), None);
        assert_eq!(link.dropped_packets(), 6);
    }

    #[test]
    fn packets_above_the_mtu_do_not_pass() {
        let mut link = Link::new(LinkProfile {
            max_packet: 999,
            ..profile()
        });
        assert_eq!(link.offer(0, &mut train(2), &mut Prng::new(0)), None);
        assert_eq!(link.dropped_packets(), 2);
    }

    #[test]
    fn jitter_keeps_the_order() {
        let jittery = LinkProfile {
            jitter_ns: 50_000,
            ..profile()
        };
        let mut link = Link::new(jittery);
        let mut prng = Prng::new(3);
        let mut last = 0;
        for step in 0..200 {
            let arrival = link.offer(step * 2000, &mut train(1), &mut prng);
            let arrival = arrival.expect("the queue is never full at this rate");
            assert!(arrival >= last);
            last = arrival;
        }
    }
}
