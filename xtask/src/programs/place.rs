//! The places where cases run. Unlike the tools', both sides of "one host" use its Ethernet device: programs like these
//! look for the network that leads to others, and leave loopback to shared memory.

use super::case::Place;
use anyhow::Result;
use testbed::confined::Confinement;
use testbed::namespace::VethPair;
use testbed::topology::{self, Topology};

/// Two hosts with both protocols, and two with nothing but IPv6, so that a program that prefers IPv4 must use it.
pub(super) struct Hosts {
    both: VethPair,
    ipv6_only: VethPair,
}

impl Hosts {
    pub(super) fn new() -> Result<Self> {
        let mut hosts = Self {
            both: VethPair::new()?,
            ipv6_only: VethPair::ipv6_only()?,
        };
        for pair in [&mut hosts.both, &mut hosts.ipv6_only] {
            pair.left.become_machine()?;
            pair.right.become_machine()?;
        }
        Ok(hosts)
    }

    pub(super) fn topology<'a>(&'a self, place: Place, confinement: Option<&'a Confinement>) -> Topology<'a> {
        let mut two_hosts = match place {
            Place::OneHost | Place::TwoHosts => topology::all(&self.both)[1],
            Place::OneHostIpv6 | Place::TwoHostsIpv6 => topology::all(&self.ipv6_only)[3],
        };
        for side in [&mut two_hosts.server, &mut two_hosts.client] {
            side.confinement = confinement;
        }
        let name = place.name();
        match place {
            Place::TwoHosts | Place::TwoHostsIpv6 => Topology { name, ..two_hosts },
            Place::OneHost | Place::OneHostIpv6 => Topology {
                name,
                client_address: two_hosts.address,
                client: two_hosts.server,
                ..two_hosts
            },
        }
    }
}
