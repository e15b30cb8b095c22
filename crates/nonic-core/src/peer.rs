//! How much may be on its way to a peer: one window for all queue pairs that talk to it.
//!
//! A UDP socket's receive buffer is what overflows first, and every queue pair of the peer's process shares
//! it. So the window is per address, in bytes of path MTU: it starts small, grows with acknowledgements
//! (doubling, then linearly) and halves on loss. READ responses count as soon as they are asked for.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Window limits, in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WindowConfig {
    /// Where a peer's window starts.
    pub initial: u32,
    /// Beyond this it does not grow.
    pub max: u32,
}

impl Default for WindowConfig {
    fn default() -> Self {
        WindowConfig {
            initial: 256 << 10,
            max: 512 << 10,
        }
    }
}

/// Index of a peer in the table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct PeerId(usize);

#[derive(Debug)]
pub(crate) struct Peer {
    window: u32,
    /// Below this the window doubles per round trip, above it grows linearly.
    threshold: u32,
    max: u32,
    in_flight: u64,
    users: usize,
    ip: IpAddr,
    /// Queue pairs (by slot) that found the window full, and how many bytes each needs room for. Nobody
    /// overtakes: a large READ would never find room next to a stream of small packets.
    line: VecDeque<(usize, u32)>,
    /// The one at the head of the line was told to go and has not been seen since.
    turn_given: bool,
}

impl Peer {
    /// Whether `bytes` more may be sent by a queue pair whose turn it is, or by anyone if nobody waits.
    pub(crate) fn admits(&self, bytes: u32, in_turn: bool) -> bool {
        (in_turn || (self.line.is_empty() && !self.turn_given)) && self.has_room_for(bytes)
    }

    /// One packet always has room if nothing is under way.
    fn has_room_for(&self, bytes: u32) -> bool {
        self.in_flight == 0 || self.in_flight + u64::from(bytes) <= u64::from(self.window)
    }

    /// The window in bytes.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Corrects the amount under way after a queue pair's share went from `before` to `after`.
    pub(crate) fn adjust(&mut self, before: u64, after: u64) {
        self.in_flight = (self.in_flight + after).saturating_sub(before);
    }

    /// Queue pair `slot` found no room for `bytes`. It must not stand in line already.
    pub(crate) fn wait(&mut self, slot: usize, bytes: u32) {
        self.line.push_back((slot, bytes));
    }

    /// Queue pair `slot` waits no more.
    pub(crate) fn stop_waiting(&mut self, slot: usize) {
        self.line.retain(|(waiting, _)| *waiting != slot);
    }

    /// Whose turn it is, if there is room for what it needs. One at a time, until its turn ends.
    pub(crate) fn give_turn(&mut self) -> Option<usize> {
        let (slot, bytes) = *self.line.front()?;
        if self.turn_given || !self.has_room_for(bytes) {
            return None;
        }
        self.turn_given = true;
        self.line.pop_front();
        Some(slot)
    }

    /// The one whose turn it was has used it, or has no use for it.
    pub(crate) fn end_turn(&mut self) {
        self.turn_given = false;
    }

    /// `bytes` arrived.
    pub(crate) fn on_progress(&mut self, bytes: u32, mtu: u32) {
        let growth = if self.window < self.threshold {
            bytes
        } else {
            // One MTU per window's worth of progress.
            (u64::from(bytes) * u64::from(mtu) / u64::from(self.window)).max(1) as u32
        };
        self.window = self.window.saturating_add(growth).min(self.max);
    }

    /// A gap was reported.
    pub(crate) fn on_loss(&mut self, mtu: u32) {
        self.window = (self.window / 2).max(4 * mtu);
        self.threshold = self.window;
    }

    /// Nothing came back in time.
    pub(crate) fn on_timeout(&mut self, mtu: u32) {
        self.threshold = (self.window / 2).max(4 * mtu);
        self.window = 4 * mtu;
    }
}

/// Every peer some queue pair is connected to.
#[derive(Debug, Default)]
pub(crate) struct PeerTable {
    peers: slab::Slab<Peer>,
    by_ip: HashMap<IpAddr, usize>,
}

impl PeerTable {
    /// Finds or makes the entry for `ip` and counts one more user.
    pub(crate) fn join(&mut self, ip: IpAddr, config: &WindowConfig) -> PeerId {
        let peers = &mut self.peers;
        let index = *self.by_ip.entry(ip).or_insert_with(|| {
            peers.insert(Peer {
                window: config.initial,
                threshold: config.max,
                max: config.max,
                in_flight: 0,
                users: 0,
                ip,
                line: VecDeque::new(),
                turn_given: false,
            })
        });
        self.peers[index].users += 1;
        PeerId(index)
    }

    /// Counts one user less, giving back the `in_flight` bytes it had under way.
    pub(crate) fn leave(&mut self, id: PeerId, in_flight: u64) {
        let peer = &mut self.peers[id.0];
        peer.adjust(in_flight, 0);
        peer.users -= 1;
        if peer.users == 0 {
            let ip = peer.ip;
            self.peers.remove(id.0);
            self.by_ip.remove(&ip);
        }
    }

    pub(crate) fn peer(&mut self, id: PeerId) -> &mut Peer {
        &mut self.peers[id.0]
    }

    /// The same for a peer that may have lost its last user.
    pub(crate) fn find(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(id.0)
    }

    /// How many peers there are.
    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    /// Bytes under way to all of them.
    pub(crate) fn in_flight(&self) -> u64 {
        self.peers.iter().map(|(_, peer)| peer.in_flight).sum()
    }
}
