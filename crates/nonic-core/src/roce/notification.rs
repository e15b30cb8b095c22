//! Congestion notification packets (CNP): a queue pair's answer to a packet that the path marked on its way, so that
//! its peer slows down.
//!
//! Only a mark provokes a CNP, and only a peer that declared its packets to be markable can get a mark: peers that know
//! nothing of CNPs are never sent one. Whether the peer reacts is up to the peer.

use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::{Batch, Emit};
use crate::time::Time;
use nonic_wire::{Bth, Headers, ICRC_LEN, Opcode, Psn};
use std::time::Duration;

/// From one to the next, at least: what adapters usually keep to.
const INTERVAL: Duration = Duration::from_micros(50);

/// Bytes behind the header, all zero.
const RESERVED: usize = 16;

/// Marks of a queue pair that its peer has yet to be told of.
#[derive(Debug, Default)]
pub struct Notification {
    due: bool,
    /// There is no other before.
    next: Time,
}

impl Notification {
    /// A packet came with a mark.
    pub fn on_marked(&mut self, now: Time) {
        if now >= self.next {
            self.next = now + INTERVAL;
            self.due = true;
        }
    }

    /// Whether there is one to be sent.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// Drops the marks: the peer is not to be told any more.
    pub fn forget(&mut self) {
        self.due = false;
    }

    /// Writes it, if it fits the batch.
    pub(crate) fn emit(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        batch: &Batch,
        out: &mut [u8],
    ) -> Emit {
        let length = Opcode::CNP.header_len() + RESERVED + ICRC_LEN;
        if length > batch.max_len {
            return Emit::NotInBatch;
        }
        self.due = false;
        nic.counters.cnps_sent += 1;
        let mut bth = Bth::new(Opcode::CNP, roce.dest_qpn, Psn::new(0));
        bth.becn = true;
        let start = Headers::new(bth).emit(out);
        out[start..start + RESERVED].fill(0);
        Emit::Packet(length)
    }
}
