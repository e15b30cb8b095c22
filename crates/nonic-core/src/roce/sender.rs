//! The sending half of both unreliable services: packets, or records where a lane leads to the peer.
//!
//! A datagram takes the lane to its destination if there is one when its turn comes. A connection (UC) chooses before it sends anything,
//! and keeps to its way: its receiver takes what one way overtakes on the other for late.
//!
//! A lane that is full holds the queue for a while. If its reader gives nothing back for [`PATIENCE`], messages are dropped until it
//! does: to these services it is a network that loses them, and a peer that was stopped holds nobody up.

use crate::lanes::{LaneId, RecordTag};
use crate::queue_pair::{QpState, SendQueue};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::{Batch, Emit, Fatal, Hop};
use crate::roce::local::{RecordHeader, Written};
use crate::roce::request_packet::RequestPacket;
use crate::roce::segment::Segment;
use crate::time::Time;
use crate::verbs::memory::Access;
use crate::verbs::work::Status;
use crate::verbs::wqe::SendWqe;
use nonic_wire::{Flow, Psn, ROCE_PORT, Service};
use std::time::Duration;

/// How long messages wait for room in a lane whose reader gives none back.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);

/// Sends packets, or writes records, without waiting for answers.
#[derive(Debug, Default)]
pub(crate) struct UnreliableSender {
    queue: SendQueue<SendWqe>,
    next_psn: Psn,
    /// Packets of the front request already sent.
    index: u32,
    /// The lane of a connection.
    lane: Option<LaneId>,
    full: Fullness,
    /// A wait for room has begun, and its timer is to be set.
    pub(crate) wants_timer: bool,
}

/// How the lane stood when the last record was to be written.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
enum Fullness {
    /// It had room.
    #[default]
    Room,
    /// It had none, and there is patience until then. The time of posting may be an old one, so the first end of patience is not `sure`.
    Waits { until: Time, sure: bool },
    /// Its reader does not read: what is for it is dropped.
    Lost,
}

impl UnreliableSender {
    /// Starts the sequence. Called on the way to RTS.
    pub(crate) fn start(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        self.next_psn = roce.sq_psn;
        self.index = 0;
        self.choose_lane(roce, nic);
    }

    /// A connection looks for its lane as long as it has sent nothing.
    fn choose_lane(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        if roce.common.service == Service::Uc {
            let lanes = nic.lanes.as_deref_mut();
            self.lane = lanes.and_then(|lanes| lanes.find(roce.flow.src, roce.flow.dst, roce.dest_qpn));
        }
    }

    /// The next packet to send.
    pub(crate) fn next_psn(&self) -> Psn {
        self.next_psn
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no request is half sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.index == 0
    }

    /// The lane that a connection writes to.
    pub(crate) fn lane(&self) -> Option<LaneId> {
        self.lane
    }

    /// The lane has ended with its reader.
    pub(crate) fn lose_lane(&mut self) {
        self.lane = None;
    }

    pub(crate) fn post(&mut self, wqe: SendWqe) {
        self.queue.push(wqe);
    }

