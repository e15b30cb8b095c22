//! Leases: buffers that the program alone owns, until it moves them into a request.

use super::MemoryError;
use super::owned::{Owned, OwnedMemory};
use super::registered::{Memory, Registered};
use crate::device::Domain;
use nonic_core::{Access, Region, Sge};
use nonic_engine::memory::Pages;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

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
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// let mut lease = domain.lease(5)?;
/// lease.copy_from_slice(b"hello");
/// let receive = right.recv(domain.lease(64)?);
/// let lease = left.send(lease).wait()?; // moved in, and given back
/// assert_eq!(receive.wait()?.bytes(), &lease[..]);
/// # Ok(()) }
/// ```
pub struct Lease {
    pub(super) memory: Arc<Registered>,
    pub(super) offset: usize,
    pub(super) len: usize,
    /// Of which pool it is a buffer, to which that goes back with its last part.
    pub(super) home: Option<Arc<Home>>,
}

/// Takes back buffers that are no longer in use, to give them out again: see [`Lease::recycled_by`].
///
/// ```
/// use nonic::{Lease, Recycler};
/// use std::sync::{Arc, Mutex};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// #[derive(Default)]
/// struct Spare(Mutex<Vec<Lease>>);
///
/// impl Recycler for Spare {
///     fn recycle(&self, lease: Lease) {
///         self.0.lock().expect("nobody panics").push(lease);
///     }
/// }
///
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// let spare = Arc::new(Spare::default());
/// let message = domain.lease(4096)?.recycled_by(spare.clone(), 100);
/// assert_eq!(message.len(), 100);
/// drop(message);
/// let again = spare.0.lock().expect("nobody panics").pop().expect("it came back");
/// assert_eq!(again.len(), 4096);
/// # Ok(()) }
/// ```
pub trait Recycler: Send + Sync {
    /// Takes a buffer back as it was given out, with whatever is in it. One that a process of this host has mapped
    /// ([`Lease::expose`]) does not come back, unless it [stays mapped](Lease::stay_mapped).
    fn recycle(&self, lease: Lease);
}

/// Where a buffer goes back to when the last part of it is dropped.
pub(super) struct Home {
    recycler: Arc<dyn Recycler>,
    whole: Option<Lease>,
}

impl Drop for Home {
    fn drop(&mut self) {
        let Some(whole) = self.whole.take() else {
            return;
        };
        let memory = &whole.memory.memory;
        if memory.stays_mapped() || !memory.take_back() {
            self.recycler.recycle(whole);
        }
    }
}

impl Domain {
    /// A zeroed buffer of `len` bytes.
    #[doc(alias = "ibv_reg_mr")]
    pub fn lease(&self, len: usize) -> Result<Lease, MemoryError> {
        Lease::new(self, len)
    }

    /// Memory that the program has, as a buffer: a `Vec<u8>`, a `Box<[u8]>`, or what else implements [`OwnedMemory`]. Nothing is
    /// copied. [`Lease::into_inner`] gives it back; with the last part of it dropped, it is freed.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let domain = nonic::Device::open("roce_lo")?.domain();
    /// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
    /// # let (here, there) = (left.endpoint(), right.endpoint());
    /// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
    /// # let receive = right.recv(domain.lease(64)?);
    /// let lease = left.send(domain.register(b"a letter".to_vec())?).wait()?;
    /// let letter: Vec<u8> = lease.into_inner().expect("all of it is here");
    /// assert_eq!(letter, b"a letter");
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(&self, memory: impl OwnedMemory) -> Result<Lease, MemoryError> {
        Lease::all_of(self, Memory::Owned(Arc::new(Owned::new(memory))))
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
        Self::all_of(domain, Memory::Pages(Arc::new(Pages::new(len)?)))
    }

    fn all_of(domain: &Domain, memory: Memory) -> Result<Self, MemoryError> {
        let memory = Arc::new(Registered::new(domain, memory)?);
        Ok(Lease {
            offset: 0,
            len: memory.memory.as_region().len(),
            memory,
            home: None,
        })
    }

