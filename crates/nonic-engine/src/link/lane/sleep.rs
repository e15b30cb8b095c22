//! The sleep protocol of a lane: one word in the shared memory, set by a reader that is about to sleep, and cleared by the
//! sender that wakes it or by the reader itself, whichever comes first.
//!
//! A second word does the same with the sides exchanged: it is set by a writer of records that is about to sleep, and cleared by the
//! reader whose answer wakes it. Below, *reader* is the side that sleeps.
//!
//! The promise, explored by the models at the end (`cargo xtask loom`), is about a batch published while a reader falls
//! asleep, or while one of several readers wakes up. Either a reader that is awake sees it, or its sender rings the bell
//! ([`crate::os::bell`]) after the last reader that is awake has looked. The reader sets the word and then looks once more.
//! The sender publishes and then looks at the word. With a fence between the two steps on each side, one of them sees the
//! other.
//!
//! A process that violates the protocol can miss its own wake-ups, and causes no other process to miss any.
//!
//! This module neither sleeps nor rings: it tells its callers what to do.

#[cfg(loom)]
use loom::sync::atomic::fence;
#[cfg(not(loom))]
use std::sync::atomic::fence;
use std::sync::atomic::{AtomicU32, Ordering};

/// The word: whether a reader sleeps. A trait because loom's atomics cannot lie in shared memory.
pub(super) trait Asleep {
    fn load(&self) -> u32;
    fn store(&self, asleep: u32);
    fn swap(&self, asleep: u32) -> u32;
}

impl Asleep for AtomicU32 {
    #[inline]
    fn load(&self) -> u32 {
        AtomicU32::load(self, Ordering::Relaxed)
    }

    #[inline]
    fn store(&self, asleep: u32) {
        AtomicU32::store(self, asleep, Ordering::Relaxed);
    }

    #[inline]
    fn swap(&self, asleep: u32) -> u32 {
        AtomicU32::swap(self, asleep, Ordering::AcqRel)
    }
}

/// Something was published. Whether a reader must be woken, which is the caller's to do then.
#[inline]
pub(super) fn must_wake(asleep: &impl Asleep) -> bool {
    fence(Ordering::SeqCst);
    asleep.load() != 0 && asleep.swap(0) != 0
}

/// A reader is about to sleep. Whether something has come meanwhile, so that there is no reason to.
#[inline]
pub(super) fn fall_asleep(asleep: &impl Asleep, is_waiting: impl FnOnce() -> bool) -> bool {
    asleep.store(1);
    fence(Ordering::SeqCst);
    is_waiting()
}

/// All readers are awake, and look by themselves.
#[inline]
pub(super) fn wake(asleep: &impl Asleep) {
    asleep.store(0);
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::atomic::{AtomicU32, AtomicU64};
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    impl Asleep for AtomicU32 {
        fn load(&self) -> u32 {
            AtomicU32::load(self, Ordering::Relaxed)
        }

        /// Nothing comes between a swap and what it replaced, so a store that comes after the one comes after the other.
        /// Loom does not know that of a plain store, and finds a deadlock that no processor has.
        fn store(&self, asleep: u32) {
            AtomicU32::swap(self, asleep, Ordering::Relaxed);
        }

        fn swap(&self, asleep: u32) -> u32 {
            AtomicU32::swap(self, asleep, Ordering::AcqRel)
        }
    }

    /// A lane as far as sleeping is concerned: batches are only counted.
    #[derive(Default)]
    struct Lane {
        written: AtomicU64,
        asleep: AtomicU32,
        bell: Mutex<bool>,
        rung: Condvar,
        shard: Mutex<Shard>,
    }

    /// What the reader's threads have in common, in turns.
    #[derive(Default)]
    struct Shard {
        read: u64,
        sleepers: u32,
    }

    impl Lane {
        fn ring(&self) {
            *self.bell.lock().unwrap() = true;
            self.rung.notify_all();
        }

        fn publish(&self, written: u64) {
            self.written.store(written, Ordering::Release);
            if must_wake(&self.asleep) {
                self.ring();
            }
        }

        fn is_waiting(&self, read: u64) -> bool {
            self.written.load(Ordering::Acquire) != read
        }

        /// Whether there is no reason to sleep.
        fn fall_asleep(&self) -> bool {
            let mut shard = self.shard.lock().unwrap();
            shard.sleepers += 1;
            fall_asleep(&self.asleep, || self.is_waiting(shard.read))
        }

        /// All sleeping threads watch the descriptor, and it stays readable until it is drained.
        fn sleep(&self) {
            let mut rung = self.bell.lock().unwrap();
            while !*rung {
                rung = self.rung.wait(rung).unwrap();
            }
        }

        /// As `IncomingLanes::wake` and `Shard::wake` do it; then one look, in a turn of its own. How far it is read.
        fn wake_and_look(&self) -> u64 {
            let mut shard = self.shard.lock().unwrap();
            shard.sleepers -= 1;
            *self.bell.lock().unwrap() = false;
            match shard.sleepers > 0 {
                true => drop(fall_asleep(&self.asleep, || false)),
                false => wake(&self.asleep),
            }
            drop(shard);
            self.look()
        }

        fn look(&self) -> u64 {
            let mut shard = self.shard.lock().unwrap();
            shard.read = self.written.load(Ordering::Acquire);
            shard.read
        }

        /// Reads, and sleeps when there is nothing to read, until so much is read.
        fn read_until(&self, all: u64) {
            while self.shard.lock().unwrap().read < all {
                if !self.fall_asleep() {
                    self.sleep();
                }
                self.wake_and_look();
            }
        }
    }

    /// Loom reports a deadlock if the reader sleeps beside a batch. It does so if either fence is taken away, or if the
    /// reader looks before it says that it sleeps; all three were tried.
    #[test]
    fn no_batch_is_overslept() {
        loom::model(|| {
            let lane = Arc::new(Lane::default());
            let reader = {
                let lane = lane.clone();
                thread::spawn(move || lane.read_until(2))
            };
            lane.publish(1);
            lane.publish(2);
            reader.join().unwrap();
        });
    }

    /// Two threads sleep. One wakes up, be it that it was called or that its time was over, takes what there is, and does
    /// not come back: what comes later wakes the other one. Loom reports a deadlock if the one that wakes up does not say
    /// that others sleep, or says so before it drains the bell; both were tried.
    #[test]
    fn who_wakes_up_leaves_others_to_be_woken() {
        loom::model(|| {
            let lane = Arc::new(Lane::default());
            let stays = {
                let lane = lane.clone();
                thread::spawn(move || lane.read_until(2))
            };
            let leaves = {
                let lane = lane.clone();
                thread::spawn(move || {
                    lane.fall_asleep();
                    // A thread that has read everything wakes the others for the completions.
                    if lane.wake_and_look() == 2 {
                        lane.ring();
                    }
                })
            };
            lane.publish(1);
            lane.publish(2);
            leaves.join().unwrap();
            stays.join().unwrap();
        });
    }
}
