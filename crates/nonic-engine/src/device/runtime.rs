//! The runtime watch: a task of the program's async runtime watches for packets, where otherwise the background thread
//! would.
//!
//! A runtime's threads sleep on descriptors anyway. With those of a shard among them, a packet wakes the thread that then
//! runs the task it is for. Without, it wakes the background thread, and that wakes the runtime's.
//!
//! The background thread stays in reserve ([`background`](crate::driver)): it serves timers, and when packets come that no
//! task takes, because the runtime's threads are busy with something else, it takes them after a nap.
//!
//! Nothing here waits: the owner of a [`RuntimeWatch`] waits for its descriptors, in whatever way its runtime does, and
//! calls [`RuntimeWatch::step`].

use super::{Device, WeakDevice};
use crate::driver::spin::Spin;
use crate::notify::Doorbell;
use crate::os::descriptors::out_of_the_way;
use nonic_core::Time;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Waker;

/// A task's watch for packets of a device. It does not keep the device open.
#[derive(Debug)]
pub struct RuntimeWatch {
    device: WeakDevice,
    closing: Arc<Doorbell>,
    /// How long packets are waited for.
    spin: Spin,
    /// When the last ones came.
    worked_at: Time,
    /// The shards know that it sleeps.
    asleep: bool,
}

/// What there is to do next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RuntimeStep {
    /// There was work, and there may be more: call again, after other tasks have run.
    Worked,
    /// Nothing to do until one of the descriptors becomes readable.
    Sleep,
    /// The device is closed.
    Closed,
}

impl Device {
    /// Lets a task watch for packets, and the descriptors that become readable with them. They are copies, and so the caller's.
    pub fn watch_from_runtime(&self) -> io::Result<(RuntimeWatch, Vec<OwnedFd>)> {
        let drivers = &self.inner.drivers;
        let fds: io::Result<Vec<OwnedFd>> = drivers
            .iter()
            .map(|driver| Ok(out_of_the_way(driver.poller().as_fd().try_clone_to_owned()?)))
            .collect();
        let fds = fds?;
        drivers.iter().for_each(|driver| driver.runtime_came());
        let watch = RuntimeWatch {
            device: self.downgrade(),
            closing: Arc::clone(&self.inner.closing),
            spin: Spin::default(),
            worked_at: drivers[super::HOME].now(),
            asleep: false,
        };
        Ok((watch, fds))
    }

    /// Whether a task watches for packets.
    pub fn is_watched_from_runtime(&self) -> bool {
        self.inner.drivers[super::HOME].has_runtime()
    }
}

impl RuntimeWatch {
    /// Wakes the task when the device closes.
    pub fn subscribe(&self, waker: &Waker) {
        self.closing.subscribe(waker);
    }

    /// Drives a little. `woken` says that a descriptor has become readable since this last answered [`RuntimeStep::Sleep`].
    pub fn step(&mut self, woken: bool) -> RuntimeStep {
        let Some(device) = self.device.upgrade() else {
            return RuntimeStep::Closed;
        };
        let drivers = &device.inner.drivers;
        self.wake_up(&device);
        let mut worked = false;
        for driver in drivers {
            worked |= driver.drive_for_runtime();
        }
        if !worked && woken {
            for driver in drivers.iter().filter(|driver| driver.poller().is_readable()) {
                worked |= driver.look_everywhere();
            }
        }
        if worked {
            let now = drivers[super::HOME].now();
            self.spin.waited(now.since(self.worked_at));
            self.worked_at = now;
            return RuntimeStep::Worked;
        }
        let brisk = self.spin.is_brisk();
        self.asleep = true;
        // Every driver must know, though the first has work already.
        let work = drivers
            .iter()
            .fold(false, |work, driver| driver.watch_asleep(brisk) | work);
        match work {
            true => RuntimeStep::Worked,
            false => RuntimeStep::Sleep,
        }
    }

    fn wake_up(&mut self, device: &Device) {
        if std::mem::take(&mut self.asleep) {
            device
                .inner
                .drivers
                .iter()
                .for_each(|driver| driver.watch_awake());
        }
    }
}

impl Drop for RuntimeWatch {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            self.wake_up(&device);
            for driver in &device.inner.drivers {
                driver.runtime_left();
                driver.resume();
            }
        }
    }
}
