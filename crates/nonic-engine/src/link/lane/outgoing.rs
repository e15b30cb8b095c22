//! Outgoing lanes: the sender's side, for all lanes that start at one address.

use super::MOST;
use super::memory::LaneMemory;
use super::ring::WriterSleep;
use super::writers::OpenedLanes;
use crate::host::{ANSWERS_WITHIN, BlockName, Delivery, Message, Outbox};
use crate::os::bell::BellRinger;
use nonic_core::{LaneId, Time};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The lanes of an address, by where they lead.
#[derive(Debug)]
pub(crate) struct OutgoingLanes {
    lanes: Vec<OutgoingLane>,
    /// Records that were written to lanes which have ended.
    past_records: u64,
    /// The records of lanes that lead to ourselves.
    own_records: Vec<Arc<WriterSleep>>,
    /// Where the NIC finds lanes to write records to; none if lanes are not wanted at all.
    opened: Option<Arc<OpenedLanes>>,
}

/// The sender that offers a lane.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct LaneSource {
    /// Where its packets would come from otherwise.
    pub(crate) address: SocketAddr,
    /// It is offered to the link that it comes from.
    pub(crate) ourselves: bool,
}

#[derive(Debug)]
struct OutgoingLane {
    from: IpAddr,
    to: BlockName,
    memory: Arc<LaneMemory>,
    /// What wakes the reader; it comes with its answer.
    bell: Option<Arc<BellRinger>>,
    /// As the NIC knows it, once it is open.
    records: Option<(LaneId, Arc<WriterSleep>)>,
    state: State,
    /// We read it ourselves: both queue pairs are ours.
    ourselves: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// It was offered then, and there was no answer yet.
    Offered(Time),
    /// It is read.
    Open,
    /// It is not wanted. Kept so that it is not offered again.
    Closed,
}

impl OutgoingLanes {
    pub(crate) fn new(opened: Option<Arc<OpenedLanes>>) -> Self {
        OutgoingLanes {
            lanes: Vec::new(),
            past_records: 0,
            own_records: Vec::new(),
            opened,
        }
    }

    /// Offers a lane to the owner of a block, unless that was done. `ringer` makes what wakes us.
    pub(crate) fn offer(
        &mut self,
        now: Time,
        to: BlockName,
        from: LaneSource,
        outbox: &mut Outbox,
        ringer: impl FnOnce() -> io::Result<OwnedFd>,
    ) {
        if self.opened.is_none() || self.lanes.len() >= MOST || self.find(to).is_some() {
            return;
        }
        // Without memory or descriptors, packets go the way they went before.
        let _ = ringer().and_then(|ringer| self.try_offer(now, to, from, outbox, &ringer));
    }

    fn try_offer(
        &mut self,
        now: Time,
        to: BlockName,
        source: LaneSource,
        outbox: &mut Outbox,
        ringer: &OwnedFd,
    ) -> io::Result<()> {
        if !outbox.is_of_our_user(to) {
            return Ok(());
        }
        let (memory, fd) = LaneMemory::create()?;
        let offer = Message::OfferLane { from: source.address };
        if outbox.post_with(to, &offer, &[fd.as_fd(), ringer.as_fd()])? == Delivery::Sent {
            self.lanes.push(OutgoingLane {
                from: source.address.ip(),
                to,
                memory,
                bell: None,
                records: None,
                state: State::Offered(now),
                ourselves: source.ourselves,
            });
        }
        Ok(())
    }

    /// The owner of a block answered; if it took the lane, with what it is woken by. Its memory, if the lane is open now.
    pub(crate) fn answered(&mut self, from: BlockName, bell: Option<OwnedFd>) -> Option<&Arc<LaneMemory>> {
        let at = self.find(from)?;
        let lane = &mut self.lanes[at];
        if !matches!(lane.state, State::Offered(_)) {
            return None;
        }
        lane.bell = bell.and_then(BellRinger::of_another).map(Arc::new);
        let (Some(bell), Some(opened)) = (&lane.bell, &self.opened) else {
            lane.state = State::Closed;
            return None;
        };
        lane.state = State::Open;
        let place = (lane.to.address.ip, lane.to.block.number());
        let bell = (!lane.ourselves).then(|| Arc::clone(bell));
        let (id, records) = opened.open(lane.from, place, &lane.memory, bell);
        if lane.ourselves {
            self.own_records.push(Arc::clone(&records));
        }
        lane.records = Some((id, records));
        Some(&lane.memory)
    }

    /// The lane to a block has ended, with its reader or without. Returns how the NIC knows it, if it does.
    pub(crate) fn ended(&mut self, to: BlockName) -> Option<LaneId> {
        let at = self.find(to)?;
        let lane = self.lanes.remove(at);
        let (id, records) = lane.records?;
        self.past_records += records.published();
        self.own_records.retain(|own| !Arc::ptr_eq(own, &records));
        Some(id)
    }

    /// How many records were written.
    pub(crate) fn records(&self) -> u64 {
        let open = self.lanes.iter().filter_map(|lane| lane.records.as_ref());
        self.past_records + open.map(|(_, records)| records.published()).sum::<u64>()
    }

    /// A thread is about to sleep: readers must wake it with answers. Whether one has come already.
    pub(crate) fn fall_asleep(&self) -> bool {
        let waits = self.lanes.iter().filter_map(|lane| lane.records.as_ref());
        waits.fold(false, |waiting, (_, records)| records.fall_asleep() | waiting)
    }

    /// A thread that slept is awake and will look; others may still sleep, and must be woken by what comes later.
    pub(crate) fn wake(&self, others_sleep: bool) {
        for (_, records) in self.lanes.iter().filter_map(|lane| lane.records.as_ref()) {
            match others_sleep {
                // What is there already, this thread finds.
                true => drop(records.fall_asleep()),
                false => records.wake(),
            }
        }
    }

    /// Whether an offer was answered, or its answer is no longer worth waiting for.
    pub(crate) fn is_settled(&self, now: Time, to: BlockName) -> bool {
        let state = self.find(to).map(|at| self.lanes[at].state);
        !matches!(state, Some(State::Offered(at)) if now.since(at) < ANSWERS_WITHIN)
    }

    fn find(&self, to: BlockName) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.to == to)
    }

    /// Whether records wait that we wrote to ourselves.
    #[inline]
    pub(crate) fn has_unread_of_our_own(&self) -> bool {
        self.own_records.iter().any(|records| records.awaits_answer())
    }

    /// The descriptors that must stay ours.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.lanes
            .iter()
            .filter_map(|lane| lane.bell.as_deref().map(AsFd::as_fd))
    }
}
