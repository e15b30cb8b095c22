//! Incoming lanes: the reader's side, for all lanes that end at one address.

use super::MOST;
use super::memory::{LaneMemory, RING};
use super::ring::{Broken, RecordReader};
use crate::host::Block;
use crate::link::ExecuteRecord;
use crate::os::bell::{Bell, BellRinger};
use crate::os::poller::Poller;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Records per lane and call, so that none of them can keep the caller.
pub(crate) const RECORDS_PER_CALL: usize = 16;

/// Lanes that end at an address.
#[derive(Debug)]
pub(crate) struct IncomingLanes {
    lanes: Vec<IncomingLane>,
    /// Senders wake us by it; there is none before there is a lane.
    bell: Option<Bell>,
    local: IpAddr,
    enabled: bool,
}

#[derive(Debug)]
struct IncomingLane {
    records: RecordReader,
    /// What wakes the sender when its records are answered.
    sender: BellRinger,
    /// The sender's address, as the sender states it.
    from: SocketAddr,
    /// The inbox and the line that the lane was offered on: the lane ends with the line.
    line: LaneLine,
    /// It has. The lane is closed when the records that were left are executed, and no later than here in the ring.
    ends_at: Option<u64>,
}

/// The line that a lane was offered on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct LaneLine {
    /// Whose inbox.
    pub(crate) block: Block,
    /// Its number there.
    pub(crate) number: u64,
}

impl IncomingLanes {
    pub(crate) fn new(local: IpAddr, enabled: bool) -> Self {
        IncomingLanes {
            lanes: Vec::new(),
            bell: None,
            local,
            enabled,
        }
    }

    /// Accepts a lane that was offered with these descriptors, if that is possible. Its memory, and the descriptor by which
    /// its sender is to wake us.
    pub(crate) fn take(
        &mut self,
        line: LaneLine,
        from: SocketAddr,
        fds: Vec<OwnedFd>,
        poller: &Poller,
    ) -> io::Result<(Arc<LaneMemory>, OwnedFd)> {
        let [memory, sender] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| io::ErrorKind::InvalidData)?;
        let sender = BellRinger::of_another(sender).ok_or(io::ErrorKind::InvalidData)?;
        let known = self.lanes.iter().any(|lane| lane.line == line);
        let families_agree = from.is_ipv4() == self.local.is_ipv4();
        if !self.enabled || known || !families_agree || self.lanes.len() >= MOST {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let ringer = self.bell(poller)?.ringer()?;
        let memory = LaneMemory::open(memory)?;
        let records = RecordReader::new(&memory);
        self.lanes.push(IncomingLane {
            records,
            sender,
            from,
            line,
            ends_at: None,
        });
        Ok((memory, ringer))
    }

    /// A descriptor by which another process wakes us.
    pub(crate) fn ringer(&mut self, poller: &Poller) -> io::Result<OwnedFd> {
        self.bell(poller)?.ringer()
    }

    fn bell(&mut self, poller: &Poller) -> io::Result<&Bell> {
        let bell = match self.bell.take() {
            Some(bell) => bell,
            None => {
                let bell = Bell::new()?;
                poller.watch(&bell)?;
                bell
            }
        };
        Ok(self.bell.insert(bell))
    }

    /// The descriptors that must stay ours.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let senders = self.lanes.iter().map(|lane| lane.sender.as_fd());
        self.bell.iter().map(AsFd::as_fd).chain(senders)
    }

    /// Executes records that have come, and gives them back. How many.
    #[inline]
    pub(crate) fn receive_records(&mut self, execute: &mut ExecuteRecord<'_>) -> u64 {
        let (mut count, mut ended) = (0, false);
        for lane in &mut self.lanes {
            count += lane.execute(self.local, RECORDS_PER_CALL, execute);
            ended |= lane.ends_at.is_some();
        }
        if ended {
            self.close_ended();
        }
        count
    }

    /// A line has ended: its lane is closed as soon as the records that are left in it are executed. Its memory.
    pub(crate) fn ended(&mut self, line: LaneLine) -> Option<Arc<LaneMemory>> {
        let lane = self.lanes.iter_mut().find(|lane| lane.line == line)?;
        // As many as there can be. A sender may hang up and still go on writing.
        lane.ends_at = Some(lane.records.position() + RING);
        let memory = Arc::clone(lane.records.memory());
        self.close_ended();
        Some(memory)
    }

    /// Closes lanes that have ended and have no records left.
    #[cold]
    fn close_ended(&mut self) {
        self.lanes.retain(|lane| match lane.ends_at {
            None => true,
            Some(end) => lane.records.is_waiting() && lane.records.position() < end,
        });
    }

    /// We are about to sleep: a sender that writes must wake us. Whether records wait already.
    pub(crate) fn fall_asleep(&self) -> bool {
        // All of them, though the first has something: waking up asks no questions.
        self.lanes
            .iter()
            .fold(false, |waiting, lane| lane.records.fall_asleep() | waiting)
    }

    /// A thread that slept is awake and will look; others may still sleep, and must be woken by what comes later.
    pub(crate) fn wake(&self, others_sleep: bool) {
        // It is also rung for answers to what we wrote, whether or not there are lanes to us.
        if let Some(bell) = &self.bell {
            bell.drain();
        }
        for lane in &self.lanes {
            match others_sleep {
                // What is there already, this thread finds.
                true => drop(lane.records.fall_asleep()),
                false => lane.records.wake(),
            }
        }
    }
}

impl IncomingLane {
    /// Executes at most so many records. How many there were.
    #[inline]
    fn execute(&mut self, local: IpAddr, most: usize, execute: &mut ExecuteRecord<'_>) -> u64 {
        let addresses = (self.from.ip(), local);
        let mut count = 0;
        while count < most {
            let executed = self
                .records
                .read(&mut |request, room| execute(addresses, request, room));
            match executed {
                Ok(true) => count += 1,
                // A broken one keeps its place until its line ends: its sender gets no other.
                Ok(false) | Err(Broken) => break,
            }
        }
        if count > 0 && self.records.give_back() {
            self.sender.ring();
        }
        count as u64
    }
}
