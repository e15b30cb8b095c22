//! Registered memory: [`Lease`], yours alone, and [`Exposed`], shared with peers.
//!
//! Both stand on the same pages, mapped and registered once. A lease is a disjoint part of them that nobody
//! else holds, so it can be a slice. It stops being in your hands while a request uses it, and exposing it
//! turns it into something that is no slice any more.

use crate::device::Domain;
use crate::pool::{Home, Recycler};
use nonic_core::{Access, Key, KeyError, KeySpec, Region};
use nonic_engine::memory::Pages;
use smallvec::SmallVec;
use std::fmt;
use std::io;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};
use std::str::FromStr;
use std::sync::Arc;

/// Why memory could not be had or used.
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

/// Pages and the key that lets the local NIC use them.
#[derive(Debug)]
struct Registered {
    domain: Domain,
    pages: Arc<Pages>,
    key: Arc<Key>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Nobody holds a part of it, so no request uses it; the engine's own shares keep the pages alive
        // if one is being torn down at this moment.
        self.domain.device.engine.revoke(self.key.value());
    }
}

/// A buffer that is yours alone.
///
/// Move it into a request and its completion gives it back. It derefs to a byte slice.
///
/// ```compile_fail,E0382
/// # let device = nonic::Device::open("roce_lo").unwrap();
/// # let (domain, queue) = (device.domain(), device.completion_queue(4).unwrap());
/// # let pair = domain.queue_pair::<nonic::Rc>(&queue).unwrap();
/// # let here = pair.endpoint();
/// # let mut pair = pair.connect(&here).unwrap();
/// let lease = domain.lease(64).unwrap();
/// pair.sq.send(1, lease).unwrap();
/// println!("{}", lease[0]); // the NIC has it
/// ```
pub struct Lease {
    memory: Arc<Registered>,
    offset: usize,
    len: usize,
    /// Of which pool it is a buffer, to which that goes back with its last part.
    home: Option<Arc<Home>>,
}

impl Domain {
    /// A zeroed buffer of `len` bytes.
    #[doc(alias = "ibv_reg_mr")]
    pub fn lease(&self, len: usize) -> Result<Lease, MemoryError> {
        Lease::new(self, len)
    }

    /// A buffer with a copy of `bytes`.
    #[doc(alias = "ibv_reg_mr")]
    pub fn lease_from(&self, bytes: &[u8]) -> Result<Lease, MemoryError> {
        let mut lease = Lease::new(self, bytes.len())?;
        lease.copy_from_slice(bytes);
        Ok(lease)
    }
}

impl Lease {
    fn new(domain: &Domain, len: usize) -> Result<Self, MemoryError> {
        let pages = Arc::new(Pages::new(len)?);
        let key = domain.device.engine.register(KeySpec {
            pd: domain.pd,
            region: pages.clone(),
            offset: 0,
            length: len as u64,
            iova: 0,
            access: Access::LOCAL_WRITE,
            bound_qp: None,
            invalidatable: false,
        })?;
        let memory = Arc::new(Registered {
            domain: domain.clone(),
            pages,
            key,
        });
        Ok(Lease {
            memory,
            offset: 0,
            len,
            home: None,
        })
    }

    /// Its first `len` bytes. When the last part of them is dropped, wherever it is by then, all of it goes to `recycler`; not
    /// before the NIC is done with it, nor while a peer can reach it.
    pub fn recycled_by(self, recycler: Arc<dyn Recycler>, len: usize) -> Lease {
        let (memory, offset) = (Arc::clone(&self.memory), self.offset);
        Lease {
            memory,
            offset,
            len: len.min(self.len),
            home: Some(Arc::new(Home::new(recycler, self))),
        }
    }

    /// Cuts it in two at `mid`.
    ///
    /// # Panics
    ///
    /// If `mid` is beyond its end.
    pub fn split_at(self, mid: usize) -> (Lease, Lease) {
        assert!(mid <= self.len, "cut at {mid} in a lease of {} bytes", self.len);
        let right = Lease {
            memory: Arc::clone(&self.memory),
            offset: self.offset + mid,
            len: self.len - mid,
            home: self.home.clone(),
        };
        (Lease { len: mid, ..self }, right)
    }

