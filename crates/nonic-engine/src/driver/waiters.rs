//! The program's threads that sleep until a completion comes: one of them watches for packets, so that each packet wakes
//! one thread.
//!
//! A thread that waits for completions can do what the background thread does: sleep on the shard's descriptors, and run
//! its I/O loop when something comes. The completion then reaches it without another thread having been woken first. But if
//! several threads did so, each packet would wake all of them, mostly for nothing. So one of them at a time is the
//! *watcher*: the thread that comes while no other watches. The others are *followers*: they sleep until they are notified.
//!
//! Followers leave the background thread where it is, so that each packet wakes one thread in a program with many waiting
//! threads, too. The promise, explored by the models at the end (`cargo xtask loom`): while there is a follower, a watcher
//! sleeps on the descriptors, or the background thread does, or the background thread keeps away in its shortest naps. A
//! follower that comes ends a long nap. The follower is counted before it looks for a long nap, and the background thread
//! announces a long nap before it looks for followers, so one of them sees the other.
//!
//! A watcher whose own packets come seldom steps down when it was woken by what others wait for: the next thread that
//! comes watches.
//!
//! A thread that ends without leaving, because it was cancelled, stays counted. If it was the watcher, no thread watches from
//! then on, and the background thread serves all: slower, not wrong.
//!
//! This module neither sleeps nor calls the background thread: it tells its callers what to do.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The role of a sleeping thread.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// It sleeps on the shards' descriptors as well, and drives.
    Watcher,
    /// It sleeps until it is notified.
    Follower,
}

/// The threads of the program that sleep until a completion comes.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    watched: AtomicBool,
    followers: AtomicU32,
}

impl Waiters {
    /// A thread is about to sleep. A follower must end the background thread's long naps before it does.
    pub(crate) fn join(&self) -> Role {
        match self.watched.swap(true, Ordering::SeqCst) {
            false => Role::Watcher,
            true => self.follow(),
        }
    }

    /// A thread is about to sleep and leaves it to others to watch. It must call the background thread before it does, since
    /// no other thread may come.
    pub(crate) fn follow(&self) -> Role {
        self.followers.fetch_add(1, Ordering::SeqCst);
        Role::Follower
    }

    /// The thread is awake.
    pub(crate) fn leave(&self, role: Role) {
        match role {
            Role::Follower => {
                self.followers.fetch_sub(1, Ordering::SeqCst);
            }
            Role::Watcher => self.watched.store(false, Ordering::SeqCst),
        }
    }

    /// Whether threads sleep that do not watch.
    pub(crate) fn has_followers(&self) -> bool {
        self.followers.load(Ordering::SeqCst) > 0
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::super::park::{ParkProtocol, models::Bell};
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// The background thread decides how long to nap while a thread comes that will be a follower. It is not left to a long
    /// nap: loom reports a deadlock if the nap is never ended.
    #[test]
    fn a_follower_never_waits_for_the_end_of_a_long_nap() {
        loom::model(|| {
            let waiters = Arc::new(Waiters::default());
            let park = Arc::new(ParkProtocol::new(Bell::default()));
            assert_eq!(waiters.join(), Role::Watcher);
            let background = {
                let (waiters, park) = (waiters.clone(), park.clone());
                thread::spawn(move || {
                    // A short nap ends by itself.
                    if park.begin_nap(true, || waiters.has_followers()) {
                        park.wake.sleep();
                    }
                })
            };
            assert_eq!(waiters.join(), Role::Follower);
            park.call_back_from_long_nap();
            background.join().unwrap();
        });
    }

    /// Of two threads that come at once, exactly one watches.
    #[test]
    fn of_those_who_come_one_watches() {
        loom::model(|| {
            let waiters = Arc::new(Waiters::default());
            let other = {
                let waiters = waiters.clone();
                thread::spawn(move || waiters.join())
            };
            let mut roles = [waiters.join(), other.join().unwrap()];
            roles.sort_by_key(|role| *role == Role::Follower);
            assert_eq!(roles, [Role::Watcher, Role::Follower]);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_comes_while_no_other_watches_is_the_watcher() {
        let waiters = Waiters::default();
        assert_eq!(waiters.join(), Role::Watcher);
        assert_eq!(waiters.join(), Role::Follower);
        assert_eq!(waiters.join(), Role::Follower);
        waiters.leave(Role::Watcher);
        assert_eq!(waiters.join(), Role::Watcher, "followers do not hinder it");
        waiters.leave(Role::Follower);
        assert!(waiters.has_followers());
        waiters.leave(Role::Follower);
        assert!(!waiters.has_followers());
    }

    #[test]
    fn a_watcher_can_step_down() {
        let waiters = Waiters::default();
        let first = waiters.join();
        waiters.leave(first);
        assert_eq!(waiters.follow(), Role::Follower);
        assert_eq!(waiters.join(), Role::Watcher);
    }
}
