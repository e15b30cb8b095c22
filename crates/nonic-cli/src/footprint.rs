//! The footprint of this process and its device: memory, descriptors, and the device's tables.
//!
//! Taken before, during and after something, it shows what that costs and that nothing stays behind.

use crate::exchange::Message;
use crate::local_gid::LocalGid;
use anyhow::{Context, Result};
use nonic::Usage;
use std::time::{Duration, Instant};

/// How long a device may remember what ended: timewait, and messages of the connection manager that may be sent again.
const TIMEWAIT_LIMIT: Duration = Duration::from_secs(10);

/// What there is at a moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Footprint {
    /// Resident memory.
    pub(crate) rss_bytes: u64,
    /// Processor time so far, of all threads.
    pub(crate) cpu_ns: u64,
    /// Open descriptors.
    pub(crate) descriptors: u64,
    pub(crate) queue_pairs: u64,
    pub(crate) connections: u64,
    pub(crate) memory_keys: u64,
    pub(crate) completion_queues: u64,
    pub(crate) listeners: u64,
}

impl Footprint {
    pub(crate) fn take(local: &LocalGid) -> Result<Self> {
        let Usage {
            queue_pairs,
            memory_keys,
            completion_queues,
            connections,
            listeners,
            kept_descriptors,
            ..
        } = local.device.usage();
        Ok(Footprint {
            rss_bytes: resident_bytes().context("cannot read /proc/self/status")?,
            cpu_ns: processor_ns(),
            // What was made for the first connections serves the next ones.
            descriptors: std::fs::read_dir("/proc/self/fd")?
                .count()
                .saturating_sub(kept_descriptors) as u64,
            queue_pairs: queue_pairs as u64,
            connections: connections as u64,
            memory_keys: memory_keys as u64,
            completion_queues: completion_queues as u64,
            listeners: listeners as u64,
        })
    }

    /// Waits until nothing is there that was not there `before`, but for memory that the allocator keeps.
    /// Answers the last look, whether or not it came to that.
    pub(crate) fn settle(local: &LocalGid, before: &Self) -> Result<Self> {
        let start = Instant::now();
        loop {
            let now = Self::take(local)?;
            if now.left_behind(before).is_empty() || start.elapsed() > TIMEWAIT_LIMIT {
                return Ok(now);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What there is more of than `before`, memory aside.
    pub(crate) fn left_behind(&self, before: &Self) -> Vec<String> {
        let named = self.counted().into_iter().zip(before.counted());
        named
            .filter(|((_, now), (_, before))| now > before)
            .map(|((name, now), (_, before))| format!("{} {name}", now - before))
            .collect()
    }

    fn counted(&self) -> [(&'static str, u64); 6] {
        [
            ("descriptors", self.descriptors),
            ("queue pairs", self.queue_pairs),
            ("connections", self.connections),
            ("memory keys", self.memory_keys),
            ("completion queues", self.completion_queues),
            ("listeners", self.listeners),
        ]
    }

    pub(crate) fn to_message(self, verb: &str) -> Message {
        Message::new(verb)
            .with("rss", self.rss_bytes)
            .with("cpu-ns", self.cpu_ns)
            .with("descriptors", self.descriptors)
            .with("queue-pairs", self.queue_pairs)
            .with("connections", self.connections)
            .with("memory-keys", self.memory_keys)
            .with("completion-queues", self.completion_queues)
            .with("listeners", self.listeners)
    }

    pub(crate) fn from_message(message: &Message) -> Result<Self> {
        Ok(Footprint {
            rss_bytes: message.field("rss")?,
            cpu_ns: message.field("cpu-ns")?,
            descriptors: message.field("descriptors")?,
            queue_pairs: message.field("queue-pairs")?,
            connections: message.field("connections")?,
            memory_keys: message.field("memory-keys")?,
            completion_queues: message.field("completion-queues")?,
            listeners: message.field("listeners")?,
        })
    }
}

/// Resident memory, as the kernel counts it at this moment.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Processor time that this process has used.
fn processor_ns() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_behind_is_named() {
        let before = Footprint {
            descriptors: 10,
            queue_pairs: 2,
            ..Footprint::default()
        };
        let after = Footprint {
            rss_bytes: 1 << 30,
            cpu_ns: 1 << 30,
            descriptors: 12,
            queue_pairs: 1,
            ..before
        };
        assert_eq!(after.left_behind(&before), ["2 descriptors"]);
        assert!(before.left_behind(&before).is_empty());
        let message = after.to_message("x");
        assert_eq!(Footprint::from_message(&message).expect("complete"), after);
    }

    #[test]
    fn a_process_has_some_memory() {
        assert!(resident_bytes().expect("Linux") > 1 << 20);
    }
}