    /// Runs local operations at the front of the queue. Whether there is a message to send then.
    fn has_message(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Result<bool, Fatal> {
        if !roce.common.state.requests() || (roce.common.state == QpState::Sqd && self.index == 0) {
            return Ok(false);
        }
        while let Some(wqe) = self.queue.front() {
            if !wqe.op.is_local() {
                return Ok(true);
            }
            if let Some(Err(status)) = self.queue.run_local(&roce.common, nic) {
                self.queue.complete_front(&roce.common, nic, status);
                return Err(Fatal);
            }
        }
        Ok(false)
    }

    /// Writes the next record, if there is a message and a lane leads to where it goes.
    pub(crate) fn write(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Written {
        match self.has_message(roce, nic) {
            Ok(true) => {}
            Ok(false) => return Written::Idle,
            Err(Fatal) => return Written::Failed,
        }
        let Some(lane) = self.find_lane(roce, nic) else {
            return Written::Packets;
        };
        let Some(wqe) = self.queue.front() else {
            return Written::Idle;
        };
        let part = Segment::of(wqe.length, self.index, roce.mtu);
        // Of a message that is one record, copying its bytes checks all of them.
        let whole = part.first && part.last;
        if part.first && !whole && wqe.payload.check(&nic.keys, Access::empty()).is_err() {
            return self.local_fault(roce, nic);
        }
        let header = RecordHeader::of(roce, wqe, &part, self.next_psn);
        let begin = header.length();
        let length = begin + part.length as usize;
        let Some(lanes) = nic.lanes.as_deref_mut() else {
            return Written::Packets;
        };
        let Some(room) = lanes.room(lane, length) else {
            return self.wait_for_room(roce, nic, part.last);
        };
        header.emit(room);
        if part.length > 0
            && wqe
                .payload
                .gather(&nic.keys, part.offset, &mut room[begin..length])
                .is_err()
        {
            return self.local_fault(roce, nic);
        }
        let tag = RecordTag {
            qpn: roce.common.qpn,
            attempt: 0,
        };
        lanes.publish(lane, length, tag);
        self.full = Fullness::Room;
        self.advance(roce, nic, part.last);
        Written::Record(length)
    }

    /// The lane to where the message at the front of the queue goes.
    fn find_lane(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Option<LaneId> {
        if roce.common.service == Service::Uc {
            if self.next_psn == roce.sq_psn && self.lane.is_none() {
                self.choose_lane(roce, nic);
            }
            return self.lane;
        }
        let to = hop(roce, nic, self.queue.front()?);
        let lanes = nic.lanes.as_deref_mut()?;
        lanes.find(to.flow.src, to.flow.dst, to.dest_qpn)
    }

    /// The lane is full: the message waits, or is dropped.
    #[cold]
    fn wait_for_room(&mut self, roce: &RoceContext, nic: &mut NicResources, last: bool) -> Written {
        match self.full {
            Fullness::Lost => {
                nic.counters.lane_drops += 1;
                self.advance(roce, nic, last);
                return Written::Dropped;
            }
            Fullness::Waits { .. } => {}
            Fullness::Room => {
                self.wait_until(nic.now + PATIENCE, false);
                self.wants_timer = true;
            }
        }
        Written::Full
    }

    fn wait_until(&mut self, until: Time, sure: bool) {
        self.full = Fullness::Waits { until, sure };
    }

    /// When its patience ends.
    pub(crate) fn deadline(&self) -> Option<Time> {
        match self.full {
            Fullness::Waits { until, .. } => Some(until),
            Fullness::Room | Fullness::Lost => None,
        }
    }

    /// Its patience may be at its end.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        match self.full {
            Fullness::Waits { until, sure } if until <= now => match sure {
                true => self.full = Fullness::Lost,
                false => self.wait_until(now + PATIENCE, true),
            },
            _ => {}
        }
    }

    /// A lane may have room again.
    #[cold]
    pub(crate) fn unblock(&mut self) {
        self.full = Fullness::Room;
    }

    /// Writes the next packet, if there is one and it fits the batch; and where it goes.
    pub(crate) fn emit(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        batch: &Batch,
        out: &mut [u8],
    ) -> (Emit, Hop) {
        match self.has_message(roce, nic) {
            Ok(true) => {}
            Ok(false) => return (Emit::Idle, roce.hop()),
            Err(Fatal) => return (Emit::Failed, roce.hop()),
        }
        let Some(wqe) = self.queue.front() else {
            return (Emit::Idle, roce.hop());
        };
        let hop = hop(roce, nic, wqe);
        (self.emit_packet(roce, nic, batch, hop, out), hop)
    }

    fn emit_packet(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        batch: &Batch,
        hop: Hop,
        out: &mut [u8],
    ) -> Emit {
        let Some(wqe) = self.queue.front() else {
            return Emit::Idle;
        };
        let packet = RequestPacket::of_message(wqe, self.index, roce.mtu);
        let elsewhere = batch.hop.is_some_and(|joined| !hop.goes_along(&joined));
        if elsewhere || packet.wire_len(roce) > batch.max_len {
            return Emit::NotInBatch;
        }
        let checked = if self.index == 0 {
            wqe.payload.check(&nic.keys, Access::empty())
        } else {
            Ok(())
        };
        let written = checked.and_then(|()| packet.write(roce, (wqe, &nic.keys), self.next_psn, false, out));
        let Ok(length) = written else {
            self.end_front(roce, nic, Status::LocalProtection);
            return Emit::Failed;
        };
        self.advance(roce, nic, packet.segment.last);
        Emit::Packet(length)
    }

    /// A packet, or a record, of the front request was sent; it may have been the last.
    fn advance(&mut self, roce: &RoceContext, nic: &mut NicResources, last: bool) {
        self.next_psn = self.next_psn.next();
        self.index += 1;
        if last {
            self.end_front(roce, nic, Status::Success);
        }
    }

    /// A local key does not permit the access.
    #[cold]
    fn local_fault(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Written {
        self.end_front(roce, nic, Status::LocalProtection);
        Written::Failed
    }

    fn end_front(&mut self, roce: &RoceContext, nic: &mut NicResources, status: Status) {
        self.index = 0;
        self.queue.complete_front(&roce.common, nic, status);
    }

    /// Ends every queued request as flushed.
    pub(crate) fn flush(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        self.index = 0;
        self.full = Fullness::Room;
        self.queue.flush(&roce.common, nic);
    }

    /// Drops everything without completions.
    pub(crate) fn forget(&mut self) {
        *self = UnreliableSender::default();
    }
}

/// Where a request goes: a datagram's own destination, or the connected peer.
fn hop(roce: &RoceContext, nic: &NicResources, wqe: &SendWqe) -> Hop {
    let Some(destination) = &wqe.destination else {
        return roce.hop();
    };
    // Posting checked the index; an address that went away since leaves the last known one.
    let Some(own) = nic.endpoints.get(usize::from(destination.gid_index)) else {
        return Hop {
            dest_qpn: destination.qpn,
            ..roce.hop()
        };
    };
    Hop {
        flow: Flow {
            src: own.ip,
            dst: destination.ip,
            src_port: own.port,
            dst_port: ROCE_PORT,
        },
        dest_qpn: destination.qpn,
        gid_index: destination.gid_index,
    }
}
