//! The responder's handling of packets that arrive out of order.
//!
//! They are kept ([`Reorder`]) and executed, in order, when those before them have come; nothing of them is placed or
//! answered earlier. So two WRITEs to one place land in the order in which they were posted, a program that polls on
//! the last byte of a message finds the rest of it, and an atomic is executed once.
//!
//! - A peer that understands selective acknowledgements is told at once, each time, what is kept; that peer finds out
//!   itself what is lost. What it was told of is not dropped, unless it is told to begin again (RNR, or a NAK) or the
//!   connection ends.
//! - Every other peer is told of the first missing packet, once, with a NAK, and not before it has had time to come
//!   ([`Allowance`]): such a peer repeats everything from there on.
//! - A packet from further away than a peer can be expected to send from ([`Reach`]) is not kept, and every peer is
//!   told of the first missing packet. So is a peer that sends something else under a number that is kept: one of the
//!   two was forged, so nothing that is kept is executed.
//! - As soon as a gap is filled, everything that can be acknowledged is.
//! - A peer that was asked to come again later (RNR) sends everything again, so nothing is kept for it.
//! - When nothing came for a while, the peer is gone, and what it left is dropped.
//!
//! [`Allowance`]: super::allowance::Allowance

use super::reach::{self, Reach};
use super::reorder::{Keep, Reorder};
use super::responder::Responder;
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::Fatal;
use crate::roce::extended_psn::ExtendedPsn;
use crate::roce::segment::packets_for;
use crate::time::Time;
use nonic_wire::{HeldRange, Operation, Packet};
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
    fn new(missing: ExtendedPsn, kept: Reorder, latest: Time) -> Box<Self> {
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

    /// What the peer need not send again, as our acknowledgements say.
    pub(super) fn held(&self) -> Option<&Reorder> {
        self.selective.then_some(&self.kept)
    }
}

impl Responder {
    /// Takes a packet from behind one that is missing.
    pub(super) fn handle_early(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
        ahead: u32,
    ) {
        nic.counters.rx_out_of_sequence += 1;
        if self.refused {
            return;
        }
        let now = nic.now;
        let missing = self.expected;
        let gap = self
            .gap
            .get_or_insert_with(|| Gap::new(missing, Reorder::default(), now));
        let at = missing + ahead;
        let beyond = u32::try_from(at - gap.kept.end().unwrap_or(missing).min(at)).unwrap_or(u32::MAX);
        if beyond > Reach::of(self.reach.as_deref(), now) {
            nic.counters.rx_not_kept += 1;
            return self.refuse_far(nic, packet, at, beyond);
        }
        gap.latest = now;
        let psns = psns_of(packet, roce.mtu);
        let keep = if ahead.saturating_add(psns) <= HeldRange::MAX_PACKETS {
            gap.kept.insert(nic.reorder, now, at, psns, packet)
        } else {
            Keep::Refused
        };
        nic.counters.rx_kept += u64::from(keep == Keep::Kept);
        nic.counters.rx_not_kept += u64::from(matches!(keep, Keep::Refused | Keep::Conflict));
        if keep == Keep::Conflict {
            return self.distrust(nic);
        }
        let since = *gap.since.get_or_insert(now);
        gap.selective = packet.headers.bth.is_selective() && nic.reorder.config.selective;
        if gap.selective {
            gap.report_at = gap.report_at.filter(|_| gap.too_far);
            self.replies.acknowledge_at_once(missing.psn().prev(), self.msn);
        } else if !gap.reported && gap.report_at.is_none() {
            gap.report_at = Some(since + self.allowance.at(now, &nic.reorder.config));
            self.report_gap(nic);
        }
    }

    /// A packet came from so far away that it is as good as lost.
    #[cold]
    fn refuse_far(&mut self, nic: &NicResources<'_>, packet: &Packet<'_>, at: ExtendedPsn, beyond: u32) {
        if beyond <= reach::MOST {
            self.reach.get_or_insert_default().refused(at, beyond, packet);
        }
        let Some(gap) = &mut self.gap else { return };
        gap.too_far = true;
        if !gap.reported && gap.report_at.is_none() {
            gap.report_at = Some(nic.now + self.allowance.at(nic.now, &nic.reorder.config));
            self.report_gap(nic);
        }
    }

