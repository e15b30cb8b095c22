//! Snapshots of a RoCE queue pair for tools that inspect a running process.

use super::{RoceQueuePair, ServiceMachine};
use crate::queue_pair::{PeerView, QueuePairView};
use crate::roce::window::PeerTable;

impl RoceQueuePair {
    /// What it is at.
    pub(crate) fn view(&self, peers: &PeerTable) -> QueuePairView {
        let roce = &self.roce;
        let mut view = QueuePairView::of_common(&roce.common, self.send_queue_len());
        view.peer = roce.connected_hop().map(|hop| PeerView {
            local: hop.flow.src,
            gid_index: hop.gid_index,
            remote: hop.flow.dst,
            qpn: hop.dest_qpn,
        });
        view.path_mtu = roce.mtu;
        view.window_bytes = roce.peer.and_then(|peer| peers.window_of(peer));
        let receives = roce.common.state.receives();
        let sends = roce.common.state.requests();
        match &self.machine {
            ServiceMachine::Rc { requester, responder } => {
                requester.show(&mut view, sends);
                responder.show(&mut view, receives);
            }
            ServiceMachine::Uc { sender, receiver } => {
                view.lane = sender.lane().is_some();
                view.sequence.next = sends.then(|| sender.next_psn());
                view.sequence.expected = receives.then(|| receiver.expected());
            }
            ServiceMachine::Ud { sender, .. } => view.sequence.next = sends.then(|| sender.next_psn()),
        }
        view
    }
}
