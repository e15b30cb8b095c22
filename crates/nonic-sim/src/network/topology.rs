//! The topology of a network: hosts on leaf switches, and spine switches between these.
//!
//! One leaf is a single switch; two leaves and one spine are two groups of hosts with a bottleneck between them.

/// When a switch marks packets: never below `low` bytes in a queue, always above `high`, and between them with a
/// probability that rises to `most` of a thousand.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Marking {
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) most: u64,
}

impl Marking {
    /// What Alibaba's public simulator has for 25 Gbit/s, and many switches by default.
    pub(super) const USUAL: Marking = Marking {
        low: 100_000,
        high: 400_000,
        most: 200,
    };

    /// Of a million packets, how many are marked at this length of the queue.
    pub(super) fn ppm(&self, queued: u64) -> u32 {
        if queued <= self.low {
            0
        } else if queued >= self.high {
            1_000_000
        } else {
            let part = (queued - self.low) * 1_000_000 / (self.high - self.low);
            (part * self.most / 1000) as u32
        }
    }
}

/// How packets are spread over the spines.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Spread {
    /// All packets of a flow take the same path (ECMP).
    Flows,
    /// Each packet takes any (spraying).
    Packets,
}

/// A link in one direction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Cable {
    /// Bits in a second.
    pub(super) rate: u64,
    pub(super) delay_ns: u64,
}

impl Cable {
    pub(super) fn gigabits(rate: u64, delay_ns: u64) -> Cable {
        Cable {
            rate: rate * 1_000_000_000,
            delay_ns,
        }
    }

    /// How long a packet occupies it.
    pub(super) fn occupied_ns(&self, bytes: u32) -> u64 {
        u64::from(bytes) * 8_000_000_000 / self.rate
    }

    /// Bytes it carries in so long.
    pub(super) fn carries(&self, ns: u64) -> u64 {
        (u128::from(self.rate) * u128::from(ns) / 8_000_000_000) as u64
    }
}

/// The whole of it.
#[derive(Clone, Debug)]
pub(super) struct Topology {
    pub(super) leaves: usize,
    pub(super) hosts_per_leaf: usize,
    pub(super) spines: usize,
    /// Between a host and its leaf.
    pub(super) host: Cable,
    /// Between a leaf and a spine.
    pub(super) uplink: Cable,
    /// Hosts whose cable is another.
    pub(super) other: Vec<(usize, Cable)>,
    /// Bytes that all queues of a switch share.
    pub(super) buffer: u64,
    pub(super) marking: Option<Marking>,
    pub(super) spread: Spread,
    /// By so much is each spine further away than the one before.
    pub(super) skew_ns: u64,
    /// Of a million packets that pass a host's cable towards it, so many are lost.
    pub(super) lost_ppm: u32,
}

impl Topology {
    /// Hosts on one switch.
    pub(super) fn star(hosts: usize, host: Cable) -> Topology {
        Topology {
            leaves: 1,
            hosts_per_leaf: hosts,
            spines: 0,
            host,
            uplink: host,
            other: Vec::new(),
            buffer: 16 << 20,
            marking: Some(Marking::USUAL),
            spread: Spread::Flows,
            skew_ns: 0,
            lost_ppm: 0,
        }
    }

    /// Leaves and spines.
    pub(super) fn clos(
        leaves: usize,
        hosts_per_leaf: usize,
        spines: usize,
        host: Cable,
        uplink: Cable,
    ) -> Topology {
        Topology {
            leaves,
            hosts_per_leaf,
            spines,
            uplink,
            ..Topology::star(0, host)
        }
    }

    pub(super) fn hosts(&self) -> usize {
        self.leaves * self.hosts_per_leaf
    }

    pub(super) fn leaf_of(&self, host: usize) -> usize {
        host / self.hosts_per_leaf
    }

    pub(super) fn cable_of(&self, host: usize) -> Cable {
        let other = self.other.iter().find(|(other, _)| *other == host);
        other.map_or(self.host, |(_, cable)| *cable)
    }
}