    /// Two different packets came under one number. Which of them is the peer's is not known, so it is asked for everything again.
    #[cold]
    fn distrust(&mut self, nic: &mut NicResources<'_>) {
        let Some(gap) = &mut self.gap else { return };
        gap.kept.clear(nic.reorder);
        gap.report_at = Some(nic.now);
        self.report_gap(nic);
    }

    /// When something is to be done about a gap.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let gap = self.gap.as_ref()?;
        Some(gap.report_at.unwrap_or(gap.latest + ABANDONED_AFTER))
    }

    /// The time of a gap may have come.
    pub(crate) fn handle_timeout(&mut self, nic: &mut NicResources<'_>) {
        self.report_gap(nic);
        let abandoned = |gap: &Gap| gap.report_at.is_none() && gap.latest + ABANDONED_AFTER <= nic.now;
        if self.gap.as_deref().is_some_and(abandoned) {
            self.drop_kept(nic);
        }
    }

    /// Tells the peer what is missing, if it is time to.
    fn report_gap(&mut self, nic: &NicResources<'_>) {
        let Some(gap) = &mut self.gap else { return };
        if gap.report_at.take_if(|at| *at <= nic.now).is_some() {
            gap.reported = true;
            self.replies.report_missing(gap.missing.psn(), self.msn);
        }
    }

    /// The packet that was missing has come. Executes what is kept and follows it, as if it came now.
    #[cold]
    pub(super) fn resume(&mut self, roce: &RoceContext, nic: &mut NicResources<'_>) -> Result<(), Fatal> {
        let Some(mut gap) = self
            .gap
            .take_if(|gap| gap.missing != self.expected || self.refused)
        else {
            return Ok(());
        };
        self.learn(nic, &gap);
        let mut latest = None;
        let mut result = Ok(());
        while result.is_ok() && !self.refused {
            let Some(kept) = gap.kept.pop(nic.reorder, self.expected) else {
                break;
            };
            let packet = kept.packet();
            latest = Some(packet.headers.bth.opcode.operation());
            result = self.handle_next(roce, nic, &packet);
        }
        if result.is_err() || self.refused {
            gap.kept.clear(nic.reorder);
            return result;
        }
        // Other requests have answers of their own, which must not be overtaken by something that says the same.
        if latest.is_some_and(|operation| operation.is_send() || operation.is_write()) {
            self.replies
                .acknowledge_at_once(self.expected.psn().prev(), self.msn);
        }
        if !gap.kept.is_empty() {
            self.gap = Some(self.next_gap(nic, *gap));
        }
        Ok(())
    }

    /// The gap that is left when one was filled.
    fn next_gap(&self, nic: &NicResources<'_>, filled: Gap) -> Box<Gap> {
        let since = filled.kept.first_arrived();
        let mut gap = Gap::new(self.expected, filled.kept, filled.latest);
        (gap.selective, gap.too_far) = (filled.selective, filled.too_far);
        gap.going_back = filled.reported || filled.going_back;
        // A peer that goes back will come to this one. Only something that comes from behind it, from now on, shows that it is
        // missing again.
        if !gap.going_back && (!filled.selective || filled.too_far) {
            let allowance = self.allowance.at(nic.now, &nic.reorder.config);
            gap.since = since;
            gap.report_at = since.map(|since| since + allowance);
        }
        gap
    }

    /// A gap was filled: whether it was a loss.
    fn learn(&mut self, nic: &NicResources<'_>, gap: &Gap) {
        let (Some(since), false) = (gap.since, gap.selective || self.refused) else {
            return;
        };
        let late = nic.now.since(since);
        if gap.reported {
            self.allowance.came_after_report(gap.missing.psn(), late);
        } else {
            self.allowance.came_late(nic.now, late, &nic.reorder.config);
        }
    }

    /// Drops what came early: it will come again, or nothing will.
    pub(super) fn drop_kept(&mut self, nic: &mut NicResources<'_>) {
        if let Some(mut gap) = self.gap.take() {
            gap.kept.clear(nic.reorder);
        }
    }
}

/// How many sequence numbers a request takes.
fn psns_of(packet: &Packet<'_>, mtu: u32) -> u32 {
    match packet.headers.bth.opcode.operation() {
        Operation::ReadRequest => packets_for(packet.headers.reth.dma_len, mtu),
        _ => 1,
    }
}
