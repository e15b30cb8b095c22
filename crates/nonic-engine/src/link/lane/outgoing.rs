//! Outgoing lanes: the sender's side, for all lanes that start at one address.

use super::record_lanes::OpenedLanes;
use super::record_ring::WriterSleep;
use super::ring::{Broken, RingMemory, RingWriter};
use super::{CONSIDERATION, MOST, PATIENCE};
use crate::host::{BlockName, Delivery, Message, Outbox};
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
    /// The one that was used last: most batches go where the one before went.
    latest: usize,
    /// Something was sent on a lane that leads to ourselves, and may wait there.
    sent_to_ourselves: bool,
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
    /// The block that its queue pairs are in.
    pub(crate) block: u16,
    /// It is offered to the link that it comes from.
    pub(crate) ourselves: bool,
}

#[derive(Debug)]
struct OutgoingLane {
    to: BlockName,
    ring: RingWriter,
    /// What wakes the reader; it comes with its answer.
    bell: Option<Arc<BellRinger>>,
    /// As the NIC knows it, once it is open.
    records: Option<(LaneId, Arc<WriterSleep>)>,
    state: State,
    /// We read it ourselves: both queue pairs are ours.
    ourselves: bool,
    /// The ring is full, and its reader where it was.
    full: Option<Standstill>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// It was offered then, and there was no answer yet.
    Offered(Time),
    /// It is read.
    Open,
    /// It is not wanted, or broken. Kept so that it is not offered again.
    Closed,
}

/// What there is for a batch.
pub(crate) enum LaneRoom<'a> {
    /// No lane leads there.
    NoLane,
    /// Room in a lane; [`OutgoingLanes::publish`] sends what is written there.
    Room(&'a mut [u8]),
    /// A lane leads there, and it is full.
    Full,
    /// A lane leads there whose reader does not read: what is sent is dropped.
    Lost,
}

impl LaneRoom<'_> {
    /// Copies a batch that was written elsewhere, if a lane leads there: whether it is to be published, or dropped. For a
    /// lane whose reader is behind it fails with `WouldBlock`, as for a socket that has no room.
    pub(crate) fn put(self, bytes: &[u8]) -> Option<io::Result<bool>> {
        match self {
            LaneRoom::NoLane => None,
            LaneRoom::Full => Some(Err(io::ErrorKind::WouldBlock.into())),
            LaneRoom::Lost => Some(Ok(false)),
            LaneRoom::Room(room) => {
                let room = room.get_mut(..bytes.len());
                Some(Ok(room.map(|room| room.copy_from_slice(bytes)).is_some()))
            }
        }
    }
}

impl OutgoingLanes {
    pub(crate) fn new(opened: Option<Arc<OpenedLanes>>) -> Self {
        OutgoingLanes {
            lanes: Vec::new(),
            latest: 0,
            sent_to_ourselves: false,
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
        let (ring, memory) = RingWriter::create()?;
        let offer = Message::OfferLane {
            from: source.address,
            block: source.block,
        };
        if outbox.post_with(to, &offer, &[memory.as_fd(), ringer.as_fd()])? == Delivery::Sent {
            self.lanes.push(OutgoingLane {
                to,
                ring,
                bell: None,
                records: None,
                state: State::Offered(now),
                ourselves: source.ourselves,
                full: None,
            });
        }
        Ok(())
    }

    /// The owner of a block answered; if it took the lane, with what it is woken by. The ring, if the lane is open now.
    pub(crate) fn answered(&mut self, from: BlockName, bell: Option<OwnedFd>) -> Option<&Arc<RingMemory>> {
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
        let (id, records) = opened.open(place, lane.ring.memory(), bell);
        if lane.ourselves {
            self.own_records.push(Arc::clone(&records));
        }
        lane.records = Some((id, records));
        Some(lane.ring.memory())
    }

    /// The lane to a block has ended, with its reader or without. Returns how the NIC knows it, if it does.
    pub(crate) fn ended(&mut self, to: BlockName) -> Option<LaneId> {
        let at = self.find(to)?;
        let lane = self.lanes.remove(at);
        self.latest = 0;
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

    /// Whether an offer was answered, or will not be.
    pub(crate) fn is_settled(&self, now: Time, to: BlockName) -> bool {
        let state = self.find(to).map(|at| self.lanes[at].state);
        !matches!(state, Some(State::Offered(at)) if now.since(at) < CONSIDERATION)
    }

    /// Whether an open lane leads to a block at an address.
    pub(crate) fn leads_to(&self, ip: IpAddr, block: u16) -> bool {
        self.lanes.iter().any(|lane| {
            lane.state == State::Open && lane.to.block.number() == block && lane.to.address.ip == ip
        })
    }

    fn find(&self, to: BlockName) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.to == to)
    }

