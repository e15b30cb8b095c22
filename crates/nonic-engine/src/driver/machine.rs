//! The interface between a turn and the machine behind its lock.

use nonic_core::Time;

/// The machine that turns give access to: a shard, or a model of one.
pub(crate) trait Machine {
    /// Whether something is to be sent or shown.
    fn needs_flush(&self) -> bool;

    /// Sends and shows it.
    fn flush(&mut self, now: Time);

    /// Whether packets wait to be sent: for room in the kernel, or because a flush had sent enough.
    fn is_behind(&self) -> bool;

    /// Whether something waits on purpose to be sent with the program's next call.
    fn has_deferred(&self) -> bool;

    /// When it must be driven even if nothing happens.
    fn next_timeout(&self) -> Option<Time>;

    /// A thread is about to sleep on its descriptors; when it is awake again, it says so. Whether there is something to do
    /// already.
    fn fall_asleep(&mut self) -> bool;
}
