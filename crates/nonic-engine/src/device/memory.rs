//! Memory keys and windows: registering is cheap, revoking waits for all shards.

use super::Device;
use crate::log::tell;
use nonic_core::{Key, KeyError, KeySpec, PdId, WindowKind};
use std::sync::{Arc, PoisonError};

impl Device {
    /// Registers memory under a fresh key.
    pub fn register(&self, spec: KeySpec) -> Result<Arc<Key>, KeyError> {
        let (length, access) = (spec.length, spec.access);
        let registered = match self.fails_on_purpose() {
            true => Err(KeyError::Exhausted),
            false => self.inner.home().nic.register(spec),
        };
        match &registered {
            Ok(key) => {
                let (iova, pd) = (key.iova(), key.pd().value());
                tell!(
                    DEBUG,
                    "nonic::memory",
                    "registered {length} bytes at {iova:#x} in domain {pd} with {access:?}"
                );
            }
            Err(error) => tell!(
                WARN,
                "nonic::memory",
                "{length} bytes with {access:?} were not registered: {error}"
            ),
        }
        registered
    }

    /// Whether the fault plan (`NONIC_FAULTS`) makes this registration fail.
    fn fails_on_purpose(&self) -> bool {
        let failing = self.inner.failing_registrations.as_ref();
        failing.is_some_and(|failing| failing.lock().unwrap_or_else(PoisonError::into_inner).strikes())
    }

    /// Whether processes of this host may map memory of ours, if it is a file ([`Pages::share`](crate::memory::Pages::share)):
    /// then it is worth making one of memory that they will access.
    pub fn is_mapped_by_peers(&self) -> bool {
        self.inner.publication.is_some()
    }

    /// Revokes a key. When this returns, no access through it is under way and none will begin: if a process of this host
    /// was stopped in the middle of one, it waits until that goes on or ends. Answers whether the key was there.
    pub fn revoke(&self, key: u32) -> bool {
        let revoked = self.try_revoke(key);
        while revoked == Err(KeyError::Busy) && self.wait_for_busy(key) == Some(false) {}
        revoked != Err(KeyError::Unknown)
    }

    /// Revokes a key as [`Device::revoke`] does, but does not wait for ever for a process of this host that was stopped in the
    /// middle of an access through it: [`KeyError::Busy`], and that access may end later.
    pub fn try_revoke(&self, key: u32) -> Result<(), KeyError> {
        let revoked = self.inner.keys.try_revoke(key);
        self.inner.fence();
        revoked
    }

    /// Revokes a key as [`Device::revoke`] does, unless memory windows are bound to it. It does not wait for ever:
    /// [`KeyError::Busy`] if a process of this host does not end an access. No process can begin one then, and asking again
    /// waits again.
    pub fn revoke_unbound(&self, key: u32) -> Result<(), KeyError> {
        let revoked = self.inner.keys.revoke_unbound(key);
        self.inner.fence();
        match revoked {
            Err(KeyError::Unknown) => match self.wait_for_busy(key) {
                Some(true) => Ok(()),
                Some(false) => Err(KeyError::Busy),
                None => revoked,
            },
            _ => revoked,
        }
    }

    fn wait_for_busy(&self, key: u32) -> Option<bool> {
        self.inner.publication.as_ref()?.wait_for_busy(key)
    }

    /// Allocates a memory window; its first key.
    pub fn alloc_window(&self, pd: PdId, kind: WindowKind) -> Result<u32, KeyError> {
        self.inner.home().nic.alloc_window(pd, kind)
    }

    /// Frees the memory window that `rkey` belongs to. When this returns, no access through it is under way
    /// and none will begin. Answers whether it was there.
    pub fn free_window(&self, rkey: u32) -> bool {
        let freed = self.inner.keys.free_window(rkey);
        self.inner.fence();
        freed
    }
}
