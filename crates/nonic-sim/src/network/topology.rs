//! The topology of a network: hosts on leaf switches, and spine switches between these.
//!
//! One leaf is a single switch; two leaves and one spine are two groups of hosts with a bottleneck between them.

use nonic_netem::{Marking, Rate};

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
    pub(super) rate: Rate,
    pub(super) delay_ns: u64,
}

impl Cable {
    pub(super) fn gigabits(rate: u64, delay_ns: u64) -> Cable {
        Cable {
            rate: Rate::bits_per_second(rate * 1_000_000_000),
            delay_ns,
        }
    }

    /// Bytes it carries in so long.
    pub(super) fn carries(&self, ns: u64) -> u64 {
        self.rate.bytes_in(ns)
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
