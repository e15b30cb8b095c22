//! The queue pairs of a NIC: one slab for all transports, and one map from numbers to slots.
//!
//! A queue pair gets its transport when it is created and keeps it. A new transport is a variant of [`Transport`]: a machine that owns its
//! queue pair's context ([`QpContext`]). It must post sends and receives, run its timers, fail, be destroyed and show itself: these are the
//! methods of [`QueuePair`], and the rest of the NIC calls nothing else where all transports are alike. It says what is to be moved in the
//! words of what carries it: packets (`transmit`, `turns`), bytes of a stream (`streams`), or records in a lane (`records`), to which a
//! reliable connection of RoCE changes when its peer is on this host. `docs/decisions/26-transports.md` has the reasons.

use crate::iwarp::IwarpQueuePair;
use crate::queue_pair::{PostError, QpAttributes, QpContext, QueuePairView};
use crate::resources::NicResources;
use crate::roce::queue_pair::RoceQueuePair;
use crate::roce::window::PeerTable;
use crate::room::has_room;
use crate::time::Time;
use crate::timer::{Timer, Token};
use crate::verbs::memory::KeyHasher;
use crate::verbs::work::{RecvRequest, SendRequest};
use nonic_wire::Qpn;
use slab::Slab;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// Later than any time: there is no entry in the wheel.
const NOT_SCHEDULED: Time = Time::from_ns(u64::MAX);

/// All queue pairs.
#[derive(Debug, Default)]
pub(super) struct QueuePairs {
    slab: Slab<QueuePair>,
    by_qpn: HashMap<u32, usize, BuildHasherDefault<KeyHasher>>,
    generation: u32,
}

/// A queue pair of any transport.
#[derive(Debug)]
pub(super) struct QueuePair {
    /// Distinguishes it from earlier users of its slot.
    generation: u32,
    /// The earliest entry in the wheel for each timer. Small, because there may be a million queue pairs.
    scheduled: [Time; Timer::ALL.len()],
    pub(super) transport: Transport,
}

/// What moves the requests of a queue pair, and in whose words it asks for that.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a device speaks RoCE or iWARP, so the slots of one NIC are all of the same kind"
)]
pub(super) enum Transport {
    /// RC, UC, UD and XRC in packets ([`Nic::poll_transmit`](super::Nic::poll_transmit)).
    Roce(RoceQueuePair),
    /// RC over a stream of bytes ([`Nic::poll_stream_event`](super::Nic::poll_stream_event)).
    Iwarp(IwarpQueuePair),
}

impl QueuePairs {
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// The slots there are, used or not.
    pub(super) fn slots(&self) -> usize {
        self.slab.capacity()
    }

    pub(super) fn contains(&self, qpn: u32) -> bool {
        self.by_qpn.contains_key(&qpn)
    }

    /// Where the queue pair of this number is.
    pub(super) fn slot(&self, qpn: Qpn) -> Option<usize> {
        self.by_qpn.get(&qpn.value()).copied()
    }

    pub(super) fn find(&self, qpn: Qpn) -> Option<&QueuePair> {
        self.slot(qpn).map(|slot| &self.slab[slot])
    }

    pub(super) fn get(&self, slot: usize) -> Option<&QueuePair> {
        self.slab.get(slot)
    }

    /// The owner of an entry in the wheel, unless another queue pair has the slot by now.
    pub(super) fn owner(&mut self, token: &Token) -> Option<&mut QueuePair> {
        let qp = self.slab.get_mut(token.slot as usize)?;
        (qp.generation == token.generation).then_some(qp)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &QueuePair> {
        self.slab.iter().map(|(_, qp)| qp)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut QueuePair)> {
        self.slab.iter_mut()
    }

    /// Whether there is memory for one more.
    pub(super) fn reserve(&mut self) -> bool {
        // A full slab doubles.
        let growth = match self.slab.len() == self.slab.capacity() {
            true => 2 * self.slab.capacity() * (size_of::<QueuePair>() + size_of::<usize>()),
            false => 0,
        };
        let table = self.by_qpn.try_reserve(1);
        has_room(growth) && table.is_ok()
    }

    pub(super) fn insert(&mut self, qpn: Qpn, transport: Transport) {
        self.generation = self.generation.wrapping_add(1);
        let slot = self.slab.insert(QueuePair {
            generation: self.generation,
            scheduled: [NOT_SCHEDULED; Timer::ALL.len()],
            transport,
        });
        self.by_qpn.insert(qpn.value(), slot);
    }

    /// Takes the queue pair of this number out of its slot.
    pub(super) fn remove(&mut self, qpn: Qpn) -> Option<QueuePair> {
        let slot = self.by_qpn.remove(&qpn.value())?;
        Some(self.slab.remove(slot))
    }

    /// A queue pair that is known to be one of RoCE: only those send packets, wait for a window and receive any.
    pub(super) fn roce(&self, slot: usize) -> &RoceQueuePair {
        match &self.slab[slot].transport {
            Transport::Roce(qp) => qp,
            Transport::Iwarp(_) => unreachable!("slots of queue pairs with packets are RoCE's"),
        }
    }

    /// The same, to change it.
    pub(super) fn roce_mut(&mut self, slot: usize) -> &mut RoceQueuePair {
        match &mut self.slab[slot].transport {
            Transport::Roce(qp) => qp,
            Transport::Iwarp(_) => unreachable!("slots of queue pairs with packets are RoCE's"),
        }
    }

    /// A queue pair that is known to be one of iWARP: only those have streams.
    pub(super) fn iwarp(&self, slot: usize) -> &IwarpQueuePair {
        match &self.slab[slot].transport {
            Transport::Iwarp(qp) => qp,
            Transport::Roce(_) => unreachable!("slots of queue pairs with streams are iWARP's"),
        }
    }

    /// The same, to change it.
    pub(super) fn iwarp_mut(&mut self, slot: usize) -> &mut IwarpQueuePair {
        match &mut self.slab[slot].transport {
            Transport::Iwarp(qp) => qp,
            Transport::Roce(_) => unreachable!("slots of queue pairs with streams are iWARP's"),
        }
    }
}

impl std::ops::Index<usize> for QueuePairs {
    type Output = QueuePair;

