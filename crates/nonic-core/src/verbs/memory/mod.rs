//! Registered memory: regions, the keys that permit access to them, and scatter/gather lists.
//!
//! - [`Region`] is memory itself, as the NIC sees it: something bytes can be copied to and from. The core
//!   never forms a slice over it, because the program or another NIC thread may be writing it.
//! - [`KeyTable`] maps lkeys and rkeys to (protection domain, range, rights) and is the only way from a
//!   key on the wire to a [`Region`].
//! - `SgList` is the scatter/gather list of a work request; its keys are looked up for each access, through `Keys`.
//!
//! Nothing here is `unsafe`: real memory is behind a [`Region`] supplied by a higher crate.

mod at_hand;
mod hasher;
mod heap;
mod keys;
mod owner;
mod rights;
mod sg;
mod window_table;
mod windows;

pub(crate) use at_hand::Keys;
pub use hasher::KeyHasher;
pub use heap::HeapRegion;
pub(crate) use keys::FENCE_KEY;
pub use keys::{Key, KeyPublisher, KeySpec, KeyTable};
pub use owner::RegionOwner;
pub use rights::{Access, KeyError, PdId};
pub use sg::Sge;
pub(crate) use sg::{SgFault, SgList};
pub use window_table::WindowKind;
pub use windows::WindowBind;

/// The memory was there when it was registered and is not any more (an unmapped page, say).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fault;

/// A span of memory the NIC can copy to and from.
///
/// Offsets are from the start of the region. Callers stay within [`Region::len`]; an implementation
/// answers an access outside it with [`Fault`], never by touching other memory.
pub trait Region: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> usize;

    /// Whether there is nothing in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `out.len()` bytes from `offset` into `out`.
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Fault>;

    /// Copies `data` to `offset`.
    fn write(&self, offset: usize, data: &[u8]) -> Result<(), Fault>;

    /// Atomically replaces the 8-byte native-endian word at `offset` by `swap` if it equals `compare`;
    /// returns what was there. `offset` is such that the word is naturally aligned in memory.
    fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, Fault>;

    /// Atomically adds `add` (wrapping) to the 8-byte word at `offset`; returns what was there.
    fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, Fault>;

    /// Stores the 8-byte word at `offset` so that no reader sees half of it.
    fn store(&self, offset: usize, value: u64) -> Result<(), Fault> {
        let mut expected = self.fetch_add(offset, 0)?;
        loop {
            // This fails only if another thread or peer changed the word meanwhile.
            match self.compare_swap(offset, expected, value)? {
                found if found == expected => return Ok(()),
                found => expected = found,
            }
        }
    }

    /// Where it begins in this process's memory, if it is ordinary memory that the kernel can copy to and from on behalf
    /// of another process.
    fn address(&self) -> Option<usize> {
        None
    }

    /// Itself, for callers that know particular kinds of memory.
    fn as_any(&self) -> Option<&dyn std::any::Any> {
        None
    }

    /// Makes what was written to the range survive a loss of power. Ordinary memory cannot.
    fn persist(&self, _offset: usize, _length: usize) -> Result<(), Fault> {
        Err(Fault)
    }
}
