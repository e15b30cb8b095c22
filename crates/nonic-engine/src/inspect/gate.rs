//! The gate to an open device, through which the server looks at it until it closes.
//!
//! The thread that answers must not keep a device open, nor close one: the program expects that its sockets and names are
//! gone when closing returns. So the thread borrows what it looks at under a lock, for a portion at a time, and keeps
//! nothing of it; a device that closes shuts the gate ([`Gate::close`]).

use super::queues::CompletionQueues;
use crate::driver::Driver;
use crate::netdev::{GidEntry, NetDevice};
use crate::shard::{Common, Shard};
use nonic_core::KeyTable;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tries in a row: most turns are over in a few microseconds, and a sleep takes milliseconds where other threads want the
/// processors.
const TRIES: usize = 256;
/// How long to sleep when those were in vain.
const PAUSE: Duration = Duration::from_micros(50);
/// How long to try. A thread that keeps its turn for longer is stopped, or stuck.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is looked at of a device.
pub(crate) struct Inspected {
    pub(crate) netdev: NetDevice,
    pub(crate) gids: Vec<GidEntry>,
    pub(crate) keys: Arc<KeyTable>,
    pub(crate) common: Common,
    /// One for each shard.
    pub(crate) drivers: Vec<Arc<Driver>>,
    pub(crate) completion_queues: Arc<CompletionQueues>,
}

/// A device, or none when it has closed.
pub(crate) struct Gate(Mutex<Option<Inspected>>);

/// Why something could not be looked at.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Unseen {
    /// The device has closed.
    Closed,
    /// Some thread keeps a shard.
    Busy,
}

impl Gate {
    pub(super) fn new(inspected: Inspected) -> Self {
        Gate(Mutex::new(Some(inspected)))
    }

    /// The device closes. When this returns, no thread looks at it.
    pub(super) fn close(&self) {
        // What is dropped here may be the last of its kind; better not under the lock.
        let taken = self.lock().take();
        drop(taken);
    }

    /// Looks at what takes no turn.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Inspected) -> T) -> Result<T, Unseen> {
        self.lock().as_ref().map(look).ok_or(Unseen::Closed)
    }

    /// Looks at a shard while no other thread holds its lock. It tries the lock again and again: a thread that slept on the
    /// lock would cost the holder a system call to wake it.
    pub(super) fn look_at_shard<T>(
        &self,
        shard: usize,
        mut look: impl FnMut(&Shard) -> T,
    ) -> Result<T, Unseen> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for _ in 0..TRIES {
                let looked = self.look(|inspected| match inspected.drivers.get(shard) {
                    Some(driver) => Ok(driver.look(&mut look)),
                    None => Err(Unseen::Closed),
                })??;
                match looked {
                    Some(seen) => return Ok(seen),
                    None => std::hint::spin_loop(),
                }
            }
            if Instant::now() >= deadline {
                return Err(Unseen::Busy);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Inspected>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
