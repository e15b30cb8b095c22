//! The responder's handling of packets that arrive out of order.
//!
//! They are kept ([`Gap`]) and executed, in order, when those before them have come; nothing of them is placed or
//! answered earlier. So two WRITEs to one place land in the order in which they were posted, a program that polls on
//! the last byte of a message finds the rest of it, and an atomic is executed once.
//!
//! - A peer that understands selective acknowledgements is told at once, each time, what is kept; that peer finds out
//!   itself what is lost. What it was told of is not dropped, unless it is told to begin again (RNR, or a NAK) or the
//!   connection ends.
//! - Every other peer is told of the first missing packet, once, with a NAK, and not before it has had time to come
//!   ([`Allowance`]): such a peer repeats everything from there on.
//! - A packet from further away than a peer can be expected to send from ([`Reach`]) is not kept, and every peer is
//!   told of the first missing packet.
//! - If two packets with one PSN differ in their content, one of the two was forged. Nothing that is kept is executed then, and the
//!   peer is told of the first missing packet.
//! - As soon as a gap is filled, everything that can be acknowledged is.
//! - A peer that was asked to come again later (RNR) sends everything again, so nothing is kept for it.
//! - When nothing came for a while, the peer is gone, and what it left is dropped.
//!
//! [`Allowance`]: super::allowance::Allowance

use super::gap::Gap;
use super::reach::{self, Reach};
use super::reorder::Keep;
use super::responder::Responder;
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::Fatal;
use crate::roce::extended_psn::ExtendedPsn;
use crate::time::Time;
use nonic_wire::Packet;

impl Responder {
    /// Takes a packet from behind one that is missing.
    pub(super) fn handle_early(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
        ahead: u32,
    ) {
        nic.counters.rx_out_of_sequence += 1;
        if self.refused {
            return;
        }
        let (now, missing) = (nic.now, self.expected);
        let gap = self.gap.get_or_insert_with(|| Gap::new(missing, now));
        let at = missing + ahead;
        let beyond = gap.beyond(at);
        if beyond > Reach::of(self.reach.as_deref(), now) {
            nic.counters.rx_not_kept += 1;
            return self.refuse_far(nic, packet, at, beyond);
        }
        let keep = gap.keep(nic, at, packet, roce.mtu);
        nic.counters.rx_kept += u64::from(keep == Keep::Kept);
        nic.counters.rx_not_kept += u64::from(matches!(keep, Keep::Refused | Keep::Conflict));
        if keep == Keep::Conflict {
            // Which of the two is the peer's is not known, so it is asked for everything again.
            gap.distrust(nic);
            return self.report_gap(nic);
        }
        let since = gap.note_missing(now);
        let selective = packet.headers.bth.is_selective() && nic.reorder.config.selective;
        gap.set_selective(selective);
        if selective {
            self.replies.acknowledge_at_once(missing.psn().prev(), self.msn);
        } else {
            gap.report_at(since + self.allowance.at(now, &nic.reorder.config));
            self.report_gap(nic);
        }
    }

    /// A packet came from so far away that it is as good as lost.
    #[cold]
    fn refuse_far(&mut self, nic: &NicResources, packet: &Packet<'_>, at: ExtendedPsn, beyond: u32) {
        if beyond <= reach::MOST {
            self.reach.get_or_insert_default().refused(at, beyond, packet);
        }
        let Some(gap) = &mut self.gap else { return };
        gap.note_too_far();
        gap.report_at(nic.now + self.allowance.at(nic.now, &nic.reorder.config));
        self.report_gap(nic);
    }

    /// When something is to be done about a gap.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.gap.as_deref().map(Gap::deadline)
    }

    /// The time of a gap may have come.
    pub(crate) fn handle_timeout(&mut self, nic: &mut NicResources) {
        self.report_gap(nic);
        if self.gap.as_deref().is_some_and(|gap| gap.is_abandoned(nic.now)) {
            self.drop_kept(nic);
        }
    }

    /// Tells the peer what is missing, if it is time to.
    fn report_gap(&mut self, nic: &NicResources) {
        let gap = self.gap.as_deref_mut();
        if let Some(missing) = gap.and_then(|gap| gap.take_report(nic.now)) {
            self.replies.report_missing(missing, self.msn);
        }
    }

    /// The packet that was missing has come. Executes what is kept and follows it, as if it came now.
    #[cold]
    pub(super) fn resume(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Result<(), Fatal> {
        let Some(mut gap) = self
            .gap
            .take_if(|gap| gap.missing() != self.expected || self.refused)
        else {
            return Ok(());
        };
        self.learn(nic, &gap);
        let mut latest = None;
        let mut result = Ok(());
        while result.is_ok() && !self.refused {
            let Some(kept) = gap.pop(nic, self.expected) else {
                break;
            };
            let packet = kept.packet();
            latest = Some(packet.headers.bth.opcode.operation());
            result = self.handle_next(roce, nic, &packet);
        }
        if result.is_err() || self.refused {
            gap.clear(nic);
            return result;
        }
        // Other requests have answers of their own, which must not be overtaken by something that says the same.
        if latest.is_some_and(|operation| operation.is_send() || operation.is_write()) {
            self.replies
                .acknowledge_at_once(self.expected.psn().prev(), self.msn);
        }
        if !gap.is_empty() {
            let allowance = self.allowance.at(nic.now, &nic.reorder.config);
            self.gap = Some(gap.left(self.expected, allowance));
        }
        Ok(())
    }

    /// A gap was filled: whether it was a loss.
    fn learn(&mut self, nic: &NicResources, gap: &Gap) {
        let Some((late, reported)) = gap.lateness(nic.now).filter(|_| !self.refused) else {
            return;
        };
        if reported {
            self.allowance.came_after_report(gap.missing().psn(), late);
        } else {
            self.allowance.came_late(nic.now, late, &nic.reorder.config);
        }
    }

    /// Drops what came early: it will come again, or nothing will.
    pub(super) fn drop_kept(&mut self, nic: &mut NicResources) {
        if let Some(mut gap) = self.gap.take() {
            gap.clear(nic);
        }
    }
}
