//! The objects of a device by number: how events find what they are about, and imports what was exported.
//!
//! Read first: [`Objects`]. It knows nothing of the objects themselves but their pointers.

use nonic_abi::verbs::{ibv_cq, ibv_qp, ibv_srq};
use nonic_core::{CqId, PdId, Qpn, SrqId, XrcDomain};
use nonic_engine::memory::Pages;
use nonic_engine::os::descriptors::Identity;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Objects by the numbers that events and imports use. Pointers are to live objects: each object removes
/// itself before it goes.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) qps: HashMap<Qpn, *mut ibv_qp>,
    pub(crate) cqs: HashMap<CqId, *mut ibv_cq>,
    pub(crate) srqs: HashMap<SrqId, *mut ibv_srq>,
    pub(crate) pds: HashMap<u32, PdId>,
    pub(crate) mrs: HashMap<u32, ExportedMr>,
    pub(crate) dms: HashMap<u32, ExportedDm>,
    pub(crate) domains: NamedDomains,
}

// SAFETY: the pointers are followed only while the lock around them is held, and their targets may be used from
// any thread.
unsafe impl Send for Objects {}

/// What another context of the same device needs to know to use a memory region.
#[derive(Copy, Clone)]
pub(crate) struct ExportedMr {
    pub(crate) length: usize,
    pub(crate) key: u32,
}

/// What another context of the same device needs to use a piece of device memory.
#[derive(Clone)]
pub(crate) struct ExportedDm {
    pub(crate) pages: Arc<Pages>,
    pub(crate) length: usize,
}

/// The domains that files stand for.
#[derive(Default)]
pub(crate) struct NamedDomains(Vec<(Identity, Weak<XrcDomain>)>);

impl NamedDomains {
    pub(crate) fn find(&mut self, file: Identity) -> Option<Arc<XrcDomain>> {
        self.0.retain(|(_, domain)| domain.strong_count() > 0);
        let found = self.0.iter().find(|(name, _)| *name == file)?;
        found.1.upgrade()
    }

    /// The file stands for the domain, for as long as somebody has it.
    pub(crate) fn insert(&mut self, file: Identity, domain: &Arc<XrcDomain>) {
        self.0.push((file, Arc::downgrade(domain)));
    }
}