    /// Room for a batch to a block at an address.
    #[inline]
    pub(crate) fn room(&mut self, now: Time, ip: IpAddr, block: u16) -> LaneRoom<'_> {
        let leads_there = |lane: &OutgoingLane| lane.to.block.number() == block && lane.to.address.ip == ip;
        if !self.lanes.get(self.latest).is_some_and(leads_there) {
            match self.lanes.iter().position(leads_there) {
                Some(at) => self.latest = at,
                None => return LaneRoom::NoLane,
            }
        }
        let lane = &mut self.lanes[self.latest];
        if lane.state != State::Open {
            return LaneRoom::NoLane;
        }
        match lane.ring.has_room() {
            Ok(true) => {
                lane.full = None;
                LaneRoom::Room(lane.ring.room())
            }
            Ok(false) => match lane.is_read(now) {
                true => LaneRoom::Full,
                false => LaneRoom::Lost,
            },
            Err(Broken) => {
                lane.state = State::Closed;
                LaneRoom::NoLane
            }
        }
    }

    /// Sends what was written to the room that was asked for last.
    #[inline]
    pub(crate) fn publish(&mut self, length: usize, stride: usize) {
        let lane = &mut self.lanes[self.latest];
        let asleep = lane.ring.publish(length, stride);
        if lane.ourselves {
            self.sent_to_ourselves = true;
        } else if asleep {
            if let Some(bell) = &lane.bell {
                bell.ring();
            }
        }
    }

    /// Whether what we sent to ourselves waits for us to read it.
    #[inline]
    pub(crate) fn has_unread_of_our_own(&mut self) -> bool {
        if self.own_records.iter().any(|records| records.awaits_answer()) {
            return true;
        }
        if self.sent_to_ourselves {
            let mut ours = self.lanes.iter().filter(|lane| lane.ourselves);
            self.sent_to_ourselves = ours.any(|lane| !lane.ring.is_read());
        }
        self.sent_to_ourselves
    }

    /// The descriptors that must stay ours.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.lanes
            .iter()
            .filter_map(|lane| lane.bell.as_deref().map(AsFd::as_fd))
    }
}

impl OutgoingLane {
    /// Whether the reader of a full ring has gone on lately.
    #[cold]
    fn is_read(&mut self, now: Time) -> bool {
        let position = self.ring.position_of_reader();
        let anew = Standstill { since: now, position };
        let standstill = self.full.get_or_insert(anew);
        if standstill.position != position {
            *standstill = anew;
        }
        now.since(standstill.since) < PATIENCE
    }
}

/// A reader that does not go on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Standstill {
    since: Time,
    /// How far it was.
    position: u64,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::ring::RingReader;
    use super::*;
    use crate::host::Block;
    use crate::os::netdev::LocalAddress;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const DATAGRAM: [u8; 4120] = [7; 4120];

    /// An open lane, and its reader.
    fn lane() -> (OutgoingLanes, RingReader) {
        let (ring, memory) = RingWriter::create().expect("memory");
        let mut lanes = OutgoingLanes::new(Some(Arc::default()));
        lanes.lanes.push(OutgoingLane {
            to: BlockName {
                address: LocalAddress { ip: IP, scope_id: 0 },
                block: Block::FIRST,
            },
            ring,
            bell: None,
            records: None,
            state: State::Open,
            ourselves: false,
            full: None,
        });
        (lanes, RingReader::open(&memory).expect("a ring"))
    }

    /// What becomes of a datagram: sent, lost, or not yet either.
    fn send(lanes: &mut OutgoingLanes, now: Time) -> Option<bool> {
        let put = lanes.room(now, IP, Block::FIRST.number()).put(&DATAGRAM);
        let sent = put.expect("a lane leads there").ok();
        if sent == Some(true) {
            lanes.publish(DATAGRAM.len(), DATAGRAM.len());
        }
        sent
    }

    /// Datagrams were dropped as soon as the ring was full, though its reader was about to read: perftest's four queue
    /// pairs of UD on a busy machine.
    #[test]
    fn a_datagram_for_a_full_lane_waits_for_its_reader() {
        let (mut lanes, mut reader) = lane();
        let start = Time::ZERO;
        while send(&mut lanes, start) == Some(true) {}
        assert_eq!(send(&mut lanes, start), None);
        assert_eq!(
            send(&mut lanes, start + (PATIENCE - Duration::from_nanos(1))),
            None
        );
        reader.read(|_| ()).expect("sound").expect("a batch");
        reader.read(|_| ()).expect("sound").expect("a batch");
        assert_eq!(send(&mut lanes, start + PATIENCE), Some(true));
    }

    #[test]
    fn a_datagram_for_a_lane_that_nobody_reads_is_lost() {
        let (mut lanes, _reader) = lane();
        let start = Time::ZERO;
        while send(&mut lanes, start) == Some(true) {}
        assert_eq!(send(&mut lanes, start + PATIENCE), Some(false));
    }
}
