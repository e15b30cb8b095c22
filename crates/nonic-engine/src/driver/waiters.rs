//! The program's threads that sleep until a completion comes: one of them watches for packets, so that each packet wakes
//! one thread.
//!
//! A thread that waits for completions can do what the background thread does: sleep on the shard's descriptors, and run
//! its I/O loop when something comes. The completion then reaches it without another thread having been woken first. But if
//! several threads did so, each packet would wake all of them, mostly for nothing. So one of them at a time is the
//! *watcher*. The others are *followers*: they sleep until they are notified, and while there are any, the background
//! thread is not kept away.
//!
//! The promise, explored by the model at the end (`cargo xtask loom`): while there is a follower, either a watcher
//! sleeps on the descriptors or the background thread was called back after that watcher had left. A follower calls it
//! when it comes; a watcher that leaves a follower behind calls it as well. The follower is counted before it looks for a
//! watcher, and a watcher leaves before it looks for followers, so one of them sees the other.
//!
//! A thread that ends without leaving, because it was cancelled, stays counted. From then on every later thread is a
//! follower: slower, not wrong.
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
    /// A thread is about to sleep. A follower must call the background thread back before it does.
    pub(crate) fn join(&self) -> Role {
        let alone = self.followers.fetch_add(1, Ordering::SeqCst) == 0;
        if alone && !self.watched.swap(true, Ordering::SeqCst) {
            self.followers.fetch_sub(1, Ordering::SeqCst);
            return Role::Watcher;
        }
        Role::Follower
    }

    /// The thread is awake. Whether it must call the background thread back.
    #[must_use]
    pub(crate) fn leave(&self, role: Role) -> bool {
        match role {
            Role::Follower => {
                self.followers.fetch_sub(1, Ordering::SeqCst);
                false
            }
            Role::Watcher => {
                self.watched.store(false, Ordering::SeqCst);
                self.has_followers()
            }
        }
    }

    /// Whether threads sleep that do not watch.
    pub(crate) fn has_followers(&self) -> bool {
        self.followers.load(Ordering::SeqCst) > 0
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// The background thread, as far as it is called.
    #[derive(Default)]
    struct Background {
        called: Mutex<bool>,
        changed: Condvar,
    }

    impl Background {
        fn call(&self) {
            *self.called.lock().unwrap() = true;
            self.changed.notify_all();
        }
    }

    /// A watcher leaves for good while another thread goes to sleep. If that one is a follower, the background thread is
    /// called after the watcher has left, and so serves it.
    #[test]
    fn a_follower_is_never_left_without_anybody_who_watches() {
        loom::model(|| {
            let waiters = Arc::new(Waiters::default());
            let background = Arc::new(Background::default());
            assert_eq!(waiters.join(), Role::Watcher);
            let leaver = {
                let (waiters, background) = (waiters.clone(), background.clone());
                thread::spawn(move || {
                    if waiters.leave(Role::Watcher) {
                        background.call();
                    }
                })
            };
            // It does not call here, so that the model shows that the watcher does.
            if waiters.join() == Role::Follower {
                let mut called = background.called.lock().unwrap();
                while !*called {
                    called = background.changed.wait(called).unwrap();
                }
            }
            leaver.join().unwrap();
        });
    }

    /// Of two threads that come at once, at most one watches.
    #[test]
    fn there_is_never_more_than_one_watcher() {
        loom::model(|| {
            let waiters = Arc::new(Waiters::default());
            let other = {
                let waiters = waiters.clone();
                thread::spawn(move || waiters.join())
            };
            let roles = [waiters.join(), other.join().unwrap()];
            assert!(roles.contains(&Role::Follower));
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_watches_and_calls_when_it_leaves_others_behind() {
        let waiters = Waiters::default();
        assert_eq!(waiters.join(), Role::Watcher);
        assert!(!waiters.leave(Role::Watcher), "nobody is left");
        assert_eq!(waiters.join(), Role::Watcher);
        assert_eq!(waiters.join(), Role::Follower);
        assert!(waiters.leave(Role::Watcher));
        assert_eq!(waiters.join(), Role::Follower, "the background thread is there");
        assert!(!waiters.leave(Role::Follower));
        assert!(!waiters.leave(Role::Follower));
        assert_eq!(waiters.join(), Role::Watcher);
    }
}
