//! A cache of the kernel's answers to which addresses are this host's.
//!
//! Asking the kernel takes a socket of its own and longer than all else that connecting a queue pair does. A program that
//! opens thousands of connections to one peer would ask for each. An address that comes or goes is noticed a moment later.

use crate::netdev::{self, LocalAddress};
use nonic_core::Time;
use std::collections::HashMap;
use std::time::Duration;

/// How long an answer is believed.
const BELIEVED_FOR: Duration = Duration::from_millis(500);
/// The most addresses remembered; beyond, the table starts afresh.
const MAX_ENTRIES: usize = 4096;

/// What the kernel said of addresses.
#[derive(Debug, Default)]
pub(super) struct Locality {
    known: HashMap<LocalAddress, Answer>,
}

#[derive(Copy, Clone, Debug)]
struct Answer {
    is_local: bool,
    at: Time,
}

impl Locality {
    /// Whether an address is this host's.
    pub(super) fn is_local(&mut self, now: Time, address: LocalAddress) -> bool {
        self.find(now, address, netdev::is_local)
    }

    fn find(&mut self, now: Time, address: LocalAddress, ask: impl FnOnce(LocalAddress) -> bool) -> bool {
        if let Some(answer) = self.known.get(&address) {
            if now.since(answer.at) < BELIEVED_FOR {
                return answer.is_local;
            }
        }
        if self.known.len() >= MAX_ENTRIES {
            self.known.clear();
        }
        let is_local = ask(address);
        self.known.insert(address, Answer { is_local, at: now });
        is_local
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn the_kernel_is_asked_once_in_a_while_and_believed_meanwhile() {
        let mut locality = Locality::default();
        let address = LocalAddress::from(IpAddr::from([192, 0, 2, 1]));
        let at = |ms: u64| Time::from_ns(ms * 1_000_000);
        assert!(!locality.find(at(0), address, |_| false));
        assert!(!locality.find(at(499), address, |_| unreachable!("it was asked")));
        assert!(locality.find(at(500), address, |_| true), "the address has come");
        assert!(locality.find(at(999), address, |_| unreachable!("it was asked")));
    }
}
