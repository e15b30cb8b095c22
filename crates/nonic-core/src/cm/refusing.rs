//! A bounded table of the hosts that refused a message lately.

use crate::time::Time;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Hosts remembered at a time. One more evicts the host whose last refusal is the oldest.
const MAX_HOSTS: usize = 64;

/// Hosts that refused a message lately, and have sent none since.
#[derive(Debug, Default)]
pub(super) struct RefusingHosts(HashMap<IpAddr, Refused>);

/// When a host refused: for the first time, as far as that is remembered, and last.
#[derive(Copy, Clone, Debug)]
struct Refused {
    first: Time,
    last: Time,
}

impl RefusingHosts {
    /// A host refuses a message; what it refused longer than `memory` ago does not count any more.
    pub(super) fn note(&mut self, now: Time, address: IpAddr, memory: Duration) {
        let lately = self.lately(now, address, memory);
        if self.0.len() >= MAX_HOSTS && !self.0.contains_key(&address) {
            let oldest = self.0.iter().min_by_key(|(_, refused)| refused.last);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.0.remove(&oldest);
            }
        }
        let first = lately.map_or(now, |refused| refused.first);
        self.0.insert(address, Refused { first, last: now });
    }

    pub(super) fn has(&self, now: Time, address: IpAddr, memory: Duration) -> bool {
        self.lately(now, address, memory).is_some()
    }

    /// Whether it has refused at least two messages of which the later was sent `pause` after the earlier was refused.
    pub(super) fn repeatedly(&self, address: IpAddr, pause: Duration) -> bool {
        let refused = self.0.get(&address);
        refused.is_some_and(|refused| refused.last.since(refused.first) >= pause)
    }

    fn lately(&self, now: Time, address: IpAddr, memory: Duration) -> Option<Refused> {
        let refused = self.0.get(&address).copied();
        refused.filter(|refused| now.since(refused.last) < memory)
    }

    /// A message came from there.
    pub(super) fn answered(&mut self, address: IpAddr) {
        self.0.remove(&address);
    }
}