    /// What was registered by [`Domain::register`], with what is in it now: all of it, whichever part this is.
    ///
    /// The lease comes back if that was something else, or if another owner has a part of it: another lease, exposed
    /// memory or a request under way.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn into_inner<M: OwnedMemory>(self) -> Result<M, Lease> {
        match &self.memory.memory {
            Memory::Owned(owned) if owned.is::<M>() => {}
            _ => return Err(self),
        }
        let Lease {
            memory,
            offset,
            len,
            home,
        } = self;
        match Arc::try_unwrap(memory) {
            Ok(registered) => Ok(registered
                .into_owned()
                .expect("it is an `M`, and nobody else took it")),
            Err(memory) => Err(Lease {
                memory,
                offset,
                len,
                home,
            }),
        }
    }

    /// Its bytes as a vector: the very one that was registered, if it is all of that, otherwise a copy.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn into_vec(self) -> Vec<u8> {
        match self.len == self.memory.memory.as_region().len() {
            true => self.into_inner().unwrap_or_else(|lease: Lease| lease.to_vec()),
            false => self.to_vec(),
        }
    }

    /// Its first `len` bytes. When the last part of them is dropped, wherever it is by then, all of it goes to `recycler`; not
    /// before the NIC is done with it, nor while a peer can reach it.
    pub fn recycled_by(self, recycler: Arc<dyn Recycler>, len: usize) -> Lease {
        let (memory, offset) = (Arc::clone(&self.memory), self.offset);
        Lease {
            memory,
            offset,
            len: len.min(self.len),
            home: Some(Arc::new(Home {
                recycler,
                whole: Some(self),
            })),
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

    /// Lets processes of this host that READ it keep it mapped when their key has been revoked. To be said before it is exposed.
    ///
    /// A cache of buffers that are exposed for READs again and again, each time with another key, says this: otherwise each of them would
    /// be mapped each time, or not at all. In return, a process of this user and host that was once let at the buffer may see what is in it
    /// later. What peers may write is never left to them.
    pub fn stay_mapped(&self) {
        if let Memory::Pages(pages) = &self.memory.memory {
            pages.stay_mapped();
        }
    }

    /// Makes it memory that peers with these rights may map, if that is worth it and it has its pages to itself. Otherwise, or
    /// if that fails, they have other ways.
    pub(super) fn share(&self, access: Access) {
        let Memory::Pages(pages) = &self.memory.memory else {
            return;
        };
        let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let mapped = access.intersects(remote) && self.memory.domain.device.engine.is_mapped_by_peers();
        let worth_it = self.len == pages.len() || pages.do_stay_mapped();
        if mapped && worth_it && self.is_alone() {
            // SAFETY: we have the lease, and it is all there is of these pages: no other lease has a part of them, no
            // request uses them, and no peer has a key to them.
            let _ = unsafe { pages.share() };
        }
    }

    /// Whether no other lease has a part of its memory. The memory's home, which it came from and goes back to, does
    /// not count: nothing uses it from there.
    fn is_alone(&self) -> bool {
        let handles = match &self.home {
            None => 1,
            Some(home) if Arc::strong_count(home) == 1 => 2,
            Some(_) => return false,
        };
        self.len > 0 && Arc::strong_count(&self.memory) == handles
    }

    /// As a scatter/gather element.
    pub(crate) fn sge(&self) -> Sge {
        self.sge_of(0, self.len)
    }

    /// A part of it as a scatter/gather element.
    pub(super) fn sge_of(&self, offset: usize, len: usize) -> Sge {
        Sge {
            addr: (self.offset + offset) as u64,
            // What no message can have, if it is longer.
            length: u32::try_from(len).unwrap_or(u32::MAX),
            lkey: self.memory.key.value(),
        }
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within memory that lives as long as `memory` and has values in it. Leases are disjoint
        // and this one is not in any request (it would have been moved there), so nothing writes it: the only key over
        // it while it is a lease has no remote rights, and the NIC's last access happened before the completion that
        // returned the lease was taken out of its locked queue.
        unsafe { std::slice::from_raw_parts(self.memory.memory.start().as_ptr().add(self.offset), self.len) }
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; and `&mut self` makes this the only view.
        unsafe {
            std::slice::from_raw_parts_mut(self.memory.memory.start().as_ptr().add(self.offset), self.len)
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
