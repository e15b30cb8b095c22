//! The results of asking a queue pair for a packet, or of giving it one.

use crate::nic::QPNS_PER_BLOCK;
use nonic_wire::{Flow, Qpn};

/// The queue pair cannot go on: the caller moves it to the error state.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fatal;

/// What came of asking a queue pair for one packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Emit {
    /// A packet of this length was written, ICRC still missing.
    Packet(usize),
    /// There is one, but it does not fit behind the ones already in the batch.
    NotInBatch,
    /// Nothing to send until something happens.
    Idle,
    /// There is something, but the window to the peer has no room for this many bytes.
    Window(u32),
    /// There is something of this many bytes, but other queue pairs wait for the window and this one has its fair
    /// share.
    FairShare(u32),
    /// The queue pair failed: flush it.
    Failed,
}

/// What a packet must satisfy to join a batch.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Batch {
    /// Length limit: that of the batch's first packet.
    pub(crate) max_len: usize,
    /// Whether the queue pair stood in line for the window and it is its turn.
    pub(crate) in_turn: bool,
    /// Where the batch goes; nowhere yet while it is empty. Connected services always go the same way.
    pub(crate) hop: Option<Hop>,
}

/// Where a packet goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hop {
    /// From which address to which.
    pub flow: Flow,
    /// The queue pair it goes to.
    pub dest_qpn: Qpn,
    /// Which of the NIC's addresses it leaves from.
    pub gid_index: u8,
}

impl Hop {
    /// Whether a packet that goes here may be in one batch with those that go there: to the same process of the same host.
    pub(crate) fn goes_along(&self, there: &Hop) -> bool {
        let block = |hop: &Hop| hop.dest_qpn.value() / QPNS_PER_BLOCK;
        self.flow == there.flow && self.gid_index == there.gid_index && block(self) == block(there)
    }
}
