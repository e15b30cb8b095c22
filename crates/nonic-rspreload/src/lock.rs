//! A lock for things that are seldom touched and that a forked child must find usable.
//!
//! The standard library's locks cannot be released by a child on behalf of a thread that it does not have; this one is
//! held by the forking thread ([`crate::fork`]). It refuses to be fast under contention: it yields.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value behind a lock.
pub(crate) struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `held` lets one thread at a time to the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Lock {
            held: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until it is free, and holds it until the answer is dropped.
    pub(crate) fn lock(&self) -> Held<'_, T> {
        self.acquire();
        Held { lock: self }
    }

    /// Holds it until [`Lock::release`], which may happen in a forked child.
    pub(crate) fn acquire(&self) {
        while self.held.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// Ends what [`Lock::acquire`] began.
    pub(crate) fn release(&self) {
        self.held.store(false, Ordering::Release);
    }
}

/// The right to use the value.
pub(crate) struct Held<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and `self` is borrowed for as long.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.lock.release();
    }
}

#[cfg(test)]
mod tests {
    use super::Lock;

    #[test]
    fn one_at_a_time() {
        let counter = Lock::new(0_u32);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *counter.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*counter.lock(), 40_000);
    }
}
