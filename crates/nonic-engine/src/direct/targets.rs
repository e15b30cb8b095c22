//! The target's side of direct access: which of our queue pairs are published, and where.

use super::Publication;
use nonic_core::{KeyHasher, Qpn, Target};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

/// The published queue pairs of a shard.
pub(super) struct Targets {
    publication: Arc<Publication>,
    /// Their places.
    places: HashMap<u32, usize, BuildHasherDefault<KeyHasher>>,
}

impl Targets {
    pub(super) fn new(publication: Arc<Publication>) -> Self {
        Targets {
            publication,
            places: HashMap::default(),
        }
    }

    /// Publishes a queue pair, if there is room.
    pub(super) fn publish(&mut self, qpn: Qpn, target: &Target) {
        if let Some(place) = self.publication.publish_qp(qpn, target) {
            self.places.insert(qpn.value(), place);
        }
    }

    /// Takes it back.
    pub(super) fn withdraw(&mut self, qpn: Qpn) {
        if let Some(place) = self.places.remove(&qpn.value()) {
            // A peer that does not end an access delays the owners of the memory, which learn that it is busy.
            self.publication.withdraw_qp(place);
        }
    }
}
