//! Registered memory: [`Lease`], yours alone, and [`Exposed`], shared with peers.
//!
//! Both stand on the same memory, registered once: pages that the domain mapped, or memory that the program brought
//! ([`OwnedMemory`]). A lease is a disjoint part of it with one owner, so it can be a slice. A request takes the lease
//! while it uses it, and exposing a lease turns it into something that is no slice any more.

mod buffers;
mod exposed;
mod lease;
mod owned;
mod registered;
mod remote;
mod window;

pub use buffers::{BufferSet, Buffers};
pub use exposed::{Exposed, ExposedRange};
pub use lease::{Lease, Recycler};
pub use owned::OwnedMemory;
pub use remote::{ParseRemoteSliceError, RemoteSlice};
pub(crate) use window::WindowHandle;
pub use window::{BoundWindow, Window};

use nonic_core::KeyError;
use std::io;

/// Why memory could not be had or used.
///
/// ```
/// use nonic::{Access, MemoryError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// let table = domain.lease(64)?.expose(Access::REMOTE_READ)?;
/// assert!(matches!(table.write_at(60, b"too long"), Err(MemoryError::Range)));
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The operating system gave none.
    #[error("cannot map memory: {0}")]
    Map(#[from] io::Error),
    /// It could not be registered.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The range is outside the memory, or not aligned for an atomic.
    #[error("the range is outside the memory, or not aligned to 8 bytes")]
    Range,
}
