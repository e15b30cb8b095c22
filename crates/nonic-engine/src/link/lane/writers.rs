//! The lanes of a shard as its NIC writes records to them.
//!
//! Links open lanes and learn of their end; the NIC writes to them. So that neither has to ask the other, a link leaves what it opened
//! in [`OpenedLanes`], where the NIC looks when a queue pair wants to know whether a lane leads to its peer.

use super::memory::LaneMemory;
use super::ring::{RecordWriter, WriterSleep};
use crate::os::bell::BellRinger;
use nonic_core::{Answered, LaneId, Lanes, Qpn, RecordTag};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lanes that links have opened and the NIC has not taken up.
#[derive(Debug, Default)]
pub(crate) struct OpenedLanes {
    /// How many were opened, which is the number of the next. Changed with the list locked.
    next: AtomicU32,
    opened: Mutex<Vec<RecordLane>>,
}

impl OpenedLanes {
    /// A lane from an address of ours to a block at another is open; `bell` wakes its reader, unless that is the shard itself. Returns its number, and what
    /// a thread that is about to sleep needs to know of it.
    pub(crate) fn open(
        &self,
        from: IpAddr,
        (ip, block): (IpAddr, u16),
        memory: &Arc<LaneMemory>,
        bell: Option<Arc<BellRinger>>,
    ) -> (LaneId, Arc<WriterSleep>) {
        let writer = RecordWriter::new(memory);
        let sleep = Arc::clone(writer.sleep());
        let mut opened = self.opened();
        let id = LaneId(self.next.load(Ordering::Relaxed));
        opened.push(RecordLane {
            id,
            from,
            ip,
            block,
            writer,
            bell,
        });
        // Nobody else changes it, and who sees it finds the lane in the list.
        self.next.store(id.0.wrapping_add(1), Ordering::Release);
        (id, sleep)
    }

    fn opened(&self) -> MutexGuard<'_, Vec<RecordLane>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lane, and where it leads.
#[derive(Debug)]
struct RecordLane {
    id: LaneId,
    from: IpAddr,
    ip: IpAddr,
    block: u16,
    writer: RecordWriter,
    /// What wakes the reader. None if it is the shard that writes, for which no thread is woken.
    bell: Option<Arc<BellRinger>>,
}

/// The lanes that a NIC writes to.
#[derive(Debug)]
pub(crate) struct RecordLanes {
    opened: Arc<OpenedLanes>,
    lanes: Vec<RecordLane>,
    /// How many had been opened when it was last looked for new ones.
    known: u32,
    /// The one that was written to last: most records go where the one before went.
    latest: usize,
    /// A record was written to a lane that leads back to this shard.
    wrote_to_itself: bool,
}

impl RecordLanes {
    pub(crate) fn new(opened: &Arc<OpenedLanes>) -> Self {
        RecordLanes {
            opened: Arc::clone(opened),
            lanes: Vec::new(),
            known: 0,
            latest: 0,
            wrote_to_itself: false,
        }
    }

    #[inline]
    fn lane(&mut self, id: LaneId) -> Option<&mut RecordLane> {
        if self.lanes.get(self.latest).is_none_or(|lane| lane.id != id) {
            self.latest = self.lanes.iter().position(|lane| lane.id == id)?;
        }
        self.lanes.get_mut(self.latest)
    }
}

impl Lanes for RecordLanes {
    fn find(&mut self, local: IpAddr, remote: IpAddr, qpn: Qpn) -> Option<LaneId> {
        // Datagrams ask for each message.
        let count = self.opened.next.load(Ordering::Acquire);
        if count != self.known {
            self.lanes.append(&mut self.opened.opened());
            self.known = count;
        }
        let block = (qpn.value() >> 12) as u16;
        let leads_there = |lane: &&RecordLane| lane.block == block && lane.ip == remote && lane.from == local;
        let latest = self.lanes.get(self.latest).filter(leads_there);
        latest
            .or_else(|| self.lanes.iter().rev().find(leads_there))
            .map(|lane| lane.id)
    }

    #[inline]
    fn room(&mut self, lane: LaneId, bytes: usize) -> Option<&mut [u8]> {
        self.lane(lane)?.writer.room(bytes)
    }

    #[inline]
    fn publish(&mut self, lane: LaneId, request: usize, tag: RecordTag) {
        let Some(lane) = self.lane(lane) else {
            return;
        };
        let sleeps = lane.writer.publish(request, tag);
        match &lane.bell {
            Some(bell) if sleeps => bell.ring(),
            Some(_) => {}
            None => self.wrote_to_itself = true,
        }
    }

    #[inline]
    fn wrote_to_itself(&mut self) -> bool {
        std::mem::take(&mut self.wrote_to_itself)
    }

    #[inline]
    fn has_answer(&mut self) -> bool {
        self.lanes.iter_mut().any(|lane| lane.writer.has_answer())
    }

    #[inline]
    fn take_answer(&mut self) -> Option<Answered<'_>> {
        let mut lanes = self.lanes.iter_mut();
        let lane = lanes.find_map(|lane| lane.writer.has_answer().then_some(lane))?;
        lane.writer.take_answer()
    }

    fn close(&mut self, lane: LaneId) {
        self.lanes.append(&mut self.opened.opened());
        self.lanes.retain(|known| known.id != lane);
        self.latest = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// A device may have several addresses, and a lane from each. The reader of one takes what comes for the other's.
    #[test]
    fn a_lane_is_found_by_both_of_its_ends() {
        let [one, other, peer] = [1, 2, 3].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let opened = Arc::new(OpenedLanes::default());
        let mut lanes = RecordLanes::new(&opened);
        let qpn = Qpn::new(0x5123);
        assert_eq!(lanes.find(one, peer, qpn), None);
        let open = |from| {
            let (memory, _fd) = LaneMemory::create().expect("memory");
            opened.open(from, (peer, 5), &memory, None).0
        };
        let [first, second] = [one, other].map(open);
        for _ in 0..2 {
            assert_eq!(lanes.find(one, peer, qpn), Some(first));
            assert_eq!(lanes.find(other, peer, qpn), Some(second));
        }
        assert_eq!(lanes.find(peer, one, qpn), None);
        assert_eq!(lanes.find(one, peer, Qpn::new(0x6123)), None);
        lanes.close(first);
        assert_eq!(lanes.find(one, peer, qpn), None);
        assert_eq!(lanes.find(other, peer, qpn), Some(second));
    }
}
