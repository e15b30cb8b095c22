//! A lock that is taken in one call of the program and given back in another.

use std::sync::atomic::{AtomicBool, Ordering};

/// A lock that is taken in one call of the program and given back in another.
#[derive(Debug, Default)]
pub(super) struct CallLock(AtomicBool);

impl CallLock {
    pub(super) fn lock(&self) {
        let mut tries = 0_u32;
        while self.0.swap(true, Ordering::Acquire) {
            tries += 1;
            if tries % 64 == 0 {
                // Held for as long as the other thread builds or reads: let it.
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    pub(super) fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}
