//! Waiting for more than a completion: for what several threads and tasks share, which one of them finds in the queue for the others.

use super::{CompletionQueue, Shared};
use std::io;
use std::time::Duration;

impl CompletionQueue {
    /// Waits until there is a completion or `ready` holds, at most `timeout` (for ever without one). Drives the NIC meanwhile, and
    /// takes nothing out of the queue. Whoever makes `ready` hold calls [`CompletionQueue::wake`].
    pub fn wait_until(&self, timeout: Option<Duration>, ready: impl Fn() -> bool) -> io::Result<()> {
        let Shared {
            device,
            core,
            doorbell,
            waits,
            aside,
            ..
        } = &*self.shared;
        let ready = || !core.is_empty() || !aside.is_empty() || ready();
        device.engine.wait(waits, core, doorbell, timeout, ready)
    }

    /// Has everybody look again who waits at this queue.
    pub fn wake(&self) {
        self.shared.doorbell.ring();
    }
}
