//! Memory windows: keys that a program hands out and takes back without registering memory anew.
//!
//! A window owns 256 keys, those with the same upper 24 bits, and at most one of them is good at a time.
//! Binding makes one of them name a part of a registered region; the next binding, or an invalidation, ends
//! it. The program chooses the lower 8 bits, so that a peer's old key does not work by accident.
//!
//! Bindings are work requests: the send queue calls [`KeyTable::bind_window`] when their turn comes.

use super::keys::{Key, KeySpec, KeyTable, Tables};
use super::rights::{Access, KeyError, PdId};
use super::window_table::{Window, WindowKind};
use crate::entropy::Entropy;
use crate::room::has_room;
use crate::sync::atomic::Ordering;
use nonic_wire::Qpn;
use std::sync::Arc;

/// A window's binding, as a work request asks for it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WindowBind {
    /// Any key of the window: its upper 24 bits tell which one.
    pub window: u32,
    /// The key that is good from now on; its upper 24 bits are the window's.
    pub rkey: u32,
    /// The registered region's key. It needs [`Access::MW_BIND`].
    pub lkey: u32,
    /// The window's first byte, as an address of the region's key.
    pub va: u64,
    /// How many bytes; zero leaves the window unbound.
    pub length: u64,
    /// What peers may do; with [`Access::ZERO_BASED`], they count addresses from the window's first byte.
    pub access: Access,
}

/// The rights a window can pass on.
const REMOTE: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);

impl KeyTable {
    /// Allocates a window, unbound. Returns its first key, which is not valid yet.
    pub fn alloc_window(
        &self,
        pd: PdId,
        kind: WindowKind,
        entropy: &mut dyn Entropy,
    ) -> Result<u32, KeyError> {
        // With a million keys registered, 15 draws out of 16 find 256 free ones.
        const TRIES: usize = 64;
        let mut tables = self.write();
        for _ in 0..TRIES {
            let rkey = entropy.next_u32();
            let number = rkey >> 8;
            let mut own = (number << 8)..=(number << 8 | 0xff);
            let free = number != 0
                && !tables.windows.contains(number)
                && own.all(|key| !tables.keys.contains_key(&key));
            if free {
                let bound = None;
                if !tables.windows.reserve() || !has_room(0) {
                    return Err(KeyError::Exhausted);
                }
                tables.windows.insert(number, Window { pd, kind, bound });
                return Ok(rkey);
            }
        }
        Err(KeyError::Exhausted)
    }

    /// Frees the window that `rkey` belongs to, bound or not. Returns whether it was there.
    pub fn free_window(&self, rkey: u32) -> bool {
        let mut tables = self.write();
        tables.unbind(rkey >> 8);
        tables.windows.remove(rkey >> 8)
    }

    /// How many windows are allocated.
    pub fn windows(&self) -> usize {
        self.read().windows.len()
    }

    /// Binds a window on behalf of a work request. Nothing changes if it is refused.
    pub fn bind_window(&self, bind: &WindowBind, pd: PdId, qpn: Qpn) -> Result<(), KeyError> {
        let mut tables = self.write();
        let number = bind.window >> 8;
        let window = tables.windows.find(number).ok_or(KeyError::Unknown)?;
        if window.pd != pd {
            return Err(KeyError::Domain);
        }
        if bind.rkey >> 8 != number {
            return Err(KeyError::Unknown);
        }
        let kind = window.kind;
        if let (WindowKind::Type2, Some(bound)) = (kind, window.bound) {
            tables.find(bound, pd, qpn)?;
            if bind.length != 0 {
                return Err(KeyError::Bound);
            }
        }
        if bind.length == 0 {
            tables.unbind(number);
            return Ok(());
        }
        let parent = Arc::clone(tables.find(bind.lkey, pd, qpn)?);
        let spec = window_spec(bind, kind, &parent, qpn)?;
        tables.unbind(number);
        parent.windows.fetch_add(1, Ordering::AcqRel);
        let key = Arc::new(Key::new(bind.rkey, spec, Some(parent)));
        tables.keys.insert(bind.rkey, key);
        tables.windows.set_bound(number, Some(bind.rkey));
        Ok(())
    }
}

impl Tables {
    /// Ends the window's binding, if it has one.
    fn unbind(&mut self, number: u32) {
        if let Some(rkey) = self.windows.find(number).and_then(|window| window.bound) {
            self.remove(rkey);
        }
    }
}

/// The window's key, if the region's permits it. InfiniBand chapter 10, memory windows.
fn window_spec(bind: &WindowBind, kind: WindowKind, parent: &Key, qpn: Qpn) -> Result<KeySpec, KeyError> {
    if parent.is_window() {
        return Err(KeyError::Rights);
    }
    let offset = parent.check(bind.va, bind.length, Access::MW_BIND)?;
    let writes = bind
        .access
        .intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if writes && !parent.access().contains(Access::LOCAL_WRITE) {
        return Err(KeyError::InvalidRights);
    }
    let zero_based = bind.access.contains(Access::ZERO_BASED);
    Ok(KeySpec {
        offset,
        length: bind.length,
        iova: if zero_based { 0 } else { bind.va },
        access: bind.access & REMOTE,
        bound_qp: (kind == WindowKind::Type2).then_some(qpn),
        invalidatable: kind == WindowKind::Type2,
        ..parent.spec.clone()
    })
}
