//! Memory that peers can use at any time, so that it is never a slice.

use super::{Lease, MemoryError, RemoteSlice};
use nonic_core::{Key, KeyError, Region};
use std::sync::Arc;

/// Memory that peers can read, write or use atomics on at any time.
///
/// It is never a slice: bytes are copied in and out.
#[derive(Debug)]
pub struct Exposed {
    /// `None` only once it was taken back.
    lease: Option<Lease>,
    key: Arc<Key>,
}

impl Exposed {
    pub(super) fn new(lease: Lease, key: Arc<Key>) -> Self {
        Exposed {
            lease: Some(lease),
            key,
        }
    }

    /// What a peer must be told to use it.
    pub fn remote(&self) -> RemoteSlice {
        RemoteSlice {
            va: 0,
            rkey: self.key.value(),
            len: self.lease().len as u64,
        }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.lease().len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.lease().len == 0
    }

    /// Copies bytes out. A peer that writes at the same time may be seen half-way.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), MemoryError> {
        let at = self.range(offset, out.len())?;
        self.region().read(at, out).map_err(|_| MemoryError::Range)
    }

    /// Copies bytes in.
    pub fn write_at(&self, offset: usize, data: &[u8]) -> Result<(), MemoryError> {
        let at = self.range(offset, data.len())?;
        self.region().write(at, data).map_err(|_| MemoryError::Range)
    }

    /// Atomically adds to the 8-byte word at `offset`; what was there. Atomic against peers too.
    pub fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, MemoryError> {
        let at = self.range(offset, 8)?;
        self.region().fetch_add(at, add).map_err(|_| MemoryError::Range)
    }

    /// Atomically replaces the 8-byte word at `offset` if it equals `compare`; what was there.
    pub fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, MemoryError> {
        let at = self.range(offset, 8)?;
        self.region()
            .compare_swap(at, compare, swap)
            .map_err(|_| MemoryError::Range)
    }

    /// Takes it back: when this returns, no peer's access is under way and none will begin.
    #[doc(alias = "ibv_dereg_mr")]
    ///
    /// A process of this host that was stopped in the middle of an access may end it at any time. Where one does not end
    /// it within a second, the memory is given up and this is a copy. So it is where a process of this host had mapped it:
    /// that one could look at it, or write to it, for as long as it likes.
    pub fn into_lease(mut self) -> Lease {
        let revoked = self.revoke();
        let lease = self.lease.take().expect("taken only here");
        if revoked && !lease.memory.memory.is_given() {
            return lease;
        }
        let memory = &lease.memory;
        match memory.domain.lease(lease.len) {
            Ok(mut copy) => {
                memory
                    .memory
                    .as_region()
                    .read(lease.offset, &mut copy)
                    .expect("all of it");
                copy
            }
            // Without memory for a copy, what is left is that whoever mapped it keeps to our rules.
            Err(_) if revoked => lease,
            Err(error) => panic!("memory for a copy: {error}"),
        }
    }

    /// Answers whether no access through the key is under way. If one is, the memory stays what it is for good.
    fn revoke(&self) -> bool {
        let Some(lease) = &self.lease else {
            return true;
        };
        let engine = &lease.memory.domain.device.engine;
        let busy = engine.try_revoke(self.key.value()) == Err(KeyError::Busy);
        if busy {
            std::mem::forget(Arc::clone(&lease.memory));
            std::mem::forget(lease.home.clone());
        }
        !busy
    }

    fn region(&self) -> &dyn Region {
        self.lease().memory.memory.as_region()
    }

    fn lease(&self) -> &Lease {
        self.lease
            .as_ref()
            .expect("taken only by `into_lease`, which consumes")
    }

    fn range(&self, offset: usize, len: usize) -> Result<usize, MemoryError> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.lease().len);
        if inside {
            Ok(self.lease().offset + offset)
        } else {
            Err(MemoryError::Range)
        }
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        self.revoke();
    }
}
