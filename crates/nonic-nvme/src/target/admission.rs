//! Admission: how many queues each host may have.
//!
//! A target has a limited number of queues, and the hosts at one address a part of them: one host cannot keep the
//! others out. If there is no room, a queue whose host has not said Connect is given up: of the address that has most
//! of those, the oldest.
//!
//! Nothing here does I/O. Read first: [`Queues::room`].

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// How many queues there are.
#[derive(Copy, Clone, Debug)]
pub(super) struct Limits {
    pub(super) all: usize,
    pub(super) per_host: usize,
}

/// Whether there is room for one more.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Room {
    Free,
    /// If this one goes.
    Instead(u64),
    None,
}

/// The queues of all hosts, each with a number; later ones have higher numbers.
#[derive(Debug)]
pub(super) struct Queues<Q> {
    queues: BTreeMap<u64, (IpAddr, Q)>,
    next: u64,
}

impl<Q> Default for Queues<Q> {
    fn default() -> Self {
        Queues {
            queues: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<Q> Queues<Q> {
    pub(super) fn insert(&mut self, host: IpAddr, queue: Q) -> u64 {
        let number = self.next;
        self.next += 1;
        self.queues.insert(number, (host, queue));
        number
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Q> {
        self.queues.remove(&number).map(|(_, queue)| queue)
    }

    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Q)> {
        self.queues.iter().map(|(number, (_, queue))| (*number, queue))
    }

    /// Whether `host` may have one more, given which ones are `unconnected`.
    pub(super) fn room(&self, host: IpAddr, limits: Limits, unconnected: &[u64]) -> Room {
        let of_host = self.queues.values().filter(|(other, _)| *other == host);
        let is_host_full = of_host.count() >= limits.per_host;
        if !is_host_full && self.queues.len() < limits.all {
            return Room::Free;
        }
        let hosts = unconnected.iter().filter_map(|number| {
            let (host, _) = self.queues.get(number)?;
            Some((*number, *host))
        });
        let candidates: Vec<(u64, IpAddr)> = hosts
            .filter(|(_, other)| !is_host_full || *other == host)
            .collect();
        let victim = candidates.iter().max_by_key(|(number, host)| {
            let of_same = candidates.iter().filter(|(_, other)| other == host);
            (of_same.count(), Reverse(*number))
        });
        victim.map_or(Room::None, |(number, _)| Room::Instead(*number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { all: 6, per_host: 4 };

    fn host(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// Queues of hosts in this order; their numbers are their places.
    fn queues(hosts: &[u8]) -> Queues<()> {
        let mut queues = Queues::default();
        for last in hosts {
            queues.insert(host(*last), ());
        }
        queues
    }

    #[test]
    fn a_host_has_a_part_of_all_queues() {
        let queues = queues(&[1, 1, 1, 1]);
        assert_eq!(queues.room(host(1), LIMITS, &[]), Room::None);
        assert_eq!(queues.room(host(2), LIMITS, &[]), Room::Free);
    }

    #[test]
    fn where_all_are_connected_nobody_goes() {
        let queues = queues(&[1, 1, 1, 2, 2, 2]);
        assert_eq!(queues.room(host(3), LIMITS, &[]), Room::None);
    }

    #[test]
    fn a_full_host_makes_room_for_itself() {
        let queues = queues(&[2, 1, 1, 1, 1]);
        assert_eq!(queues.room(host(1), LIMITS, &[0, 2, 3]), Room::Instead(2));
        assert_eq!(queues.room(host(1), LIMITS, &[0]), Room::None);
    }

    #[test]
    fn the_oldest_of_whoever_has_most_makes_room() {
        let queues = queues(&[3, 1, 2, 2, 1, 2]);
        assert_eq!(queues.room(host(4), LIMITS, &[0, 1, 2, 3, 5]), Room::Instead(2));
        assert_eq!(queues.room(host(4), LIMITS, &[0, 1, 2]), Room::Instead(0));
    }
}
