//! The objects of a device by number: by it an event finds its object, and an import the exported one.
//!
//! Read first: [`Objects`]. It knows nothing of the objects themselves but their pointers.

use crate::errors;
use nonic_abi::errno::Errno;
use nonic_abi::verbs::{ibv_cq, ibv_qp, ibv_srq};
use nonic_core::room::has_room;
use nonic_core::{CqId, CreateError, PdId, Qpn, SrqId, XrcDomain};
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

/// Makes sure that one more object does not fail for want of memory: `ENOMEM` otherwise, and nothing has happened. `table` is
/// where it will be listed.
pub(crate) fn reserve<K: Eq + std::hash::Hash, V>(table: &mut HashMap<K, V>) -> Result<(), Errno> {
    // The engine lists some of them once more, in tables that are not larger.
    let growth = match table.len() == table.capacity() {
        true => 4 * table.len() * size_of::<(K, V)>(),
        false => 0,
    };
    match table.try_reserve(1).is_ok() && has_room(growth) {
        true => Ok(()),
        false => Err(no_memory()),
    }
}

/// The same for an object that is in no table.
pub(crate) fn reserve_unlisted() -> Result<(), Errno> {
    match has_room(0) {
        true => Ok(()),
        false => Err(no_memory()),
    }
}

fn no_memory() -> Errno {
    errors::of_create(CreateError::NoMemory)
}

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

    /// The file stands for the domain for as long as the domain has an owner.
    pub(crate) fn insert(&mut self, file: Identity, domain: &Arc<XrcDomain>) {
        self.0.push((file, Arc::downgrade(domain)));
    }
}
