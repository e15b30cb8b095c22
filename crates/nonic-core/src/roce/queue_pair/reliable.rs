//! The halves of a reliable connection, each of which speaks in packets or in records.
//!
//! A requester chooses when it goes to RTS. If no lane led to its peer then, it asks again with each request until it has sent a packet;
//! from then on it keeps to its way. A responder takes packets until the first thing that comes is a record.

use crate::lanes::RecordAnswer;
use crate::queue_pair::QueuePairView;
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::{Batch, Emit, Fatal};
use crate::roce::local::{RecordRequester, RecordResponder};
use crate::roce::rc::{Requester, Responder};
use crate::roce::window::Share;
use crate::time::Time;
use crate::timer::Timer;
use nonic_wire::Packet;

/// The half that sends requests.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "connections to other hosts are those there are many of"
)]
pub(super) enum RcRequester {
    Packets(Requester),
    Records(Box<RecordRequester>),
}

/// The half that executes the peer's requests.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "connections to other hosts are those there are many of"
)]
pub(super) enum RcResponder {
    Packets(Responder),
    Records(Box<RecordResponder>),
}

impl RcRequester {
    pub(super) fn new() -> Self {
        RcRequester::Packets(Requester::default())
    }

    /// Begins to send. Called on the way to RTS.
    pub(super) fn start(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        let lanes = nic.lanes.as_deref_mut();
        let lane = lanes.and_then(|lanes| lanes.find(roce.flow.src, roce.flow.dst, roce.dest_qpn));
        match (lane, self) {
            (Some(lane), requester) => {
                let records = RecordRequester::new(roce, lane, nic.record_piece);
                *requester = RcRequester::Records(Box::new(records));
            }
            (None, RcRequester::Packets(requester)) => requester.start(roce),
            (None, requester) => {
                let mut packets = Requester::default();
                packets.start(roce);
                *requester = RcRequester::Packets(packets);
            }
        }
    }

    /// The requester, after it has looked once more for a lane if nothing was sent yet: a peer that is busy may have answered late.
    #[inline]
    pub(super) fn chosen(&mut self, roce: &RoceContext, nic: &mut NicResources) -> &mut Self {
        if matches!(self, RcRequester::Packets(requester) if requester.has_sent_nothing(roce)) {
            self.start(roce, nic);
        }
        self
    }

    /// The requester that writes records, if it does.
    pub(super) fn as_records(&mut self) -> Option<&mut RecordRequester> {
        match self {
            RcRequester::Records(requester) => Some(requester),
            RcRequester::Packets(_) => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            RcRequester::Packets(requester) => requester.len(),
            RcRequester::Records(requester) => requester.len(),
        }
    }

    pub(super) fn has_unsent(&self) -> bool {
        match self {
            RcRequester::Packets(requester) => requester.has_unsent(),
            RcRequester::Records(requester) => requester.has_unsent(),
        }
    }

    /// Whether the peer owes an answer, so that short requests may wait for it and travel together. Records gain nothing by that.
    pub(super) fn awaits_answer(&self) -> bool {
        match self {
            RcRequester::Packets(requester) => requester.awaits_answer(),
            RcRequester::Records(_) => false,
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        match self {
            RcRequester::Packets(requester) => requester.is_drained(),
            RcRequester::Records(requester) => requester.is_drained(),
        }
    }

    /// Bytes the peer's window counts for it.
    pub(super) fn counted(&self) -> u64 {
        match self {
            RcRequester::Packets(requester) => requester.counted(),
            RcRequester::Records(_) => 0,
        }
    }

    /// What it has in the peer's window.
    pub(super) fn share(&mut self) -> Option<&mut Share> {
        match self {
            RcRequester::Packets(requester) => Some(requester.share()),
            RcRequester::Records(_) => None,
        }
    }

    /// When `timer` is due, if it is set.
    pub(super) fn deadline(&self, timer: Timer) -> Option<Time> {
        match (self, timer) {
            (RcRequester::Packets(requester), Timer::Retransmit) => requester.timers().retransmit_at,
            (RcRequester::Packets(requester), Timer::ReceiverNotReady) => requester.timers().quiet_until,
            (RcRequester::Packets(requester), Timer::Recovery) => requester.timers().recover_at(),
            (RcRequester::Records(requester), Timer::Retransmit) => requester.due_at(),
            (RcRequester::Records(requester), Timer::ReceiverNotReady) => requester.quiet_until(),
            _ => None,
        }
    }

    pub(super) fn handle_timeout(&mut self, roce: &RoceContext, nic: &mut NicResources) -> Result<(), Fatal> {
        match self {
            RcRequester::Packets(requester) => requester.handle_timeout(roce, nic),
            RcRequester::Records(requester) => requester.handle_timeout(roce, nic),
        }
    }

    /// Takes an answer in a packet.
    pub(super) fn handle(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        match self {
            RcRequester::Packets(requester) => requester.handle(roce, nic, packet),
            RcRequester::Records(_) => {
                nic.counters.rx_unclaimed += 1;
                Ok(())
            }
        }
    }

    pub(super) fn emit(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        batch: &Batch,
        out: &mut [u8],
    ) -> Emit {
        match self {
            RcRequester::Packets(requester) => requester.emit(roce, nic, batch, out),
            RcRequester::Records(_) => Emit::Idle,
        }
    }

    /// Ends every queued request as flushed.
    pub(super) fn flush(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        match self {
            RcRequester::Packets(requester) => requester.flush(roce, nic),
            RcRequester::Records(requester) => requester.flush(roce, nic),
        }
    }

    /// Drops everything.
    pub(super) fn forget(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        match self {
            RcRequester::Packets(requester) => requester.forget(roce, nic),
            RcRequester::Records(_) => *self = RcRequester::new(),
        }
    }

    pub(super) fn show(&self, view: &mut QueuePairView, sends: bool) {
        match self {
            RcRequester::Packets(requester) => requester.show(view, sends),
            RcRequester::Records(requester) => requester.show(view, sends),
        }
    }
}

impl RcResponder {
    pub(super) fn new() -> Self {
        RcResponder::Packets(Responder::new())
    }

