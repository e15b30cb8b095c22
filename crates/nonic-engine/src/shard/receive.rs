//! Reception: packets from links to the NIC, and what links learn of peers.
//!
//! Each call takes a bounded amount from one source. [`Shard::drive`] decides which sources to poll when.

use super::Shard;
use crate::host::demultiplex;
use crate::link::lane::RECORDS_PER_CALL;
use crate::link::{Datagrams, Notice};
use crate::os::descriptors;
use nonic_core::{Arrival, Nic, Time};

/// Receives per call and source, so that a flood cannot keep a caller.
const RECEIVES_PER_DRIVE: usize = 16;
/// Looks at lanes before a queue pair ends, at most: a ring of short records is empty then.
const EXCHANGES_AT_THE_END: usize = 1024;
/// Below this many bytes, a receive is answered before polling for the next one: the peer waits for the answer. More than
/// that is a message of some length or a batch of short ones, and what comes right behind is answered with it.
pub(super) const SMALL_RECEIVE: usize = 1024;

impl Shard {
    /// Takes what all sources have but the one that was busy last.
    pub(super) fn receive_elsewhere(&mut self, now: Time) -> bool {
        let mut worked = false;
        for link in 0..self.carriers.links.len() {
            for source in 0..self.carriers.links[link].sources().all {
                if (link, source) != self.schedule.hot() {
                    worked |= self.receive(now, (link, source));
                }
            }
        }
        worked
    }

    /// Executes records that came through lanes, and takes the answers to those of ours. Whether there were any. Neither needs a clock,
    /// but for what is out of the ordinary.
    #[inline]
    pub(super) fn exchange_records(&mut self, clock: &dyn Fn() -> Time) -> bool {
        let recent = self.clock_read;
        let Shard { nic, carriers, .. } = self;
        let mut executed = 0;
        for link in &mut carriers.links {
            executed += link.receive_records(&mut |addresses, request, room| {
                nic.handle_record(recent, addresses, request, room)
            });
        }
        carriers.unread = executed >= RECORDS_PER_CALL as u64;
        let answered = nic.handle_answers(recent, clock);
        let worked = executed > 0 || answered > 0;
        if worked {
            self.schedule.used_lanes();
        }
        worked
    }

    /// Executes records, and takes answers, as long as there are any: a queue pair is about to end, and what its peer did before counts.
    pub(crate) fn finish_records(&mut self, now: Time) {
        for _ in 0..EXCHANGES_AT_THE_END {
            if !self.exchange_records(&|| now) {
                break;
            }
        }
    }

    /// Takes what one source has.
    pub(super) fn receive(&mut self, now: Time, (index, source): (usize, usize)) -> bool {
        let Shard { nic, carriers, .. } = self;
        let Some(link) = carriers.links.get_mut(index) else {
            return false;
        };
        let mut worked = false;
        for _ in 0..RECEIVES_PER_DRIVE {
            match link.receive(now, source, &mut |datagrams| take(nic, now, datagrams)) {
                Ok(bytes) => {
                    worked = true;
                    if bytes < SMALL_RECEIVE {
                        break;
                    }
                }
                Err(error) => {
                    self.failure.doubt(descriptors::casts_doubt(&error));
                    break;
                }
            }
        }
        if worked && source < link.sources().busy {
            self.schedule.came_from((index, source));
        }
        if self.nic.has_management() {
            self.exchange_messages(now);
        }
        worked
    }

    /// Tells the connection manager what the links learned about peers.
    pub(super) fn hear_notices(&mut self, now: Time) {
        for link in &mut self.carriers.links {
            while let Some(notice) = link.presence_mut().poll_notice() {
                let connections = &self.common.connections;
                match notice {
                    Notice::Refused(host) => connections.with(|cm| cm.unreachable(now, host)),
                    Notice::LaneEnded(lane) => self.nic.lane_ended(now, lane),
                    Notice::ProcessEnded { ip, block } => connections.with(|cm| {
                        cm.peer_gone(now, ip, |id| demultiplex::block_of(id) == Some(block));
                    }),
                }
            }
        }
    }
}

/// Congestion Experienced: what a router makes of the ECN bits of a packet that it would otherwise have dropped.
const ECN_CONGESTED: u8 = 0b11;

/// Gives packets to the NIC.
pub(super) fn take(nic: &mut Nic, now: Time, datagrams: &Datagrams<'_>) {
    let arrival = Arrival {
        src: datagrams.src,
        dst: datagrams.dst_ip,
        stride: datagrams.stride,
        congested: datagrams.ecn == ECN_CONGESTED,
    };
    match datagrams.sealed {
        true => nic.handle_datagram(now, &arrival, datagrams.bytes),
        false => nic.handle_unchecked(now, &arrival, datagrams.bytes),
    }
}
