//! The line for the window to a peer: queue pairs that have something to send, but no room in the window, take turns.
//!
//! [`PeerWindow`] knows how large the window is and whose turn is next; this module moves the queue pairs accordingly.

use super::queue_pairs::Transport;
use super::{Nic, ReadySender};
use crate::roce::window::{PeerId, PeerWindow, Turn};
use crate::time::Time;
use crate::timer::{Timer, Token};

impl Nic {
    /// Takes the queue pair out of the line for the window to its peer; returns the peer.
    pub(super) fn leave_line(&mut self, slot: usize) -> Option<PeerId> {
        let Transport::Roce(qp) = &mut self.qps[slot].transport else {
            return None;
        };
        let peer = qp.roce.peer?;
        if std::mem::take(&mut qp.in_line) | std::mem::take(&mut qp.resting) {
            self.resources.peers.peer(peer).stop_waiting(slot);
        }
        if std::mem::take(&mut qp.in_turn) {
            self.resources.peers.peer(peer).end_turn();
        }
        Some(peer)
    }

    /// The queue pair has used its turn: the next in line may follow.
    pub(super) fn end_turn(&mut self, slot: usize) {
        let qp = self.qps.roce_mut(slot);
        qp.in_turn = false;
        if let Some(peer) = qp.roce.peer {
            self.resources.peers.peer(peer).end_turn();
            self.wake_waiting(peer);
        }
    }

    /// Checks whether the queue pairs that fill the window have stalled: no arrival may tell so.
    pub(super) fn handle_window_timer(&mut self, now: Time, token: Token) {
        let id = PeerId::from_slot(token.slot);
        if let Some(peer) = self.resources.peers.owner(id, token.generation) {
            peer.handle_timer(now);
            self.schedule_window_timer(id);
            self.wake_waiting(id);
        }
    }

    pub(super) fn schedule_window_timer(&mut self, id: PeerId) {
        if let Some((at, generation)) = self.resources.peers.find(id).and_then(PeerWindow::set_timer) {
            let token = Token {
                slot: id.slot(),
                generation,
                timer: Timer::Window,
            };
            self.timers.schedule(at, token);
        }
    }

    /// The window to the peer may have room for the first queue pair in line.
    pub(super) fn wake_waiting(&mut self, peer: PeerId) {
        let Some(Turn { slot, rested }) = self.resources.peers.find(peer).and_then(PeerWindow::give_turn)
        else {
            return;
        };
        let qp = self.qps.roce_mut(slot);
        *if rested { &mut qp.resting } else { &mut qp.in_line } = false;
        qp.in_turn = true;
        if !qp.ready {
            qp.ready = true;
            self.ready.push_back(ReadySender::QueuePair(slot));
        }
    }
}
