//! A gap in the sequence of a peer's packets: which packet is missing, what came instead, and when the peer is told.
//!
//! It keeps packets and the time. What is executed or answered is `early`'s.

use super::reorder::{Keep, KeptPacket, Reorder};
use crate::resources::NicResources;
use crate::roce::extended_psn::ExtendedPsn;
use crate::roce::segment::packets_for;
use crate::time::Time;
use nonic_wire::{HeldRange, Operation, Packet, Psn};
use std::time::Duration;

/// A peer that has sent nothing for so long will not fill the gap it left.
const ABANDONED_AFTER: Duration = Duration::from_secs(10);

/// A gap in the sequence: later packets have come, the next one has not.
#[derive(Debug)]
pub(super) struct Gap {
    /// The packet that has not come.
    missing: ExtendedPsn,
    /// What came instead.
    kept: Reorder,
    /// Since when it can be known to be missing; not yet, if the peer is going back anyway.
    since: Option<Time>,
    /// When to report it to the peer.
    report_at: Option<Time>,
    reported: bool,
    /// Whether an earlier gap was reported to the peer, which therefore repeats everything.
    going_back: bool,
    /// Whether the peer understands selective acknowledgements.
    selective: bool,
    /// Whether something was not kept because it came from too far away.
    too_far: bool,
    /// When the latest packet was kept.
    latest: Time,
}

impl Gap {
    /// A packet is missing, and nothing of what follows it is kept yet.
    pub(super) fn new(missing: ExtendedPsn, now: Time) -> Box<Self> {
        Self::with(missing, Reorder::default(), now)
    }

    fn with(missing: ExtendedPsn, kept: Reorder, latest: Time) -> Box<Self> {
        Box::new(Gap {
            missing,
            kept,
            since: None,
            report_at: None,
            reported: false,
            going_back: false,
            selective: false,
            too_far: false,
            latest,
        })
    }

    /// The packet that has not come.
    pub(super) fn missing(&self) -> ExtendedPsn {
        self.missing
    }

    /// What the peer need not send again, as our acknowledgements say.
    pub(super) fn held(&self) -> Option<&Reorder> {
        self.selective.then_some(&self.kept)
    }

    /// How far a packet lies beyond the last that is kept.
    pub(super) fn beyond(&self, at: ExtendedPsn) -> u32 {
        let end = self.kept.end().unwrap_or(self.missing);
        u32::try_from(at - end.min(at)).unwrap_or(u32::MAX)
    }

    /// Keeps a packet until those before it have come, if there is room.
    pub(super) fn keep(
        &mut self,
        nic: &mut NicResources,
        at: ExtendedPsn,
        packet: &Packet<'_>,
        mtu: u32,
    ) -> Keep {
        self.latest = nic.now;
        let psns = psns_of(packet, mtu);
        let reach = (at - self.missing).saturating_add(u64::from(psns));
        if reach > u64::from(HeldRange::MAX_PACKETS) {
            return Keep::Refused;
        }
        self.kept.insert(&mut nic.reorder, nic.now, at, psns, packet)
    }

    /// Something came from behind the missing packet. Returns since when it can be known to be missing.
    pub(super) fn note_missing(&mut self, now: Time) -> Time {
        *self.since.get_or_insert(now)
    }

    /// Whether the peer understands selective acknowledgements: then it finds out by itself what is lost, unless that came from too far
    /// away to be kept.
    pub(super) fn set_selective(&mut self, selective: bool) {
        self.selective = selective;
        if selective {
            self.report_at = self.report_at.filter(|_| self.too_far);
        }
    }

    /// Something came from so far away that it was not kept.
    pub(super) fn note_too_far(&mut self) {
        self.too_far = true;
    }

    /// The peer is told at this time, unless it was, or will be at another.
    pub(super) fn report_at(&mut self, at: Time) {
        if !self.reported && self.report_at.is_none() {
            self.report_at = Some(at);
        }
    }

    /// Nothing that is kept can be trusted: all of it is dropped, and the peer told at once.
    pub(super) fn distrust(&mut self, nic: &mut NicResources) {
        self.clear(nic);
        self.report_at = Some(nic.now);
    }

    /// The missing packet, if it is time to tell the peer.
    pub(super) fn take_report(&mut self, now: Time) -> Option<Psn> {
        self.report_at.take_if(|at| *at <= now)?;
        self.reported = true;
        Some(self.missing.psn())
    }

    /// When something is to be done about it.
    pub(super) fn deadline(&self) -> Time {
        self.report_at.unwrap_or(self.latest + ABANDONED_AFTER)
    }

    /// Whether the peer will not fill it any more.
    pub(super) fn is_abandoned(&self, now: Time) -> bool {
        self.report_at.is_none() && self.latest + ABANDONED_AFTER <= now
    }

    /// How late the missing packet came, and whether the peer had been told of it; `None` if that says nothing about the path.
    pub(super) fn lateness(&self, now: Time) -> Option<(Duration, bool)> {
        let since = self.since.filter(|_| !self.selective)?;
        Some((now.since(since), self.reported))
    }

    /// The packet with this number, if it is kept.
    pub(super) fn pop(&mut self, nic: &mut NicResources, psn: ExtendedPsn) -> Option<KeptPacket> {
        self.kept.pop(&mut nic.reorder, psn)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Drops what is kept.
    pub(super) fn clear(&mut self, nic: &mut NicResources) {
        self.kept.clear(&mut nic.reorder);
    }

    /// The gap that is left when this one was filled up to `missing`. A packet may be late by `allowance`.
    pub(super) fn left(self, missing: ExtendedPsn, allowance: Duration) -> Box<Gap> {
        let since = self.kept.first_arrived();
        let mut gap = Gap::with(missing, self.kept, self.latest);
        (gap.selective, gap.too_far) = (self.selective, self.too_far);
        gap.going_back = self.reported || self.going_back;
        // A peer that goes back will come to this one. Only something that comes from behind it, from now on, shows that it is
        // missing again.
        if !gap.going_back && (!self.selective || self.too_far) {
            gap.since = since;
            gap.report_at = since.map(|since| since + allowance);
        }
        gap
    }
}

/// How many sequence numbers a request takes.
fn psns_of(packet: &Packet<'_>, mtu: u32) -> u32 {
    match packet.headers.bth.opcode.operation() {
        Operation::ReadRequest => packets_for(packet.headers.reth.dma_len, mtu),
        _ => 1,
    }
}
