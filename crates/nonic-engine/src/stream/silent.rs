//! Silent peers: peers that have opened a connection and not sent a request yet.
//!
//! They take no place in a program's backlog: they have a limit of their own, which is the device's. Beyond it, the oldest
//! connection of the address with most of them is closed, so a peer that opens many can only push out its own. Read first:
//! [`Silent::victim`].

use rustix::process::{Resource, getrlimit};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// How many there are at a time, at most; fewer where that would be more than a quarter of the process's descriptors.
const MOST: usize = 1024;
const LEAST: usize = 8;

/// Connections from which no whole MPA Request has come, in the order in which they were opened.
#[derive(Debug)]
pub(super) struct Silent {
    /// Their slots, and the addresses they come from.
    queue: VecDeque<(usize, IpAddr)>,
    /// How many each has.
    counts: HashMap<IpAddr, usize>,
    limit: usize,
}

impl Silent {
    pub(super) fn new() -> Self {
        Self::with_limit(share_of_descriptors(MOST, LEAST))
    }

    pub(super) fn with_limit(limit: usize) -> Self {
        Silent {
            queue: VecDeque::new(),
            counts: HashMap::new(),
            limit,
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.counts.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= self.limit
    }

    pub(super) fn add(&mut self, slot: usize, peer: IpAddr) {
        let peer = owner(peer);
        self.queue.push_back((slot, peer));
        *self.counts.entry(peer).or_default() += 1;
    }

    /// It has asked for something, or is gone.
    pub(super) fn remove(&mut self, slot: usize) {
        let place = self.queue.iter().position(|(other, _)| *other == slot);
        let Some((_, peer)) = place.and_then(|place| self.queue.remove(place)) else {
            return;
        };
        if let Entry::Occupied(mut count) = self.counts.entry(peer) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// The connection to close if there is no room: the oldest from the address that has most of them.
    pub(super) fn victim(&self) -> Option<usize> {
        let most = self.counts.values().max()?;
        let victim = self
            .queue
            .iter()
            .find(|(_, peer)| self.counts.get(peer) == Some(most));
        victim.map(|(slot, _)| *slot)
    }
}

/// The address, or network, that stands for a peer's host: a host of IPv6 has as many addresses as it likes, all of one
/// network (RFC 4291 §2.5.1).
fn owner(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => ip.into(),
            None => IpAddr::V6((u128::from(ip) & !u128::from(u64::MAX)).into()),
        },
    }
}

/// `most`, but not more than a quarter of the descriptors that the process may have.
pub(super) fn share_of_descriptors(most: usize, least: usize) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 4)
        .unwrap_or(most)
        .clamp(least, most)
}