    /// Begins to receive. Called on the way to RTR.
    pub(super) fn start(&mut self, roce: &RoceContext) {
        let mut responder = Responder::new();
        responder.start(roce);
        *self = RcResponder::Packets(responder);
    }

    /// When packets that came early are looked at again.
    pub(super) fn deadline(&self) -> Option<Time> {
        match self {
            RcResponder::Packets(responder) => responder.deadline(),
            RcResponder::Records(_) => None,
        }
    }

    pub(super) fn handle_timeout(&mut self, nic: &mut NicResources) {
        if let RcResponder::Packets(responder) = self {
            responder.handle_timeout(nic);
        }
    }

    /// Takes a request in a packet.
    pub(super) fn handle(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        match self {
            RcResponder::Packets(responder) => responder.handle(roce, nic, packet),
            RcResponder::Records(_) => {
                nic.counters.rx_unclaimed += 1;
                Ok(())
            }
        }
    }

    /// Takes a request in a record.
    pub(super) fn handle_record(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        record: (&Packet<'_>, bool),
        room: &mut [u8],
    ) -> (RecordAnswer, Result<(), Fatal>) {
        if let RcResponder::Packets(responder) = self {
            if !responder.has_executed_nothing(roce) {
                return (RecordAnswer::Ignored, Ok(()));
            }
            // A packet that came early was forged: this peer sends none.
            responder.forget(nic);
            *self = RcResponder::Records(Box::new(RecordResponder::new(roce)));
        }
        match self {
            RcResponder::Records(responder) => responder.handle(roce, nic, record, room),
            RcResponder::Packets(_) => (RecordAnswer::Ignored, Ok(())),
        }
    }

    pub(super) fn emit(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        batch: &Batch,
        out: &mut [u8],
    ) -> Emit {
        match self {
            RcResponder::Packets(responder) => responder.emit(roce, nic, batch, out),
            RcResponder::Records(_) => Emit::Idle,
        }
    }

    pub(super) fn has_replies(&self) -> bool {
        matches!(self, RcResponder::Packets(responder) if responder.has_replies())
    }

    pub(super) fn only_acknowledges(&self) -> bool {
        match self {
            RcResponder::Packets(responder) => responder.only_acknowledges(),
            RcResponder::Records(_) => true,
        }
    }

    /// Ends the receive in progress as flushed.
    pub(super) fn flush(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        match self {
            RcResponder::Packets(responder) => responder.flush(roce, nic),
            RcResponder::Records(responder) => responder.flush(roce, nic),
        }
    }

    /// Drops everything, answers included.
    pub(super) fn forget(&mut self, nic: &mut NicResources) {
        match self {
            RcResponder::Packets(responder) => responder.forget(nic),
            RcResponder::Records(_) => *self = RcResponder::new(),
        }
    }

    pub(super) fn show(&self, view: &mut QueuePairView, receives: bool) {
        match self {
            RcResponder::Packets(responder) => responder.show(view, receives),
            RcResponder::Records(responder) => responder.show(view, receives),
        }
    }
}