    /// Puts what was cut in two together again. Both come back if they are not neighbours.
    pub fn join(self, next: Lease) -> Result<Lease, (Lease, Lease)> {
        let same_home = match (&self.home, &next.home) {
            (Some(home), Some(other)) => Arc::ptr_eq(home, other),
            (None, None) => true,
            _ => false,
        };
        let neighbours = Arc::ptr_eq(&self.memory, &next.memory) && self.offset + self.len == next.offset;
        if !(same_home && neighbours) {
            return Err((self, next));
        }
        Ok(Lease {
            len: self.len + next.len,
            ..self
        })
    }

    /// Lets peers at it, with the given rights. Local write is implied.
    ///
    /// A lease that was not cut becomes memory that processes of this host map: what they do to it is then as fast as the
    /// processor.
    #[doc(alias = "ibv_reg_mr")]
    pub fn expose(self, access: Access) -> Result<Exposed, MemoryError> {
        self.share(access);
        let domain = &self.memory.domain;
        let key = domain.device.engine.register(KeySpec {
            pd: domain.pd,
            region: self.memory.pages.clone(),
            offset: self.offset,
            length: self.len as u64,
            // Counting from zero tells peers nothing about this process's addresses.
            iova: 0,
            access: access | Access::LOCAL_WRITE,
            bound_qp: None,
            invalidatable: true,
        })?;
        Ok(Exposed {
            lease: Some(self),
            key,
        })
    }

    /// Makes it memory that peers with these rights may map, if that is worth it and it has its pages to itself. Otherwise, or
    /// if that fails, they have other ways.
    fn share(&self, access: Access) {
        let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let whole = self.len > 0 && self.len == self.memory.pages.len();
        if whole && access.intersects(remote) && self.memory.domain.device.engine.is_mapped_by_peers() {
            // SAFETY: we have the lease, and it is all there is of these pages: nobody else has a part of them, no request
            // uses them, and no peer has a key to them.
            let _ = unsafe { self.memory.pages.share() };
        }
    }

