//! Memory keys and windows: registering is cheap, revoking waits for all shards.

use super::Device;
use nonic_core::{Key, KeyError, KeySpec, PdId, WindowKind};
use std::sync::Arc;

impl Device {
    /// Registers memory under a fresh key.
    pub fn register(&self, spec: KeySpec) -> Result<Arc<Key>, KeyError> {
        self.inner.home().nic.register(spec)
    }

    /// Revokes a key. When this returns, no access through it is under way and none will begin.
    pub fn revoke(&self, key: u32) -> bool {
        let revoked = self.inner.keys.revoke(key);
        self.inner.fence();
        revoked
    }

    /// Revokes a key as [`Device::revoke`] does, unless memory windows are bound to it.
    pub fn revoke_unbound(&self, key: u32) -> Result<(), KeyError> {
        self.inner.keys.revoke_unbound(key)?;
        self.inner.fence();
        Ok(())
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
