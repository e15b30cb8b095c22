//! The completion that the readers of an extended queue look at.

use super::call_lock::CallLock;
use crate::object::zeroed;
use nonic_abi::verbs::ibv_wc;
use std::cell::UnsafeCell;

/// What an extended completion queue remembers from one call to the next.
pub(crate) struct Current {
    lock: CallLock,
    single_threaded: bool,
    pub(super) completion: UnsafeCell<ibv_wc>,
}

impl Current {
    pub(crate) fn new(single_threaded: bool) -> Self {
        Current {
            lock: CallLock::default(),
            single_threaded,
            completion: UnsafeCell::new(zeroed()),
        }
    }

    pub(super) fn lock(&self) {
        if !self.single_threaded {
            self.lock.lock();
        }
    }

    pub(super) fn unlock(&self) {
        if !self.single_threaded {
            self.lock.unlock();
        }
    }
}
