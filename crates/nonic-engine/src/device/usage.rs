//! What a device holds at a moment: how a program shows that it left nothing behind.

use super::Device;
use nonic_core::Usage;
use nonic_core::cm::CmUsage;

/// What a device holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceUsage {
    /// Queue pairs, their requests and their timers.
    pub nic: Usage,
    /// Connections, listeners and their timers.
    pub connections: CmUsage,
    /// Memory keys.
    pub memory_keys: usize,
    /// Completion queues with somebody to notify.
    pub completion_queues: usize,
}

impl Device {
    /// What it holds at this moment. Looks at every queue pair: not for hot paths.
    pub fn usage(&self) -> DeviceUsage {
        let shard = self.inner.progress.turn();
        DeviceUsage {
            nic: shard.nic.usage(),
            connections: shard.gsi.cm.usage(),
            memory_keys: self.inner.keys.len(),
            completion_queues: shard.listeners.len(),
        }
    }
}
