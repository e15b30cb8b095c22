//! Waiting for more than a completion: for a state that several threads and tasks share. One of them finds it in the
//! queue for the others.

use super::{CompletionQueue, Shared};
use std::io;
use std::time::Duration;

impl CompletionQueue {
    /// Waits until there is a completion or `ready` holds, at most `timeout` (for ever without one). Drives the NIC
    /// meanwhile, and takes nothing out of the queue. The thread that makes `ready` hold calls
    /// [`CompletionQueue::wake`].
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

    /// Wakes every thread and task that waits at this queue, to check again.
    pub fn wake(&self) {
        self.shared.doorbell.ring();
    }
}
