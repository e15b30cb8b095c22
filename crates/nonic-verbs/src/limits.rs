//! Limits: how many objects a program can have. Creating an object checks them, querying the device reports them.

use libc::c_int;

/// Entries of a completion queue.
pub(crate) const MAX_CQE: c_int = 1 << 22;

/// Receives in a shared receive queue.
pub(crate) const MAX_SRQ_WR: u32 = 32768;

/// Bytes of device memory in one piece.
pub(crate) const MAX_DEVICE_MEMORY: usize = 64 << 20;
