//! Exposed memory: peers can use it at any time, so it is never a slice.

use super::remote::bounds;
use super::{Lease, MemoryError, RemoteSlice};
use crate::device::Domain;
use nonic_core::{Access, Key, KeyError, KeySpec, Region, Sge};
use std::ops::RangeBounds;
use std::sync::Arc;

/// Memory that peers can read, write or use atomics on at any time.
///
/// It is never a slice: bytes are copied in and out, or a [range](Exposed::range) of it is what a request sends, reads or receives.
///
/// ```
/// use nonic::{Access, Device};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let table = Device::open("roce_lo")?.domain().lease(4096)?.expose(Access::REMOTE_READ)?;
/// table.write_at(8, b"for all to see")?;
/// println!("{}", table.remote()); // tell peers this
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Exposed {
    /// `None` only once it was taken back. Ranges of it have a share.
    lease: Option<Arc<Lease>>,
    key: Arc<Key>,
}

impl Lease {
    /// Lets peers at it, with the given rights. Local write is implied.
    ///
    /// A lease that was not cut, and is not memory that the program brought, becomes memory that processes of this host map: what
    /// they do to it is then as fast as the processor.
    #[doc(alias = "ibv_reg_mr")]
    pub fn expose(self, access: Access) -> Result<Exposed, MemoryError> {
        self.share(access);
        let domain = &self.memory.domain;
        let key = domain.device.engine.register(KeySpec {
            pd: domain.pd,
            region: self.memory.memory.region(),
            offset: self.offset,
            length: self.len as u64,
            // Counting from zero tells peers nothing about this process's addresses.
            iova: 0,
            access: access | Access::LOCAL_WRITE,
            bound_qp: None,
            invalidatable: true,
        })?;
        Ok(Exposed::new(self, key))
    }
}

impl Exposed {
    pub(super) fn new(lease: Lease, key: Arc<Key>) -> Self {
        Exposed {
            lease: Some(Arc::new(lease)),
            key,
        }
    }

    /// What a peer needs to use it.
    pub fn remote(&self) -> RemoteSlice {
        RemoteSlice {
            va: 0,
            rkey: self.key.value(),
            len: self.lease().len as u64,
        }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.lease().len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.lease().len == 0
    }

