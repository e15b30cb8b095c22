//! Pacing of requests to disconnect: how many are under way to one address at a time.
//!
//! A program that drops ten thousand connections does so in an instant, but the socket at the other end holds a few
//! hundred messages. The rest would be lost, and repeated only after seconds. So only a few are sent at a time, and
//! each answer releases the next. Without an answer the next ones are sent all the same, a little later.
//!
//! Requests to connect are not paced: the program decides how many it has under way.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Requests under way to one address.
const LIMIT: usize = 64;
/// Without an answer, `LIMIT` of the requests held back are sent each such time.
const TURN: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(super) struct Pace {
    peers: HashMap<IpAddr, Peer>,
    /// Nothing is held back any more.
    hurry: bool,
}

#[derive(Debug, Default)]
struct Peer {
    under_way: usize,
    /// Those held back, by local identifier. One that has gone meanwhile is passed over when its turn comes.
    held: VecDeque<u32>,
}

impl Pace {
    /// Whether a request may go; if not, how long it waits at most.
    pub(super) fn admit(&mut self, address: IpAddr, id: u32) -> Result<(), Duration> {
        let peer = self.peers.entry(address).or_default();
        if self.hurry || peer.under_way < LIMIT {
            peer.under_way += 1;
            return Ok(());
        }
        peer.held.push_back(id);
        Err(TURN * (1 + peer.held.len() / LIMIT) as u32)
    }

    /// One that was held back goes.
    pub(super) fn goes(&mut self, address: IpAddr) {
        self.peers.entry(address).or_default().under_way += 1;
    }

    /// One was answered, or given up.
    pub(super) fn ended(&mut self, address: IpAddr) {
        if let Some(peer) = self.peers.get_mut(&address) {
            peer.under_way = peer.under_way.saturating_sub(1);
        }
    }

    /// The next that may go, if there is room for it.
    pub(super) fn next(&mut self, address: IpAddr) -> Option<u32> {
        let peer = self.peers.get_mut(&address)?;
        let next = if peer.under_way < LIMIT {
            peer.held.pop_front()
        } else {
            None
        };
        if peer.under_way == 0 && peer.held.is_empty() {
            self.peers.remove(&address);
        }
        next
    }

    /// Holds nothing back from now on.
    pub(super) fn hurry(&mut self) {
        self.hurry = true;
    }
}
