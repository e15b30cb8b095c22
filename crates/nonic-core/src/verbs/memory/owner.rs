//! Owners of memory: a region together with what keeps it in place.

use super::{Fault, Region};
use std::any::Any;

/// A region together with what keeps it in place, such as the mapping or the vector that it lies in. The NIC accesses it
/// as the region inside: every method of [`Region`] is forwarded here, so that none is forgotten by one of the owners.
///
/// [`Region::as_any`] answers with the owner, which is what callers look for.
pub trait RegionOwner: Any + Send + Sync {
    /// The kind of memory inside.
    type Inner: Region;

    /// The memory inside.
    fn inner(&self) -> &Self::Inner;
}

impl<O: RegionOwner> Region for O {
    fn len(&self) -> usize {
        self.inner().len()
    }

    fn is_empty(&self) -> bool {
        self.inner().is_empty()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Fault> {
        self.inner().read(offset, out)
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<(), Fault> {
        self.inner().write(offset, data)
    }

    fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, Fault> {
        self.inner().compare_swap(offset, compare, swap)
    }

    fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, Fault> {
        self.inner().fetch_add(offset, add)
    }

    fn store(&self, offset: usize, value: u64) -> Result<(), Fault> {
        self.inner().store(offset, value)
    }

    fn address(&self) -> Option<usize> {
        self.inner().address()
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn persist(&self, offset: usize, length: usize) -> Result<(), Fault> {
        self.inner().persist(offset, length)
    }
}
