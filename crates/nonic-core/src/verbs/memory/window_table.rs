//! The table of memory windows, with the key of each that is valid.

use super::hasher::KeyHasher;
use super::rights::PdId;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// What a window's keys are good for. Values are those of `ibv_mw_type`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum WindowKind {
    /// Any queue pair of the domain serves it; only the program ends a binding.
    Type1 = 1,
    /// Only the queue pair that bound it serves it; a peer may end the binding with SEND_WITH_INV. It must
    /// be unbound before it is bound again.
    Type2 = 2,
}

/// A window that was allocated.
#[derive(Copy, Clone, Debug)]
pub(super) struct Window {
    pub(super) pd: PdId,
    pub(super) kind: WindowKind,
    /// The key that is good, if it is bound.
    pub(super) bound: Option<u32>,
}

/// Windows by the upper 24 bits of their keys, which are theirs alone.
#[derive(Debug, Default)]
pub(super) struct WindowTable {
    windows: HashMap<u32, Window, BuildHasherDefault<KeyHasher>>,
}

impl WindowTable {
    pub(super) fn len(&self) -> usize {
        self.windows.len()
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        self.windows.contains_key(&number)
    }

    pub(super) fn find(&self, number: u32) -> Option<Window> {
        self.windows.get(&number).copied()
    }

    /// Whether there is memory for one more.
    pub(super) fn reserve(&mut self) -> bool {
        self.windows.try_reserve(1).is_ok()
    }

    pub(super) fn insert(&mut self, number: u32, window: Window) {
        self.windows.insert(number, window);
    }

    /// Returns whether it was there.
    pub(super) fn remove(&mut self, number: u32) -> bool {
        self.windows.remove(&number).is_some()
    }

    /// This key of the window is good from now on, or none.
    pub(super) fn set_bound(&mut self, number: u32, key: Option<u32>) {
        if let Some(window) = self.windows.get_mut(&number) {
            window.bound = key;
        }
    }
}
