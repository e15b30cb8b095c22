//! Which hosts refused a message lately.

use crate::time::Time;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Hosts remembered at a time. One more, and the longest known is forgotten.
const MAX_HOSTS: usize = 64;

/// Hosts that refused a message lately, and have sent none since.
#[derive(Debug, Default)]
pub(super) struct RefusingHosts(HashMap<IpAddr, Time>);

impl RefusingHosts {
    pub(super) fn note(&mut self, now: Time, address: IpAddr) {
        if self.0.len() >= MAX_HOSTS && !self.0.contains_key(&address) {
            let oldest = self.0.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(address, now);
    }

    pub(super) fn has(&self, now: Time, address: IpAddr, memory: Duration) -> bool {
        self.0.get(&address).is_some_and(|at| now.since(*at) < memory)
    }

    /// A message came from there.
    pub(super) fn answered(&mut self, address: IpAddr) {
        self.0.remove(&address);
    }
}