    /// As a scatter/gather element.
    pub(crate) fn sge(&self) -> nonic_core::Sge {
        nonic_core::Sge {
            addr: self.offset as u64,
            length: self.len as u32,
            lkey: self.memory.key.value(),
        }
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within the pages, which live as long as `memory`. Leases are disjoint and
        // this one is not in any request (it would have been moved there), so nobody writes it: the only
        // key over it while it is a lease has no remote rights, and the NIC's last access happened before
        // the completion that returned the lease was taken out of its locked queue.
        unsafe { std::slice::from_raw_parts(self.memory.pages.start().as_ptr().add(self.offset), self.len) }
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; and `&mut self` makes this the only view.
        unsafe {
            std::slice::from_raw_parts_mut(self.memory.pages.start().as_ptr().add(self.offset), self.len)
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// The buffers of one request: one lease, or several that are gathered or scattered in order.
#[derive(Debug, Default)]
pub struct Buffers(pub(crate) SmallVec<[Lease; 1]>);

impl From<Lease> for Buffers {
    fn from(lease: Lease) -> Self {
        Buffers(SmallVec::from_buf([lease]))
    }
}

impl From<Vec<Lease>> for Buffers {
    fn from(leases: Vec<Lease>) -> Self {
        Buffers(SmallVec::from_vec(leases))
    }
}

impl From<SmallVec<[Lease; 1]>> for Buffers {
    fn from(leases: SmallVec<[Lease; 1]>) -> Self {
        Buffers(leases)
    }
}

/// What a request can be posted with, and what comes back in the same form when it is done: one [`Lease`], or several.
pub trait BufferSet: Into<Buffers> + Send + 'static {
    /// The same again.
    fn from_buffers(buffers: Buffers) -> Self;
}

impl BufferSet for Buffers {
    fn from_buffers(buffers: Buffers) -> Self {
        buffers
    }
}

/// No buffers: what is sent inline needs none.
impl BufferSet for () {
    fn from_buffers(_none: Buffers) -> Self {}
}

impl From<()> for Buffers {
    fn from((): ()) -> Self {
        Buffers::default()
    }
}

impl BufferSet for Lease {
    fn from_buffers(buffers: Buffers) -> Self {
        let only = buffers.into_iter().next();
        only.expect("a request returns the buffers it was posted with")
    }
}

impl BufferSet for Vec<Lease> {
    fn from_buffers(buffers: Buffers) -> Self {
        buffers.0.into_vec()
    }
}

impl IntoIterator for Buffers {
    type Item = Lease;
    type IntoIter = smallvec::IntoIter<[Lease; 1]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Buffers {
    /// How many bytes they have together.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|lease| lease.len() as u64).sum()
    }

    pub(crate) fn sges(&self) -> SmallVec<[nonic_core::Sge; 4]> {
        self.0.iter().map(Lease::sge).collect()
    }
}

/// Memory that peers can read, write or use atomics on at any time.
///
/// It is never a slice: bytes are copied in and out.
#[derive(Debug)]
pub struct Exposed {
    /// `None` only once it was taken back.
    lease: Option<Lease>,
    key: Arc<Key>,
}

impl Exposed {
    /// What a peer must be told to use it.
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
        let at = self.range(offset, out.len())?;
        self.lease()
            .memory
            .pages
            .read(at, out)
            .map_err(|_| MemoryError::Range)
    }

    /// Copies bytes in.
    pub fn write_at(&self, offset: usize, data: &[u8]) -> Result<(), MemoryError> {
        let at = self.range(offset, data.len())?;
        self.lease()
            .memory
            .pages
            .write(at, data)
            .map_err(|_| MemoryError::Range)
    }

    /// Atomically adds to the 8-byte word at `offset`; what was there. Atomic against peers too.
    pub fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, MemoryError> {
        let at = self.range(offset, 8)?;
        self.lease()
            .memory
            .pages
            .fetch_add(at, add)
            .map_err(|_| MemoryError::Range)
    }

    /// Atomically replaces the 8-byte word at `offset` if it equals `compare`; what was there.
    pub fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, MemoryError> {
        let at = self.range(offset, 8)?;
        self.lease()
            .memory
            .pages
            .compare_swap(at, compare, swap)
            .map_err(|_| MemoryError::Range)
    }

    /// Takes it back: when this returns, no peer's access is under way and none will begin.
    #[doc(alias = "ibv_dereg_mr")]
    ///
    /// A process of this host that was stopped in the middle of an access may end it at any time. Where one does not end
    /// it within a second, the memory is given up and this is a copy. So it is where a process of this host had mapped it:
    /// that one could look at it, or write to it, for as long as it likes.
    pub fn into_lease(mut self) -> Lease {
        let revoked = self.revoke();
        let lease = self.lease.take().expect("taken only here");
        if revoked && !lease.memory.pages.is_given() {
            return lease;
        }
        let memory = &lease.memory;
        match memory.domain.lease(lease.len) {
            Ok(mut copy) => {
                memory.pages.read(lease.offset, &mut copy).expect("all of it");
                copy
            }
            // Without memory for a copy, what is left is that whoever mapped it keeps to our rules.
            Err(_) if revoked => lease,
            Err(error) => panic!("memory for a copy: {error}"),
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

    fn lease(&self) -> &Lease {
        self.lease
            .as_ref()
            .expect("taken only by `into_lease`, which consumes")
    }

    fn range(&self, offset: usize, len: usize) -> Result<usize, MemoryError> {
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

/// A span of a peer's memory, as the peer described it.
///
/// Its text form is `va,rkey,len`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RemoteSlice {
    /// The first byte's address in the key's address space.
    pub va: u64,
    /// The key.
    pub rkey: u32,
    /// Its length in bytes.
    pub len: u64,
}

impl RemoteSlice {
    /// A part of it.
    ///
    /// # Panics
    ///
    /// If the range is not inside.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<u64>) -> RemoteSlice {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len,
        };
        assert!(
            start <= end && end <= self.len,
            "{start}..{end} of {} remote bytes",
            self.len
        );
        RemoteSlice {
            va: self.va + start,
            rkey: self.rkey,
            len: end - start,
        }
    }

    pub(crate) fn address(&self) -> nonic_core::RemoteAddress {
        nonic_core::RemoteAddress {
            va: self.va,
            rkey: self.rkey,
        }
    }
}

impl fmt::Display for RemoteSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x},{:#010x},{}", self.va, self.rkey, self.len)
    }
}

/// The text is not a remote slice.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a remote slice (`va,rkey,len`): {0}")]
pub struct ParseRemoteSliceError(String);

impl FromStr for RemoteSlice {
    type Err = ParseRemoteSliceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut fields = text.trim().split(',');
            let va = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
            let rkey = crate::endpoint::number(fields.next()?, u32::MAX)?;
            let len = fields.next()?.parse().ok()?;
            fields.next().is_none().then_some(RemoteSlice { va, rkey, len })
        };
        parse().ok_or_else(|| ParseRemoteSliceError(text.chars().take(80).collect()))
    }
}
