//! Protection domains, access rights, and why a key does not permit an access.

use bitflags::bitflags;

/// A protection domain. Queue pairs and keys of different domains cannot be combined.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct PdId(pub(super) u32);

impl PdId {
    /// The domain's number.
    pub const fn value(self) -> u32 {
        self.0
    }
}

bitflags! {
    /// What a key or a queue pair permits. Bit values are those of `ibv_access_flags`.
    #[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
    pub struct Access: u32 {
        /// The local NIC may write (receive buffers, read targets).
        const LOCAL_WRITE = 1;
        /// A peer may RDMA WRITE.
        const REMOTE_WRITE = 1 << 1;
        /// A peer may RDMA READ.
        const REMOTE_READ = 1 << 2;
        /// A peer may use atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to it.
        const MW_BIND = 1 << 4;
        /// Addresses count from zero instead of from the virtual address.
        const ZERO_BASED = 1 << 5;
        /// A peer may FLUSH it so that all observers see what was written.
        const FLUSH_GLOBAL = 1 << 8;
        /// A peer may FLUSH it so that what was written survives a loss of power.
        const FLUSH_PERSISTENT = 1 << 9;
    }
}

/// Why a key does not permit an access.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// No such key.
    #[error("no such memory key")]
    Unknown,
    /// It belongs to another protection domain, or is bound to another queue pair.
    #[error("the memory key belongs to another protection domain or queue pair")]
    Domain,
    /// It was revoked.
    #[error("the memory key has been revoked")]
    Revoked,
    /// It does not permit this kind of access.
    #[error("the memory key does not permit this access")]
    Rights,
    /// The range is not within it, or not within the region.
    #[error("the address range is outside the memory key's")]
    Bounds,
    /// It cannot be invalidated by a work request.
    #[error("the memory key cannot be invalidated")]
    NotInvalidatable,
    /// The combination of rights is not allowed (remote write or atomic without local write).
    #[error("remote write and atomic rights need local write as well")]
    InvalidRights,
    /// It is a window that is bound already, or a region that windows are bound to.
    #[error("memory windows are bound: invalidate or free them first")]
    Bound,
    /// It is revoked, but a peer on this host was stopped in the middle of a direct access through it.
    #[error("the memory key is revoked, but a stopped peer may not have ended its access")]
    Busy,
    /// No number is free, or there is no memory for one more.
    #[error("no memory key is free, or there is no memory for one more")]
    Exhausted,
}
