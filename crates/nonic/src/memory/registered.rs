//! Registered memory with the key that lets the local NIC use it. Leases are parts of it; the last one dropped deregisters it.

use super::MemoryError;
use super::owned::{Owned, OwnedMemory};
use crate::device::Domain;
use nonic_core::{Access, Key, KeySpec, Region};
use nonic_engine::memory::Pages;
use std::ptr::NonNull;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Registered {
    pub(super) domain: Domain,
    pub(super) memory: Memory,
    pub(super) key: Arc<Key>,
}

/// Where the memory comes from.
#[derive(Debug)]
pub(super) enum Memory {
    /// Mapped for this.
    Pages(Arc<Pages>),
    /// The program's.
    Owned(Arc<Owned>),
}

impl Registered {
    pub(super) fn new(domain: &Domain, memory: Memory) -> Result<Self, MemoryError> {
        let region = memory.region();
        let key = domain.device.engine.register(KeySpec {
            pd: domain.pd,
            offset: 0,
            length: region.len() as u64,
            region,
            iova: 0,
            access: Access::LOCAL_WRITE,
            bound_qp: None,
            invalidatable: false,
        })?;
        Ok(Registered {
            domain: domain.clone(),
            memory,
            key,
        })
    }

    /// What the program brought, if it was an `M`.
    pub(super) fn into_owned<M: OwnedMemory>(self) -> Option<M> {
        let owned = match &self.memory {
            Memory::Owned(owned) => Arc::clone(owned),
            Memory::Pages(_) => return None,
        };
        // Revokes the key. Those of exposed parts are revoked before the parts go.
        drop(self);
        owned.take()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // No lease has a part of it, so no request uses it; the engine's own shares keep the memory alive if one is
        // being torn down at this moment.
        self.domain.device.engine.revoke(self.key.value());
    }
}

impl Memory {
    pub(super) fn region(&self) -> Arc<dyn Region> {
        match self {
            Memory::Pages(pages) => Arc::clone(pages) as Arc<dyn Region>,
            Memory::Owned(owned) => Arc::clone(owned) as Arc<dyn Region>,
        }
    }

    /// The same, for a look.
    pub(super) fn as_region(&self) -> &dyn Region {
        match self {
            Memory::Pages(pages) => &**pages,
            Memory::Owned(owned) => &**owned,
        }
    }

    /// Address of the first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        match self {
            Memory::Pages(pages) => pages.start(),
            Memory::Owned(owned) => owned.start(),
        }
    }

    /// From now on no peer is given it to map without a new key. Whether one was before, and may have it for as long as it likes.
    pub(super) fn take_back(&self) -> bool {
        match self {
            Memory::Pages(pages) => pages.take_back(),
            Memory::Owned(_) => false,
        }
    }

    /// Whether peers that READ it keep it mapped.
    pub(super) fn stays_mapped(&self) -> bool {
        match self {
            Memory::Pages(pages) => pages.do_stay_mapped(),
            Memory::Owned(_) => false,
        }
    }
}