    fn index(&self, slot: usize) -> &QueuePair {
        &self.slab[slot]
    }
}

impl std::ops::IndexMut<usize> for QueuePairs {
    fn index_mut(&mut self, slot: usize) -> &mut QueuePair {
        &mut self.slab[slot]
    }
}

impl QueuePair {
    /// What no transport is needed for.
    pub(super) fn common(&self) -> &QpContext {
        match &self.transport {
            Transport::Roce(qp) => &qp.roce.common,
            Transport::Iwarp(qp) => &qp.common,
        }
    }

    /// The queue pair, if it is one of RoCE.
    pub(super) fn as_roce(&self) -> Option<&RoceQueuePair> {
        match &self.transport {
            Transport::Roce(qp) => Some(qp),
            Transport::Iwarp(_) => None,
        }
    }

    /// The queue pair, if it is one of iWARP.
    pub(super) fn as_iwarp(&self) -> Option<&IwarpQueuePair> {
        match &self.transport {
            Transport::Iwarp(qp) => Some(qp),
            Transport::Roce(_) => None,
        }
    }

    pub(super) fn post_send(
        &mut self,
        nic: &mut NicResources,
        request: &SendRequest<'_>,
        more: bool,
    ) -> Result<(), PostError> {
        match &mut self.transport {
            Transport::Roce(qp) => qp.post_send(nic, request, more),
            Transport::Iwarp(qp) => qp.post_send(nic, request),
        }
    }

    pub(super) fn post_recv(
        &mut self,
        nic: &mut NicResources,
        request: &RecvRequest<'_>,
    ) -> Result<(), PostError> {
        match &mut self.transport {
            Transport::Roce(qp) => qp.post_recv(nic, request),
            Transport::Iwarp(qp) => qp.post_recv(nic, request),
        }
    }

    /// Requests posted and not completed.
    pub(super) fn send_queue_len(&self) -> usize {
        match &self.transport {
            Transport::Roce(qp) => qp.send_queue_len(),
            Transport::Iwarp(qp) => qp.send_queue_len(),
        }
    }

    /// Whether its peer owes an answer to something that is under way.
    pub(super) fn awaits_answer(&self) -> bool {
        match &self.transport {
            Transport::Roce(qp) => qp.awaits_answer(),
            Transport::Iwarp(qp) => qp.awaits_answer(),
        }
    }

    /// Whether its WRITEs and READs are executed here, in the memory of its peer.
    pub(super) fn executes_by_itself(&self) -> bool {
        match &self.transport {
            Transport::Roce(qp) => qp.executes_by_itself(),
            Transport::Iwarp(_) => false,
        }
    }

    /// The attributes in force.
    pub(super) fn attributes(&self) -> QpAttributes {
        match &self.transport {
            Transport::Roce(qp) => qp.attributes(),
            Transport::Iwarp(qp) => qp.attributes(),
        }
    }

    /// Moves to the error state and flushes both queues.
    pub(super) fn enter_error(&mut self, nic: &mut NicResources) {
        match &mut self.transport {
            Transport::Roce(qp) => qp.enter_error(nic),
            Transport::Iwarp(qp) => qp.abort(nic),
        }
    }

    /// What it is at.
    pub(super) fn view(&self, peers: &PeerTable) -> QueuePairView {
        match &self.transport {
            Transport::Roce(qp) => qp.view(peers),
            Transport::Iwarp(qp) => qp.view(),
        }
    }

    /// When `timer` is due, if it is set.
    fn deadline(&self, timer: Timer) -> Option<Time> {
        match &self.transport {
            Transport::Roce(qp) => qp.deadline(timer),
            Transport::Iwarp(qp) => qp.deadline().filter(|_| timer == Timer::Stream),
        }
    }

    /// An entry of the wheel is due. Whether the timer itself is: the entry may be left over from a deadline that moved.
    pub(super) fn is_due(&mut self, now: Time, timer: Timer) -> bool {
        let scheduled = &mut self.scheduled[timer as usize];
        // A later entry than the earliest may be left over as well.
        if *scheduled <= now {
            *scheduled = NOT_SCHEDULED;
        }
        self.deadline(timer).is_some_and(|at| at <= now)
    }

    /// Runs what is due.
    pub(super) fn handle_timeout(&mut self, nic: &mut NicResources) {
        match &mut self.transport {
            Transport::Roce(qp) => qp.handle_timeout(nic),
            Transport::Iwarp(qp) => qp.handle_timeout(nic),
        }
    }

    /// Has `schedule` enter in the wheel what is due sooner than what stands there.
    pub(super) fn schedule_timers(&mut self, slot: usize, mut schedule: impl FnMut(Time, Token)) {
        for timer in Timer::ALL {
            let Some(at) = self.deadline(timer) else { continue };
            let scheduled = &mut self.scheduled[timer as usize];
            if at < *scheduled {
                *scheduled = at;
                let token = Token {
                    slot: slot as u32,
                    generation: self.generation,
                    timer,
                };
                schedule(at, token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_queue_pair_is_small() {
        // A process may have a million of them.
        let bytes = size_of::<QueuePair>();
        assert!(bytes <= 1024, "{bytes} bytes");
    }
}
