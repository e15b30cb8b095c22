//! Extended reliable connections: one connection per pair of hosts instead of one per pair of processes.
//!
//! An *initiator* queue pair only sends; each of its requests names a shared receive queue of the peer. A
//! *target* queue pair only receives, for all the SRQs of its domain. The SRQ, not the queue pair, says which
//! receive a message takes, where that completes and to which protection domain memory keys must belong.
//!
//! The reliable machinery is that of RC; what differs is in `served.rs`.

use crate::verbs::cq::CompletionQueue;
use crate::verbs::memory::KeyHasher;
use crate::verbs::rq::ReceiveQueue;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

/// A domain of target queue pairs and the SRQs they serve. Its number within the device.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct XrcDomain(pub u32);

/// A shared receive queue that peers can name.
#[derive(Debug)]
pub(crate) struct XrcSrq {
    pub(crate) number: u32,
    pub(crate) domain: XrcDomain,
    pub(crate) rq: Arc<ReceiveQueue>,
    pub(crate) cq: Arc<CompletionQueue>,
}

/// The XRC SRQs of a NIC, by number.
#[derive(Debug, Default)]
pub(crate) struct XrcTable {
    srqs: HashMap<u32, Arc<XrcSrq>, BuildHasherDefault<KeyHasher>>,
}

impl XrcTable {
    /// The most there are: above it, drawing a free number takes too many tries.
    pub(crate) const MAX: usize = (1 << 24) / 4 * 3;

    pub(crate) fn len(&self) -> usize {
        self.srqs.len()
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.srqs.contains_key(&number)
    }

    pub(crate) fn insert(&mut self, srq: XrcSrq) {
        self.srqs.insert(srq.number, Arc::new(srq));
    }

    /// Returns whether it was there.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        self.srqs.remove(&number).is_some()
    }

    /// The SRQ of that number, if it belongs to the domain.
    pub(crate) fn find(&self, number: u32, domain: XrcDomain) -> Option<Arc<XrcSrq>> {
        self.srqs.get(&number).filter(|srq| srq.domain == domain).cloned()
    }

    /// The domains in which an SRQ completes to `cq`.
    pub(crate) fn domains_of(&self, cq: &Arc<CompletionQueue>) -> Vec<XrcDomain> {
        let reports_there = |srq: &&Arc<XrcSrq>| Arc::ptr_eq(&srq.cq, cq);
        self.srqs
            .values()
            .filter(reports_there)
            .map(|srq| srq.domain)
            .collect()
    }
}