    /// Copies bytes out. A peer that writes at the same time may be seen half-way.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), MemoryError> {
        let at = self.locate(offset, out.len())?;
        self.region().read(at, out).map_err(|_| MemoryError::Range)
    }

    /// Copies bytes in.
    pub fn write_at(&self, offset: usize, data: &[u8]) -> Result<(), MemoryError> {
        let at = self.locate(offset, data.len())?;
        self.region().write(at, data).map_err(|_| MemoryError::Range)
    }

    /// Atomically adds to the 8-byte word at `offset`; what was there. Atomic against peers too.
    pub fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, MemoryError> {
        let at = self.locate(offset, 8)?;
        self.region().fetch_add(at, add).map_err(|_| MemoryError::Range)
    }

    /// Atomically replaces the 8-byte word at `offset` if it equals `compare`; what was there.
    pub fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, MemoryError> {
        let at = self.locate(offset, 8)?;
        self.region()
            .compare_swap(at, compare, swap)
            .map_err(|_| MemoryError::Range)
    }

    /// A part of it, as what a request sends, writes from, reads into or receives into, while peers go on to use it: what is sent may
    /// be half of what a peer is just writing, as in [`Exposed::read_at`].
    ///
    /// ```
    /// # use nonic::{Access, Device, Rc};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let domain = Device::open("roce_lo")?.domain();
    /// # let (left, right) = (domain.pair::<Rc>()?, domain.pair::<Rc>()?);
    /// # let (here, there) = (left.endpoint(), right.endpoint());
    /// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
    /// let table = domain.lease_from(b"for all to see")?.expose(Access::REMOTE_WRITE)?;
    /// let receive = right.recv(domain.lease(64)?);
    /// left.send(table.range(4..7)).wait()?;
    /// assert_eq!(receive.wait()?.bytes(), b"all");
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// If the range is not inside.
    #[doc(alias = "ibv_sge")]
    pub fn range(&self, range: impl RangeBounds<usize>) -> ExposedRange {
        let (start, end) = bounds(range, self.len());
        ExposedRange {
            lease: Arc::clone(self.shared()),
            offset: start,
            len: end - start,
        }
    }

    /// Takes it back: when this returns, no peer's access is under way and none will begin.
    ///
    /// A process of this host that was stopped in the middle of an access may finish it at any time. If it does not
    /// within a second, the memory is given up and this is a copy. It is also a copy if a process of this host had
    /// mapped the memory, since that process could read or write it for as long as it likes; and while a
    /// [range](Exposed::range) of it exists, such as in a request under way.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn into_lease(mut self) -> Lease {
        let revoked = self.revoke();
        let shared = self.lease.take().expect("taken only here");
        let kept = match Arc::try_unwrap(shared) {
            Ok(lease) if revoked => lease,
            Ok(lease) => return copy_of(&lease).expect("memory for a copy"),
            Err(shared) => return copy_of(&shared).expect("memory for a copy"),
        };
        match kept.memory.memory.take_back() {
            // Without memory for a copy, we can only trust that the process that mapped it keeps to our rules.
            true => copy_of(&kept).unwrap_or(kept),
            false => kept,
        }
    }

    /// Answers whether no access through the key is under way. If one is, the memory stays what it is for good.
    fn revoke(&self) -> bool {
        let Some(lease) = &self.lease else {
            return true;
        };
        let engine = &lease.memory.domain.device.engine;
        let busy = engine.try_revoke(self.key.value()) == Err(KeyError::Busy);
        if busy {
            std::mem::forget(Arc::clone(&lease.memory));
            std::mem::forget(lease.home.clone());
        }
        !busy
    }

    pub(crate) fn domain(&self) -> &Domain {
        &self.lease().memory.domain
    }

    /// A part of it as a window is bound to it: the key, where it begins and how long it is. An error if that is not permitted.
    pub(crate) fn bindable(&self, range: impl RangeBounds<usize>) -> Result<(u32, u64, u64), MemoryError> {
        let (start, end) = bounds(range, self.len());
        match self.key.access().contains(Access::MW_BIND) {
            true => Ok((self.key.value(), start as u64, (end - start) as u64)),
            false => Err(KeyError::Rights.into()),
        }
    }

    fn region(&self) -> &dyn Region {
        self.lease().memory.memory.as_region()
    }

    fn lease(&self) -> &Lease {
        self.shared()
    }

    fn shared(&self) -> &Arc<Lease> {
        self.lease
            .as_ref()
            .expect("taken only by `into_lease`, which consumes")
    }

    fn locate(&self, offset: usize, len: usize) -> Result<usize, MemoryError> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.lease().len);
        if inside {
            Ok(self.lease().offset + offset)
        } else {
            Err(MemoryError::Range)
        }
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        self.revoke();
    }
}

/// The same bytes in memory of their own.
fn copy_of(lease: &Lease) -> Result<Lease, MemoryError> {
    let memory = &lease.memory;
    let mut copy = memory.domain.lease(lease.len)?;
    let region = memory.memory.as_region();
    region
        .read(lease.offset, &mut copy)
        .map_err(|_| MemoryError::Range)?;
    Ok(copy)
}

/// A part of exposed memory, for requests: see [`Exposed::range`].
///
/// It keeps the memory, but not what peers may do to it: that ends with the [`Exposed`].
///
/// ```
/// use nonic::Access;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// let table = domain.lease(4096)?.expose(Access::REMOTE_READ)?;
/// let receive = right.recv(table.range(1024..1029)); // straight to where peers can read it
/// left.send_bytes(b"hello").wait()?;
/// let mut copy = [0; 5];
/// receive.wait()?.buffers.copy_to(&mut copy);
/// assert_eq!(&copy, b"hello");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ExposedRange {
    lease: Arc<Lease>,
    offset: usize,
    len: usize,
}

impl ExposedRange {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes out. A peer that writes at the same time may be seen half-way.
    ///
    /// # Panics
    ///
    /// If `out` has not the length of the range.
    pub fn copy_to(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.len, "all of the range is copied");
        let region = self.lease.memory.memory.as_region();
        let copied = region.read(self.lease.offset + self.offset, out);
        copied.expect("the range is inside, and the memory is there as long as it is");
    }

    /// As a scatter/gather element.
    pub(super) fn sge(&self) -> Sge {
        self.lease.sge_of(self.offset, self.len)
    }
}
