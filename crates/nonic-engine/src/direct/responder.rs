//! The target's side of direct access: which of our queue pairs are published, and how far their peers have served them.
//!
//! How far is a word in the lane's ring, one for each entry of the publication: the packet that follows, how many messages
//! were executed, and which life of the queue pair they belong to. A word is enough for any number of requests, so the
//! target need not look at it until it has a reason to.

use super::Publication;
use super::publication::QP_COUNT;
use crate::link::lane::ring::RingMemory;
use nonic_core::{KeyHasher, Progress, Psn, Qpn, Target};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Sequence numbers and the number of messages have so many bits.
const BITS: u32 = 24;
const MASK: u64 = (1 << BITS) - 1;

/// How far a queue pair was served directly, as it stands in a ring.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Note {
    /// The low bits of the life it belongs to.
    pub(super) epoch: u16,
    /// Messages executed in this life; wraps.
    pub(super) messages: u32,
    /// The packet that follows.
    pub(super) next: Psn,
}

impl Note {
    #[inline]
    pub(super) fn to_word(self) -> u64 {
        u64::from(self.epoch) << (2 * BITS)
            | (u64::from(self.messages) & MASK) << BITS
            | u64::from(self.next.value())
    }

    #[inline]
    pub(super) fn from_word(word: u64) -> Self {
        Note {
            epoch: (word >> (2 * BITS)) as u16,
            messages: (word >> BITS & MASK) as u32,
            next: Psn::new((word & MASK) as u32),
        }
    }
}

/// Our published queue pairs.
pub(super) struct Responder {
    publication: Arc<Publication>,
    qps: HashMap<u32, Published, BuildHasherDefault<KeyHasher>>,
    /// Lives are numbered from one: no ring has a note of life zero by itself.
    epoch: u32,
}

#[derive(Debug)]
struct Published {
    index: usize,
    epoch: u16,
    /// Messages of this life that were reported.
    messages: u32,
    block: u16,
    sender: (IpAddr, u16),
    /// Where the peer's notes are, if it has a lane to us.
    ring: Option<Arc<RingMemory>>,
    /// That of the incoming lanes when the ring was looked for.
    generation: Option<u64>,
    live: bool,
}

impl Published {
    /// The progress in the ring that was not reported before.
    #[inline]
    fn take_progress(&mut self) -> Option<Progress> {
        let note = Note::from_word(self.ring.as_ref()?.note(self.index).load(Ordering::Acquire));
        if note.epoch != self.epoch || note.messages == self.messages {
            return None;
        }
        let messages = note.messages.wrapping_sub(self.messages) & MASK as u32;
        self.messages = note.messages;
        Some(Progress {
            next: note.next,
            messages,
        })
    }

    /// Lanes have come or gone: the peer's may be another one. What the old one still tells.
    #[cold]
    fn find_ring(&mut self, publication: &Publication, generation: u64) -> Option<Progress> {
        self.generation = Some(generation);
        let ring = publication.incoming.find(self.block, self.sender)?;
        if self.ring.as_ref().is_some_and(|known| Arc::ptr_eq(known, &ring)) {
            return None;
        }
        let progress = self.take_progress();
        // The peer counts from the beginning on a new lane.
        (self.ring, self.messages) = (Some(ring), 0);
        progress
    }
}

impl Responder {
    pub(super) fn new(publication: Arc<Publication>) -> Self {
        Responder {
            publication,
            qps: HashMap::default(),
            epoch: 0,
        }
    }

    /// Publishes a queue pair.
    pub(super) fn publish(&mut self, qpn: Qpn, target: &Target) {
        // A peer could take a note of a life 65,536 lives ago for one of this; it would have to have been silent since.
        self.epoch = self.epoch.wrapping_add(1).max(1);
        self.qps.remove(&qpn.value());
        let Some(index) = self.publication.publish_qp(qpn, target, self.epoch) else {
            return;
        };
        let block = |qpn: Qpn| (qpn.value() >> 12) as u16;
        let published = Published {
            index,
            epoch: self.epoch as u16,
            messages: 0,
            block: block(qpn),
            sender: (target.remote, block(target.peer)),
            ring: None,
            generation: None,
            live: true,
        };
        if self.qps.len() >= QP_COUNT {
            // Numbers of queue pairs that are gone.
            self.qps.retain(|_, published| published.live);
        }
        self.qps.insert(qpn.value(), published);
    }

    /// Takes it back.
    pub(super) fn withdraw(&mut self, qpn: Qpn) {
        if let Some(published) = self.qps.get_mut(&qpn.value()) {
            if published.live {
                // A peer that does not end an access delays the owners of the memory, which learn that it is busy.
                self.publication.withdraw_qp(published.index);
                published.live = false;
            }
        }
    }

    #[inline]
    pub(super) fn expect(&self, qpn: Qpn, psn: Psn) {
        if let Some(published) = self.qps.get(&qpn.value()) {
            if published.live {
                self.publication.expect(published.index, psn);
            }
        }
    }

    /// What its peer has executed since this was last asked.
    #[inline]
    pub(super) fn executed(&mut self, qpn: Qpn) -> Option<Progress> {
        let published = self.qps.get_mut(&qpn.value())?;
        let generation = self.publication.incoming.generation();
        let old = match published.generation == Some(generation) {
            true => None,
            false => published.find_ring(&self.publication, generation),
        };
        match (old, published.take_progress()) {
            (Some(old), Some(new)) => Some(Progress {
                messages: old.messages.wrapping_add(new.messages),
                ..new
            }),
            (old, new) => new.or(old),
        }
    }
}
